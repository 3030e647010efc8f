package definition

import (
	"bytes"
	"errors"
	"iter"
	"regexp/syntax"
	"strings"

	"junction/upstream/raw"
)

// This file finds what makes an outputSchema impossible to compile. Version 1 of the TypeScript SDK
// compiles all of them (with Ajv, as draft-07) when it has listed the tools, and its caller gets no
// tools at all if one fails. No client compiles an inputSchema then.

// maxSchemaLevels bounds the levels of a schema that uncompilable looks at, because each level is
// scanned again.
const maxSchemaLevels = 32

// maxReferences bounds the different references that uncompilable follows, because each is looked
// for in the whole schema. The others are taken to be right.
const maxReferences = 64

// compilation is of one schema.
type compilation struct {
	root       raw.Object
	work       *Work
	references map[string]string // that were looked for, with what is wrong with them
	named      bool              // the schema has an $id or $anchor, by which it may refer to itself
}

// uncompilable returns what is wrong with a schema, as an objectCheck does; "" if it compiles.
func uncompilable(o raw.Object, work *Work) (fixed []byte, problem string) {
	c := &compilation{root: o, work: work}
	for m := range o.All() {
		if string(m.Key) == `"properties"` {
			if inner, err := o.Object("properties"); err == nil { // was parsed already
				problem = c.schemas(inner.All(), maxSchemaLevels, false)
			}
		} else {
			problem = c.keyword(m, maxSchemaLevels)
		}
		if problem != "" {
			name, _ := m.Name()
			return nil, "." + name + problem
		}
	}
	return nil, ""
}

// schema looks at the keywords of a value, if it is an object. It looks at levels of schemas in it.
func (c *compilation) schema(v []byte, levels int) string {
	if levels == 0 || v[0] != '{' || !c.work.take(len(v)) {
		return ""
	}
	typed, nullable := false, false
	for m := range raw.Each(v) {
		if problem := c.keyword(m, levels-1); problem != "" {
			name, _ := m.Name()
			return "." + name + problem
		}
		typed = typed || string(m.Key) == `"type"`
		nullable = nullable || string(m.Key) == `"nullable"`
	}
	if nullable && !typed { // Ajv knows it from OpenAPI
		return ".nullable is without type"
	}
	return ""
}

// keyword looks at one keyword. Keywords that draft-07 does not have may be anything.
func (c *compilation) keyword(m raw.Member, levels int) string {
	v := m.Value
	switch string(m.Key) {
	case `"type"`:
		return typeName(v)
	case `"multipleOf"`, `"maximum"`, `"minimum"`, `"exclusiveMaximum"`, `"exclusiveMinimum"`, `"maxLength"`,
		`"minLength"`, `"maxItems"`, `"minItems"`, `"maxProperties"`, `"minProperties"`:
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
	case `"items"`, `"not"`, `"if"`, `"then"`, `"else"`, `"contains"`, `"propertyNames"`, `"additionalProperties"`,
		`"additionalItems"`:
		if v[0] == '[' && string(m.Key) == `"items"` {
			return c.list(v, false, levels)
		}
		if v[0] != '{' && v[0] != 't' && v[0] != 'f' {
			return " is no schema"
		}
		return c.schema(v, levels)
	case `"properties"`, `"patternProperties"`, `"dependencies"`:
		if v[0] != '{' {
			return " is no object"
		}
		c.work.take(len(v))
		return c.schemas(raw.Each(v), levels, string(m.Key) == `"patternProperties"`)
	case `"$defs"`, `"definitions"`:
		c.work.take(len(v))
		return c.schemas(raw.Each(v), levels, false)
	case `"$ref"`:
		return c.reference(v)
	case `"pattern"`:
		s, err := raw.String(v)
		if err != nil {
			return " is no string"
		}
		return c.pattern(s)
	case `"format"`, `"$id"`:
		_, problem := text(v)
		return problem
	case `"id"`:
		return " is not supported by draft-07" // Ajv: use $id
	}
	return ""
}

// list looks at an array, and at the schemas in it unless levels is 0.
func (c *compilation) list(v []byte, filled bool, levels int) string {
	if v[0] != '[' {
		return " is no array"
	}
	if !filled && levels == 0 || !c.work.take(len(v)) {
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
		if problem := c.schema(e, levels); problem != "" && levels > 0 {
			return "[…]" + problem
		}
	}
	return ""
}

// schemas looks at members that are schemas; patterns says that their names are regular
// expressions.
func (c *compilation) schemas(members iter.Seq[raw.Member], levels int, patterns bool) string {
	for m := range members {
		problem := c.schema(m.Value, levels)
		if patterns && problem == "" {
			name, _ := m.Name()
			problem = c.pattern(name)
		}
		if problem != "" {
			return "[…]" + problem
		}
	}
	return ""
}

// reference looks at a $ref.
func (c *compilation) reference(v []byte) string {
	ref, err := raw.String(v)
	if err != nil {
		return " is no string"
	}
	if c.references == nil {
		if !c.work.take(2 * len(c.root.Text())) {
			return ""
		}
		c.references = map[string]string{}
		c.named = bytes.Contains(c.root.Text(), []byte(`"$id"`)) || bytes.Contains(c.root.Text(), []byte(`"$anchor"`))
	}
	problem, known := c.references[ref]
	if !known && len(c.references) < maxReferences {
		problem = c.target(ref)
		c.references[ref] = problem
	}
	return problem
}

// target looks for the target of a reference in the same schema. A reference that a name may
// resolve is taken to be right.
func (c *compilation) target(ref string) string {
	switch {
	case ref == "" || ref == "#" || c.named || strings.HasPrefix(ref, "http://json-schema.org/draft-07/schema"):
		return ""
	case !strings.HasPrefix(ref, "#/"):
		return " refers to another document"
	}
	at := c.root.Text()
	for token := range strings.SplitSeq(ref[2:], "/") {
		if at[0] == '[' || strings.Contains(token, "%") || !c.work.take(len(at)) {
			return ""
		}
		next, err := raw.Get(at, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
		if err != nil {
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

// pattern looks at a regular expression of ECMAScript. What Go has no syntax for, such as
// lookahead, is taken to be right.
func (c *compilation) pattern(s string) string {
	for _, foreign := range []string{"(?", "[^]", "[]", "[:"} {
		if strings.Contains(s, foreign) {
			return ""
		}
	}
	if !c.work.take(stepsOf(s)) {
		return ""
	}
	_, err := syntax.Parse(s, syntax.Perl)
	var parseErr *syntax.Error
	if !errors.As(err, &parseErr) {
		return ""
	}
	switch parseErr.Code {
	case syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingBracket, syntax.ErrInvalidCharRange,
		syntax.ErrMissingRepeatArgument, syntax.ErrTrailingBackslash:
		return " is no regular expression"
	}
	return ""
}
