package definition

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"junction/upstream/raw"
)

// This file repairs the schemas of a tool that no draft of JSON Schema allows. Some models' APIs
// refuse a whole list for one of them. Each keyword of a schema is optional, so a keyword with a
// wrong value is removed, at every level; a value that must be a schema and is none becomes {}. A
// keyword is right if any draft since draft-04 allows its value, whatever $schema is: exclusiveMinimum
// may be true. A pattern is right unless it is wrong in every dialect.

// MendSchemas returns the definition of a tool with repaired schemas. changes describes the repairs; ""
// for none. loose is the first repair by which the inputSchema accepts more arguments than the server
// may have meant; "" if there is none. If work is over, the results mean nothing.
func MendSchemas(o raw.Object, work *Work) (mended raw.Object, changes, loose string) {
	var edits []raw.Edit
	var all []string
	for _, name := range []string{"inputSchema", "outputSchema"} {
		schema, err := o.Object(name)
		if err != nil {
			continue
		}
		r := &repair{compilation: compilation{root: schema, work: work}, path: [][]byte{[]byte(name)}}
		fixed := r.schema(schema.Text(), maxSchemaLevels)
		if fixed == nil {
			continue
		}
		edits, all = append(edits, raw.Edit{Name: name, Value: fixed}), append(all, r.changes...)
		if r.more > 0 {
			all = append(all, fmt.Sprintf("%d more in %s", r.more, name))
		}
		if name == "inputSchema" {
			loose = r.loose
		}
	}
	if len(edits) == 0 || work.Over() {
		return o, "", ""
	}
	mended, err := o.With(edits...)
	if err == nil {
		mended, err = Parse(mended.Text())
	}
	if err != nil { // cannot happen: a repaired schema is JSON
		return o, "", strings.Join(all, "; ")
	}
	return mended, strings.Join(all, "; "), loose
}

// repair is of one schema.
type repair struct {
	compilation
	path    [][]byte // to the value that is looked at: names as in the definition, and indexes
	changes []string // at most maxChanges
	more    int      // changes that are not among them
	loose   string   // the first change of a keyword that arguments are checked by
}

// maxChanges bounds the changes of one schema that are described.
const maxChanges = 3

// note describes a change of the value at the path.
func (r *repair) note(fault string, loosens bool) {
	if len(r.changes) == maxChanges && (r.loose != "" || !loosens) {
		r.more++
		return
	}
	text := ""
	for _, step := range r.path {
		if text += place(step); len(text) > maxPlace {
			text = "[…]"
		}
	}
	text += fault
	if loosens && r.loose == "" {
		r.loose = text
	}
	if len(r.changes) == maxChanges {
		r.more++
		return
	}
	r.changes = append(r.changes, text)
}

// maxPlace bounds the text of a place, in bytes.
const maxPlace = 200

// place returns a step of a path as text, if it is short and plain.
func place(step []byte) string {
	name, isName := bytes.CutPrefix(step, []byte(`"`))
	name = bytes.TrimSuffix(name, []byte(`"`))
	if len(name) > 64 || bytes.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return "[…]"
	}
	if isName {
		return "." + string(name)
	}
	if name[0] <= '9' {
		return "[" + string(name) + "]"
	}
	return string(name) // the first one
}

// schema returns the repaired text of a schema; nil if it is right. It looks at levels of schemas.
func (r *repair) schema(v []byte, levels int) []byte {
	if levels == 0 || v[0] != '{' {
		return nil
	}
	return r.members(v, func(m raw.Member) ([]byte, bool) { return r.keyword(m, levels-1) })
}

