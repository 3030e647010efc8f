// Package settings writes values of configuration types as sections of the program's configuration
// file, so that a test can give the same settings to a proxy in its own process and to the program.
package settings

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/upstream"
)

// Section returns a value as the file has it: without the fields that are zero. The error is about
// a setting that the file does not have, or that the file's reader would not read as it is. given
// are the fields that the reader sets itself.
func Section[T any](v T, given ...string) (*yaml.Node, error) {
	n, err := node(reflect.ValueOf(v), given)
	if err != nil {
		return nil, err
	}
	var back T
	if err := n.Decode(&back); err != nil {
		return nil, err
	}
	again, err := node(reflect.ValueOf(back), given)
	if err != nil {
		return nil, err
	}
	if here, there := text(n), text(again); here != there {
		return nil, fmt.Errorf("the file would be read as\n%s\ninstead of\n%s", there, here)
	}
	escape(n)
	return n, nil
}

func text(n *yaml.Node) string {
	b, err := yaml.Marshal(n)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// escape keeps the file's reader from looking for variables in the values.
func escape(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		n.Value = strings.ReplaceAll(n.Value, "${", "$${")
	}
	for _, c := range n.Content {
		escape(c)
	}
}

// node writes one value. given are names of fields to leave out.
func node(v reflect.Value, given []string) (*yaml.Node, error) {
	switch x := v.Interface().(type) {
	case time.Duration:
		return scalar(x.String()), nil
	case auth.Hash:
		return scalar(x.String()), nil
	case upstream.Rules:
		return rules(x, given)
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		return scalar(string(b)), err
	}
	switch v.Kind() {
	case reflect.Pointer:
		return node(v.Elem(), given)
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		return n, fields(n, v, given)
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			if err := put(n, name.String(), v.MapIndex(name), given); err != nil {
				return nil, err
			}
		}
		return n, nil
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item, err := node(v.Index(i), given)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		return n, nil
	}
	n := &yaml.Node{}
	return n, n.Encode(v.Convert(basic(v.Kind(), v.Type())).Interface())
}

// basic returns the type without a name of its own, which has no methods.
func basic(k reflect.Kind, t reflect.Type) reflect.Type {
	switch k {
	case reflect.String:
		return reflect.TypeFor[string]()
	case reflect.Int, reflect.Int64:
		return reflect.TypeFor[int64]()
	}
	return t
}

// fields adds the fields of a struct that are not zero.
func fields(n *yaml.Node, v reflect.Value, given []string) error {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if !f.IsExported() || value.IsZero() {
			continue
		}
		name, flags, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		var err error
		switch {
		case f.Anonymous && (flags == "inline" || name == ""):
			err = fields(n, value, given)
		case name == "-" && slices.Contains(given, f.Name):
		case name == "-" || name == "":
			err = fmt.Errorf("%s.%s is not a key of the file", v.Type(), f.Name)
		default:
			err = put(n, name, value, given)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rules writes the mapping from globs to rules.
func rules(list upstream.Rules, given []string) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, r := range list {
		if err := put(n, r.Glob, reflect.ValueOf(r.Rule), given); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func put(n *yaml.Node, name string, v reflect.Value, given []string) error {
	value, err := node(v, given)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	n.Content = append(n.Content, scalar(name), value)
	return nil
}

func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}
