package upstream

import (
	"bytes"
	"errors"
	"regexp/syntax"
	"strings"

	"junction/upstream/raw"
)

// This file finds what makes an outputSchema impossible to compile. Version 1 of the TypeScript SDK compiles all of them (with Ajv, as draft-07) when it has
// listed the tools, and its caller gets no tools at all if one fails. No client compiles an inputSchema then.

// maxSchemaLevels bounds the levels of a schema that uncompilable looks at, because each level is scanned again.
const maxSchemaLevels = 32

// compilation is of one schema.
type compilation struct{ root raw.Object }

// uncompilable returns what is wrong with a schema, as an objectCheck does; "" if it compiles.
func uncompilable(o raw.Object) (fixed []byte, problem string) {
	c := compilation{o}
	return nil, c.schema(o, maxSchemaLevels)
}

// schema looks at the keywords of one schema, of which levels may be nested.
func (c compilation) schema(o raw.Object, levels int) string {
	if levels == 0 {
		return ""
	}
	for m := range o.All() {
		if problem := c.keyword(m, levels-1); problem != "" {
			name, _ := m.Name()
			return "." + name + problem
		}
	}
	return ""
}

// keyword looks at one keyword. Keywords that draft-07 does not have may be anything.
func (c compilation) keyword(m raw.Member, levels int) string {
	v := m.Value
	switch string(m.Key) {
	case `"type"`:
		return typeName(v)
	case `"multipleOf"`, `"maximum"`, `"minimum"`, `"exclusiveMaximum"`, `"exclusiveMinimum"`, `"maxLength"`, `"minLength"`,
		`"maxItems"`, `"minItems"`, `"maxProperties"`, `"minProperties"`:
		if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
			return " is no number"
		}
	case `"uniqueItems"`:
		_, problem := boolean(v)
		return problem
	case `"required"`:
		return c.list(v, false, 0)
	case `"enum"`:
		return c.list(v, true, 0)
	case `"anyOf"`, `"oneOf"`, `"allOf"`:
		return c.list(v, false, levels)
	case `"not"`, `"if"`, `"then"`, `"else"`, `"contains"`, `"propertyNames"`, `"additionalProperties"`, `"additionalItems"`:
		if v[0] != '{' && v[0] != 't' && v[0] != 'f' {
			return " is no schema"
		}
		return c.inner(v, levels)
	case `"items"`:
		if v[0] == '[' {
			return c.list(v, false, levels)
		}
		if v[0] != '{' && v[0] != 't' && v[0] != 'f' {
			return " is no schema"
		}
		return c.inner(v, levels)
	case `"properties"`, `"patternProperties"`, `"dependencies"`:
		return c.named(v, levels, string(m.Key) == `"patternProperties"`)
	case `"$defs"`, `"definitions"`:
		if v[0] == '{' {
			return c.named(v, levels, false)
		}
	case `"$ref"`:
		return c.reference(v)
	case `"pattern"`:
		s, err := raw.String(v)
		if err != nil {
			return " is no string"
		}
		return pattern(s)
	case `"format"`, `"$id"`:
		_, problem := text(v)
		return problem
	case `"id"`:
		return " is not supported by draft-07" // Ajv: use $id
	}
	return ""
}

// inner looks at a value that may be a schema.
func (c compilation) inner(v []byte, levels int) string {
	if v[0] != '{' {
		return ""
	}
	o, err := raw.Parse(v)
	if err != nil {
		return " cannot be read"
	}
	return c.schema(o, levels)
}

// list looks at an array, and at the schemas in it unless levels is 0.
func (c compilation) list(v []byte, filled bool, levels int) string {
	if v[0] != '[' {
		return " is no array"
	}
	if !filled && levels == 0 {
		return ""
	}
	elements, err := raw.Elements(v)
	if err != nil {
		return " cannot be read"
	}
	if filled && len(elements) == 0 {
		return " is empty"
	}
	for _, e := range elements {
		if problem := c.inner(e, levels); problem != "" && levels > 0 {
			return "[…]" + problem
		}
	}
	return ""
}

// named looks at an object whose members are schemas.
func (c compilation) named(v []byte, levels int, patterns bool) string {
	if v[0] != '{' {
		return " is no object"
	}
	o, err := raw.Parse(v)
	if err != nil {
		return " cannot be read"
	}
	for m := range o.All() {
		problem := c.inner(m.Value, levels)
		if patterns && problem == "" {
			name, _ := m.Name()
			problem = pattern(name)
		}
		if problem != "" {
			return "[…]" + problem
		}
	}
	return ""
}

// reference looks for the target of a $ref in the same schema. A reference by $id or $anchor is taken to be right.
func (c compilation) reference(v []byte) string {
	ref, err := raw.String(v)
	if err != nil {
		return " is no string"
	}
	if ref == "" || ref == "#" || strings.HasPrefix(ref, "http://json-schema.org/draft-07/schema") || bytes.Contains(c.root.Text(), []byte(`"$id"`)) {
		return ""
	}
	if !strings.HasPrefix(ref, "#/") {
		if bytes.Contains(c.root.Text(), []byte(`"$anchor"`)) {
			return ""
		}
		return " refers to another document"
	}
	at := c.root.Text()
	for _, token := range strings.Split(ref[2:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		next, err := raw.Get(at, token)
		if err != nil {
			if strings.Contains(ref, "%") || at[0] == '[' {
				return ""
			}
			return " refers to nothing"
		}
		at = next
	}
	if at[0] == 'n' {
		return " refers to null"
	}
	return ""
}

// typeName looks at a schema's type.
func typeName(v []byte) string {
	names := [][]byte{v}
	switch {
	case string(v) == `""`: // Ajv takes it for none
		return ""
	case v[0] == '[':
		names, _ = raw.Elements(v)
	}
	for _, name := range names {
		if _, problem := typeNames(name); problem != "" {
			return " is no type"
		}
	}
	return ""
}

var typeNames = among(`"string"`, `"object"`, `"number"`, `"integer"`, `"boolean"`, `"array"`, `"null"`)

// pattern looks at a regular expression of ECMAScript. What Go has no syntax for, such as lookahead, is taken to be right.
func pattern(s string) string {
	_, err := syntax.Parse(s, syntax.Perl)
	var wrong *syntax.Error
	if err == nil || !errors.As(err, &wrong) || strings.Contains(s, "[^]") || strings.Contains(s, "[]") {
		return ""
	}
	switch wrong.Code {
	case syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingBracket, syntax.ErrInvalidCharRange, syntax.ErrMissingRepeatArgument, syntax.ErrTrailingBackslash:
		if !strings.Contains(s, "(?") {
			return " is no regular expression"
		}
	}
	return ""
}
