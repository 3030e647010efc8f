package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"junction/proxy/visible"
)

// describe appends the problems of a validation error. It omits the values: they may be secret, and
// the caller has them.
func (s *inputSchema) describe(e *jsonschema.ValidationError, list []string) []string {
	at := place(e.InstanceLocation)
	add := func(format string, args ...any) { list = append(list, at+": "+fmt.Sprintf(format, args...)) }
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			list = append(list, place(append(slices.Clone(e.InstanceLocation), name))+": missing"+s.wanted(e.SchemaURL,
				name))
		}
	case *kind.AdditionalProperties:
		known := s.known(e.SchemaURL)
		for _, name := range k.Properties {
			list = append(list, place(append(slices.Clone(e.InstanceLocation),
				name))+": unknown argument"+known)
		}
	case *kind.Type:
		add("must be %s, got %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		add("must be one of %s", words(k.Want))
	case *kind.Const:
		add("must be %s", words([]any{k.Want}))
	case *kind.Minimum:
		add("must be at least %s", k.Want.RatString())
	case *kind.Maximum:
		add("must be at most %s", k.Want.RatString())
	case *kind.ExclusiveMinimum:
		add("must be more than %s", k.Want.RatString())
	case *kind.ExclusiveMaximum:
		add("must be less than %s", k.Want.RatString())
	case *kind.MultipleOf:
		add("must be a multiple of %s", k.Want.RatString())
	case *kind.MinLength:
		add("must have at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		add("must have at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		add("must have at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		add("must have at most %d items, got %d", k.Want, k.Got)
	case *kind.MinProperties:
		add("must have at least %d members, got %d", k.Want, k.Got)
	case *kind.MaxProperties:
		add("must have at most %d members, got %d", k.Want, k.Got)
	case *kind.UniqueItems:
		add("items %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.Pattern:
		add("must match %s", short(k.Want, maxShownWords))
	case *kind.PropertyNames:
		add("%s is no name for a member", short(k.Property, maxShownName))
	case *kind.Dependency:
		add("%s needs %s as well", short(k.Prop, maxShownName), short(strings.Join(k.Missing, ", "), maxShownWords))
	case *kind.DependentRequired:
		add("%s needs %s as well", short(k.Prop, maxShownName), short(strings.Join(k.Missing, ", "), maxShownWords))
	case *kind.FalseSchema:
		add("no value is allowed here")
	case *kind.Not:
		add("this value is not allowed")
	case *kind.AnyOf:
		return s.nearest(e, list)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add("fits two of the forms that exclude each other")
			return list
		}
		return s.nearest(e, list)
	default:
		if len(e.Causes) > 0 { // a group, a reference, allOf
			for _, c := range e.Causes {
				list = s.describe(c, list)
			}
			return list
		}
		if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
			add("does not fit %s of the schema", short(strings.Join(path, "/"), maxShownName))
		} else {
			add("does not fit the schema")
		}
	}
	return list
}

// nearest describes a value that matches none of several forms. It lists all types if the value has
// another type, else the problems with the nearest form.
func (s *inputSchema) nearest(e *jsonschema.ValidationError, list []string) []string {
	at := place(e.InstanceLocation)
	var types []string
	var best []string
	got := ""
	for _, c := range e.Causes {
		leaf := c
		for len(leaf.Causes) == 1 {
			leaf = leaf.Causes[0]
		}
		if k, ok := leaf.ErrorKind.(*kind.Type); ok && len(leaf.InstanceLocation) == len(e.InstanceLocation) {
			types, got = append(types, k.Want...), k.Got
			continue // a form of another type
		}
		if form := s.describe(c, nil); best == nil || len(form) < len(best) {
			best = form
		}
	}
	switch {
	case best != nil && len(e.Causes) > 1:
		for _, problem := range best {
			list = append(list, problem+" (in the nearest of several forms)")
		}
		return list
	case best != nil:
		return append(list, best...)
	case len(types) > 0:
		return append(list, fmt.Sprintf("%s: must be %s, got %s", at, strings.Join(slices.Compact(types), " or "), got))
	}
	return append(list, at+": has none of the forms that are allowed")
}

// place formats a path, such as options.list[3].name.
func place(path []string) string {
	if len(path) == 0 {
		return "the arguments"
	}
	var b strings.Builder
	for i, p := range path {
		if _, err := strconv.ParseUint(p, 10, 32); err == nil && i > 0 {
			b.WriteString("[" + p + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(short(p, maxShownName))
	}
	return short(b.String(), 3*maxShownName)
}

// wanted returns text about the type of a member; "" if the schema at the location has none.
func (s *inputSchema) wanted(location, name string) string {
	properties, _ := s.at(location)["properties"].(map[string]any)
	property, _ := properties[name].(map[string]any)
	switch t := property["type"].(type) {
	case string:
		return "; must be " + short(t, maxShownName)
	case []any:
		return "; must be " + words(t)
	}
	if list, ok := property["enum"].([]any); ok {
		return "; must be one of " + words(list)
	}
	return ""
}

// known returns text that lists the properties of the schema at a location.
func (s *inputSchema) known(location string) string {
	properties, _ := s.at(location)["properties"].(map[string]any)
	if len(properties) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(properties))
	return "; there are " + short(strings.Join(names, ", "), maxShownWords)
}

// at returns the schema at a location, which is a URL with a JSON pointer; nil if the location is
// outside this document.
func (s *inputSchema) at(location string) map[string]any {
	pointer, ok := strings.CutPrefix(location, schemaURL+"#")
	if !ok {
		return nil
	}
	here := s.doc
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch v := here.(type) {
		case map[string]any:
			here = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			here = v[i]
		default:
			return nil
		}
	}
	object, _ := here.(map[string]any)
	return object
}

// words formats values of a schema and cuts a long list.
func words(list []any) string {
	var all []string
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			continue
		}
		all = append(all, string(text))
	}
	return short(strings.Join(all, ", "), maxShownWords)
}

// short cuts an untrusted text and makes invisible characters visible.
func short(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return visible.Text(s)
}
