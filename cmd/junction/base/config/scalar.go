package config

import (
	"cmp"
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// text reads a scalar: it replaces the references and sets v from the result as text, whatever its
// YAML type.
func (d *decoder) text(path string, n *yaml.Node, v reflect.Value) bool {
	isString := v.Kind() == reflect.String
	switch {
	case n.Kind != yaml.ScalarNode:
		d.bad(path, "must be %s, not %s", wanted(v), yamlread.Kind(n))
		return false
	case yamlread.Empty(n) && isString:
		d.bad(path, `has no value; give it one, remove the key, or write "" for an empty one`)
		return false
	case yamlread.Empty(n):
		d.bad(path, "has no value; give it one, or remove the key")
		return false
	}
	if auth.HoldsKey(n.Value) {
		d.plaintext(path)
		return false
	}
	off := d.off[entry(path)]
	d.refs.unset = ""
	d.refs.print = d.printer(path, n.Value)
	text, refs, problems := d.refs.expand(n.Value)
	d.refs.print = nil // of no other value
	d.noteOrigins(path, refs)
	for _, r := range refs {
		if name := r.variable(); name != "" {
			d.variables[name] = append(d.variables[name], path)
		}
		if !strings.Contains(r.text, r.value) { // a default is not secret: the file contains it
			d.secrets[entry(path)] = append(d.secrets[entry(path)], r)
		}
	}
	if !isEnv(path) && slices.ContainsFunc(refs, func(r reference) bool { return r.text == upstream.KeyWord }) {
		problems = append(problems, upstream.KeyWord+" is known only in env of an upstream with a command")
	}
	if len(problems) > 0 && isWrite(path) {
		d.unsure[path] = problems[0]
	}
	if off && len(problems) > 0 {
		d.mark(path) // the value cannot be checked
		return false
	}
	for _, w := range problems {
		d.unresolved[path] = true
		d.unset[path] = d.refs.unset
		d.bad(path, "%s", w)
	}
	if len(problems) > 0 {
		return false
	}
	if err := set(v, text); err != nil {
		if len(refs) > 0 {
			err = cmp.Or(set(v, n.Value), err) // the message then quotes the file, which is not secret
		}
		problem := strings.TrimPrefix(err.Error(), "line 0: ")
		if len(refs) > 0 {
			problem = strings.ReplaceAll(problem, strconv.Quote(n.Value), "what "+n.Value+" stands for")
		}
		d.bad(path, "%s", problem)
		return false
	}
	if problem := tooSmall(path, v); problem != "" {
		d.bad(path, "%s", problem)
		v.SetZero()
		return false
	}
	return true
}

// tooSmall returns the problem of a number that is not positive. Zero means the default in Go and
// would be ignored silently; only idle_stop, reuse_interval and cache accept it.
func tooSmall(path string, v reflect.Value) string {
	if _, level := v.Interface().(slog.Level); level || !v.CanInt() || v.Int() > 0 {
		return ""
	}
	zero := strings.HasSuffix(path, ".idle_stop") || strings.HasSuffix(path, ".cache") ||
		path == "auth.oauth.tokens.reuse_interval"
	if !zero {
		return "must be more than 0; remove the key for the default"
	}
	if v.Int() < 0 {
		return "must be 0 (never) or more"
	}
	return ""
}

// isScalar reports whether the file has the value as a scalar.
func isScalar(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case *time.Duration, encoding.TextUnmarshaler, yaml.Unmarshaler:
		return true
	}
	return v.Kind() == reflect.String || v.Kind() == reflect.Bool || v.Kind() == reflect.Int
}

// set sets a scalar from text. The error describes the expected form.
func set(v reflect.Value, text string) error {
	mismatch := fmt.Errorf("must be %s, not %s", wanted(v), prose.Quote(text))
	switch dst := v.Addr().Interface().(type) {
	case *time.Duration:
		duration, err := time.ParseDuration(text)
		*dst = duration // 0 after an error
		if _, notNumber := strconv.ParseFloat(text, 64); err != nil && notNumber == nil {
			return fmt.Errorf("must be %s; %s has no unit", wanted(v), text)
		} else if err != nil {
			return mismatch
		}
		return nil
	case *slog.Level:
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, text) {
			return fmt.Errorf("%s is none of debug, info, warn, error", prose.Quote(text))
		}
		return dst.UnmarshalText([]byte(text))
	case encoding.TextUnmarshaler:
		return dst.UnmarshalText([]byte(text))
	case yaml.Unmarshaler:
		// The words and sizes of package upstream implement yaml.Unmarshaler. The text may come
		// from a reference, so that it gets a new node, on line 0.
		return dst.UnmarshalYAML(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if !slices.Contains([]string{"true", "True", "TRUE", "false", "False", "FALSE"}, text) {
			return mismatch
		}
		v.SetBool(text[0] == 't' || text[0] == 'T')
	case reflect.Int:
		i, err := strconv.Atoi(text)
		if err != nil {
			return mismatch
		}
		v.SetInt(int64(i))
	}
	return nil
}

// wanted describes the expected form of a scalar.
func wanted(v reflect.Value) string {
	switch v.Addr().Interface().(type) {
	case *time.Duration:
		return "a duration, such as 500ms, 30s or 5m"
	case *upstream.Size:
		return "a size, such as 512, 64KiB or 16MiB"
	case *policy.Rate:
		return "a rate, such as 5/s, 60/m or 1000/h"
	case *auth.Hash:
		return "a hash"
	case *auth.CIDR:
		return "a network, such as 10.0.0.0/8"
	case *command.Port:
		return "a port, such as 443"
	case *auth.Moment:
		return "a day, such as 2027-06-30"
	case *slog.Level, encoding.TextUnmarshaler, yaml.Unmarshaler:
		return "a word"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number, such as 32"
	}
	return "text"
}