// members returns an object after the changes of its members; nil if there are none. change returns
// the new value, which is nil if the value stays, and whether the member stays.
func (r *repair) members(v []byte, change func(raw.Member) (fixed []byte, stays bool)) []byte {
	if !r.work.take(2 * len(v)) { // once more if it changes
		return nil
	}
	var b []byte
	changed, before := false, 0
	for m := range raw.Each(v) {
		r.path = append(r.path, m.Key)
		fixed, stays := change(m)
		r.path = r.path[:len(r.path)-1]
		if !changed && (fixed != nil || !stays) {
			changed, b = true, []byte{'{'}
			for m := range raw.Each(v) {
				if before == 0 {
					break
				}
				b, before = appendMember(b, m.Key, m.Value), before-1
			}
		}
		switch {
		case !changed:
			before++
		case !stays:
		case fixed != nil:
			b = appendMember(b, m.Key, fixed)
		default:
			b = appendMember(b, m.Key, m.Value)
		}
	}
	if !changed {
		return nil
	}
	return append(b, '}')
}

func appendMember(b, key, value []byte) []byte {
	if len(b) > 1 {
		b = append(b, ',')
	}
	return append(append(append(b, key...), ':'), value...)
}

// keyword looks at one keyword of a schema.
func (r *repair) keyword(m raw.Member, levels int) (fixed []byte, stays bool) {
	fault, loosens := "", true
	switch v := m.Value; string(m.Key) {
	case `"type"`:
		fault = oneType(v)
	case `"$ref"`:
		fault = r.refers(v)
	case `"pattern"`:
		if s, err := raw.String(v); err != nil {
			fault = " is no string"
		} else {
			fault = r.pattern(s)
		}
	case `"enum"`:
		if v[0] != '[' {
			fault = " is no array"
		}
	case `"required"`:
		return r.names(v)
	case `"properties"`, `"patternProperties"`, `"$defs"`, `"definitions"`, `"dependentSchemas"`, `"dependencies"`:
		return r.named(string(m.Key), v, levels)
	case `"allOf"`, `"anyOf"`, `"oneOf"`, `"prefixItems"`:
		return r.list(string(m.Key), v, levels)
	case `"items"`, `"not"`, `"if"`, `"then"`, `"else"`, `"contains"`, `"propertyNames"`, `"additionalProperties"`,
		`"additionalItems"`, `"unevaluatedProperties"`, `"unevaluatedItems"`, `"contentSchema"`:
		if v[0] == '[' && string(m.Key) == `"items"` {
			return r.list(string(m.Key), v, levels)
		}
		if isSchema(v) {
			return r.schema(v, levels), true
		}
		fault = " is no schema"
	default:
		fault, loosens = simple(string(m.Key), v)
	}
	if fault != "" {
		r.note(fault, loosens)
	}
	return nil, fault == ""
}

// simple looks at a keyword whose value has neither schemas nor names.
func simple(key string, v []byte) (fault string, loosens bool) {
	switch key {
	case `"minimum"`, `"maximum"`:
		_, fault = aNumber(v)
	case `"exclusiveMinimum"`, `"exclusiveMaximum"`:
		if v[0] != 't' && v[0] != 'f' { // draft-04 has true and false
			_, fault = aNumber(v)
		}
	case `"multipleOf"`:
		if f, err := strconv.ParseFloat(string(v), 64); err != nil || f <= 0 {
			fault = " is no number above 0"
		}
	case `"minLength"`, `"maxLength"`, `"minItems"`, `"maxItems"`, `"minProperties"`, `"maxProperties"`,
		`"minContains"`, `"maxContains"`:
		if f, err := strconv.ParseFloat(string(v), 64); err != nil || f < 0 || f != math.Trunc(f) {
			fault = " is no whole number from 0"
		}
	case `"uniqueItems"`:
		_, fault = boolean(v)
	case `"dependentRequired"`:
		_, fault = anyObject(v)
	case `"readOnly"`, `"writeOnly"`, `"deprecated"`:
		_, fault = boolean(v)
		return fault, false
	case `"examples"`:
		if v[0] != '[' {
			fault = " is no array"
		}
		return fault, false
	case `"title"`, `"description"`, `"format"`, `"$comment"`, `"contentEncoding"`, `"contentMediaType"`:
		_, fault = text(v)
		return fault, false
	case `"$schema"`, `"$id"`, `"$anchor"`, `"$dynamicRef"`, `"$dynamicAnchor"`, `"$recursiveRef"`:
		_, fault = text(v)
	}
	return fault, true
}

