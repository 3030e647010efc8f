package config

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"path"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/invopop/jsonschema"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/command"
)

// This file makes schema.json from the types of the file. Only tests need the library for it.

// words are types whose values are words of a row.
type words interface{ Words() []string }

// mustMakeSchema returns the schema that the types have.
func mustMakeSchema(t *testing.T) []byte {
	t.Helper()
	comments := mustReadComments(t)
	r := &jsonschema.Reflector{Anonymous: true, FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true,
		Namer: nameOf, Mapper: formOf, LookupComment: comments.of,
		AdditionalFields: func(t reflect.Type) (fields []reflect.StructField) {
			if t == reflect.TypeFor[upstream.Config]() { // the file has the keys of a pack in the same mapping
				fields = slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[entryKeys]()),
					func(f reflect.StructField) bool { return len(f.Index) > 1 || f.Anonymous })
			}
			return fields
		}}
	s := r.Reflect(Config{})
	for _, other := range []any{upstream.Rule{}, policy.Alternative{}} { // formOf names them
		maps.Copy(s.Definitions, r.Reflect(other).Definitions)
	}
	for name, form := range map[string]*jsonschema.Schema{
		nameOf(reflect.TypeFor[policy.Alternative]()): aText(),
		nameOf(reflect.TypeFor[policy.Redact]()):      {Enum: []any{"secrets"}},
		nameOf(reflect.TypeFor[policy.Redactions]()):  listOf(refTo(reflect.TypeFor[policy.Redact]())),
	} {
		s.Definitions[name] = anyOf(form, s.Definitions[name])
	}
	// Editors would show a description of it in place of that of the key.
	s.Definitions["reference"] = matching(`\$\{|^env:`)
	for _, d := range s.Definitions {
		settle(d)
	}
	s.Version, s.Title = "http://json-schema.org/draft-07/schema#", "The configuration file of Junction"
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.ReplaceAll(text.Bytes(), []byte("$defs"), []byte("definitions")), "", " "); err != nil {
		t.Fatal(err)
	}
	return indented.Bytes()
}

// nameOf names a type with its package, because several are called Config.
func nameOf(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

func refTo(t reflect.Type) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/$defs/" + nameOf(t)}
}

func anyOf(forms ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: forms} }

// aText is text, which the decoder also reads from what YAML takes for a number or a boolean.
func aText() *jsonschema.Schema {
	return &jsonschema.Schema{Extras: map[string]any{"type": []string{"string", "number", "boolean"}}}
}

func matching(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: pattern}
}

// listOf is a list that is not empty.
func listOf(of *jsonschema.Schema) *jsonschema.Schema {
	least := uint64(1)
	return &jsonschema.Schema{Type: "array", Items: of, MinItems: &least}
}

// orReference is a scalar, beside which the file may have a reference.
func orReference(forms ...*jsonschema.Schema) *jsonschema.Schema {
	return anyOf(append(forms, &jsonschema.Schema{Ref: "#/$defs/reference"})...)
}

// enum is a row of words. YAML takes some of them for booleans.
func enum(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{}
	for _, w := range words {
		if w == "true" || w == "false" {
			s.Enum = append(s.Enum, w == "true")
		}
	}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return orReference(s)
}

// whole is a whole number with a least value, or the same number in quotes.
func whole(pattern string) *jsonschema.Schema {
	return orReference(&jsonschema.Schema{Type: "integer", Minimum: "1"}, matching(pattern))
}

// formOf returns how the file has a type that the library does not know: scalars, and those with a
// decoder of their own. It returns nil for structs, maps and lists.
func formOf(t reflect.Type) *jsonschema.Schema {
	if w, ok := reflect.Zero(t).Interface().(words); ok && t.Kind() == reflect.String {
		return enum(w.Words())
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return orReference(matching(`^[0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$|^0$`),
			&jsonschema.Schema{Enum: []any{0}})
	case reflect.TypeFor[slog.Level]():
		return enum([]string{"debug", "info", "warn", "error"})
	case reflect.TypeFor[upstream.Size]():
		return whole(`^[0-9]+ *(KiB|MiB|GiB)?$`)
	case reflect.TypeFor[command.Port]():
		return whole(`^[0-9]+$`)
	case reflect.TypeFor[policy.Rate]():
		return orReference(matching(`^ *[0-9]+ */ *[smh] *$`))
	case reflect.TypeFor[auth.Hash]():
		return orReference(matching(`^sha256:[0-9a-fA-F]{64}$`))
	case reflect.TypeFor[auth.CIDR]():
		return orReference(matching(`^[0-9a-fA-F.:]+/[0-9]+$`))
	case reflect.TypeFor[auth.Moment]():
		return orReference(matching(`^[0-9]{4}-[0-9]{2}-[0-9]{2}`))
	case reflect.TypeFor[policy.List](), reflect.TypeFor[provider.OneOf]():
		return anyOf(aText(), listOf(aText()))
	case reflect.TypeFor[command.Inherit]():
		return anyOf(&jsonschema.Schema{Enum: []any{"all"}}, listOf(aText()))
	case reflect.TypeFor[command.Ports]():
		return anyOf(&jsonschema.Schema{Enum: []any{"all"}},
			&jsonschema.Schema{Type: "array", Items: formOf(reflect.TypeFor[command.Port]())})
	case reflect.TypeFor[policy.Pattern]():
		one := refTo(reflect.TypeFor[policy.Alternative]())
		return anyOf(one, listOf(one))
	case reflect.TypeFor[upstream.Rules]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: refTo(reflect.TypeFor[upstream.Rule]())}
	}
	switch t.Kind() {
	case reflect.String:
		return aText()
	case reflect.Bool:
		return orReference(&jsonschema.Schema{Type: "boolean"}, matching(`^([Tt]rue|TRUE|[Ff]alse|FALSE)$`))
	case reflect.Int:
		return whole(`^[0-9]+$`)
	}
	return nil
}

// settle makes sections and lists nullable, because a section whose keys are comments has no value, and
// separates references from their descriptions, which draft 7 would ignore beside them.
func settle(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Type == "object" || s.Type == "array" && s.MinItems == nil {
		s.Extras, s.Type = map[string]any{"type": []string{s.Type, "null"}}, ""
	}
	if s.Ref != "" && s.Description != "" {
		s.AllOf, s.Ref = []*jsonschema.Schema{{Ref: s.Ref}}, ""
	}
	settle(s.Items)
	settle(s.AdditionalProperties)
	for _, form := range s.AnyOf {
		settle(form)
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		settle(p.Value)
	}
}

// comments has the comments of fields, as TYPE.FIELD.
type comments map[string]string

// of returns the description of a field; the library asks with "" for the type itself.
func (c comments) of(t reflect.Type, field string) string {
	if field == "" {
		return ""
	}
	if _, ok := t.FieldByName(field); !ok && t == reflect.TypeFor[upstream.Config]() { // a key of a pack
		t = reflect.TypeFor[entryKeys]()
	}
	return c[nameOf(t)+"."+field]
}