var aNumber = begins("-0123456789", " is no number")

func isSchema(v []byte) bool { return v[0] == '{' || v[0] == 't' || v[0] == 'f' }

// oneType looks at the value of type.
func oneType(v []byte) string {
	switch v[0] {
	case '"':
		if string(v) == `""` {
			return " is no type"
		}
	case '[':
		list, err := raw.Elements(v)
		if err != nil || len(list) == 0 {
			return " is empty"
		}
		for i, e := range list {
			if slices.ContainsFunc(list[:i], func(other []byte) bool { return bytes.Equal(e, other) }) {
				return " has a type twice"
			}
			if fault := typeName(e); fault != "" {
				return fault
			}
		}
	}
	return typeName(v)
}

// refers looks at a $ref. Only a place in the same schema can be looked for.
func (r *repair) refers(v []byte) string {
	if ref, err := raw.String(v); err == nil && !strings.HasPrefix(ref, "#/") {
		return ""
	}
	return r.reference(v)
}

// names repairs a list of names: it drops what is no string, and what occurs twice.
func (r *repair) names(v []byte) (fixed []byte, stays bool) {
	if !r.work.take(namesByte * len(v)) {
		return nil, true
	}
	list, err := raw.Elements(v)
	if v[0] != '[' || err != nil {
		r.note(" is no array", true)
		return nil, false
	}
	seen := make(map[string]bool, len(list))
	kept := slices.DeleteFunc(slices.Clone(list), func(e []byte) bool {
		s, err := raw.String(e)
		drop := err != nil || seen[s]
		seen[s] = true
		return drop
	})
	if len(kept) == len(list) {
		return nil, true
	}
	r.note(" has a name twice, or one that is no string", true)
	return joined(kept), true
}

// namesByte are the steps for a byte of a list of names, which are compared by a map.
const namesByte = 20

// joined returns an array as JSON.
func joined(elements [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}

// named repairs a map of schemas.
func (r *repair) named(key string, v []byte, levels int) (fixed []byte, stays bool) {
	if fixed, fault := mapping(v); fault != "" {
		r.note(fault, fixed == nil)
		return fixed, fixed != nil
	}
	return r.members(v, func(m raw.Member) ([]byte, bool) {
		if key == `"patternProperties"` {
			name, _ := m.Name()
			if fault := r.pattern(name); fault != "" {
				r.note(fault, true)
				return nil, false
			}
		}
		switch {
		case isSchema(m.Value):
			return r.schema(m.Value, levels), true
		case key == `"dependencies"` && m.Value[0] == '[':
			return nil, true
		}
		r.note(" is no schema", true)
		return []byte("{}"), true
	}), true
}

// list repairs an array of schemas. Without one of its schemas, anyOf and oneOf would mean something
// else, so they are removed.
func (r *repair) list(key string, v []byte, levels int) (fixed []byte, stays bool) {
	if !r.work.take(2 * len(v)) { // once more if it changes
		return nil, true
	}
	list, err := raw.Elements(v)
	switch {
	case v[0] != '[' || err != nil:
		r.note(" is no array", true)
		return nil, false
	case len(list) == 0:
		r.note(" is empty", key == `"anyOf"` || key == `"oneOf"`) // the others allow everything
		return nil, false
	}
	changed := false
	for i, e := range list {
		r.path = append(r.path, strconv.AppendInt(nil, int64(i), 10))
		better := r.schema(e, levels)
		if !isSchema(e) {
			r.note(" is no schema", true)
			better = []byte("{}")
		}
		r.path = r.path[:len(r.path)-1]
		if better != nil {
			if !isSchema(e) && (key == `"anyOf"` || key == `"oneOf"`) {
				return nil, false
			}
			list[i], changed = better, true
		}
	}
	if !changed {
		return nil, true
	}
	return joined(list), true
}
