// Package definition checks, mends and reads the definitions that a server lists.
//
// Typed clients parse a list as a whole: one member of one definition that breaks the published
// schema makes them reject every definition of the list. Rules.Mend therefore changes as little as
// possible until no client rejects the definition:
//
//   - A member that the specification makes optional is removed.
//   - An empty map or list that a server wrote as null (Go) or as [] (PHP) is written as {} or [].
//   - A definition that still breaks the schema is left out, with the reason.
//   - A keyword of a tool's schema that no draft of JSON Schema allows is removed (schema.go).
//
// The rules are those of all published schemas (2024-11-05 to 2026-07-28). Where the versions
// differ, Older (older.go) has what only legacy clients reject. All other bytes of a definition
// stay.
//
// The checks of schemas count their steps (work.go), because a server chooses the schemas.
//
// Headers (header.go) has the arguments of a tool that go into HTTP headers as well. An Inspection
// (inspect.go) finds what the operator should know about an item.
package definition

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"junction/upstream/raw"
)

// A valueCheck looks at one value. problem is "" for a good value. Otherwise problem follows the
// value's name, such as " is no string" or ".src is missing", and fixed is the value to list
// instead; fixed is nil if there is none.
type valueCheck func(v []byte) (fixed []byte, problem string)

// An objectCheck is a valueCheck of an object that was parsed already.
type objectCheck func(o raw.Object) (fixed []byte, problem string)

// rule is what a schema demands of one member of an object. It has one of the two checks.
type rule struct {
	name   string
	need   need
	check  valueCheck
	object objectCheck
}

// need says what happens to an object whose member breaks its rule.
type need int

const (
	optional need = iota // the member is removed
	intact               // the object breaks its schema, unless the member is absent
	present              // the object breaks its schema, also if the member is absent
	assumed              // intact; an absent member, or null, is added: as {}, or as the check corrects null
)

var (
	iconRules = []rule{
		{"src", present, text, nil}, {"mimeType", optional, text, nil}, {"sizes", optional, every(text), nil},
		{"theme", optional, among(`"light"`, `"dark"`), nil},
	}
	baseRules = []rule{
		{"title", optional, text, nil}, {"description", optional, text, nil}, {"_meta", optional, anyObject, nil},
		{"icons", optional, each(parsed(members(iconRules))), nil},
	}
	hintRules = []rule{
		{"title", optional, text, nil}, {"readOnlyHint", optional, boolean, nil},
		{"destructiveHint", optional, boolean, nil},
		{"idempotentHint", optional, boolean, nil}, {"openWorldHint", optional, boolean, nil},
	}
	schemaRules = []rule{
		{"$schema", optional, text, nil}, {"properties", optional, mapping, nil},
		{"required", optional, emptyFor(each(text)), nil},
		{"$defs", optional, mapping, nil}, {"definitions", optional, mapping, nil},
	}
	inputRules  = append([]rule{{"type", assumed, objectType, nil}}, schemaRules...)
	outputRules = append([]rule{{"type", optional, typeOfSchema, nil}}, schemaRules...)
	toolRules   = []rule{
		{"inputSchema", assumed, nil, members(inputRules)}, {"outputSchema", optional, nil, members(outputRules)},
		{"annotations", optional, nil, members(hintRules)},
		// the modern era does not have it
		{"execution", optional, nullOr(parsed(members([]rule{{"taskSupport", optional, nullOr(text), nil}}))), nil},
	}
	argumentRules = []rule{
		{"name", present, text, nil}, {"title", optional, text, nil}, {"description", optional, text, nil},
		{"required", optional, boolean, nil},
	}
	annotationRules = []rule{
		{"audience", optional, every(among(`"user"`, `"assistant"`)), nil}, {"priority", optional, priority, nil},
		{"lastModified", optional, dateTime, nil},
	}
	resourceRules = []rule{
		{"name", present, text, nil}, {"mimeType", optional, text, nil}, {"annotations", optional, nil,
			members(annotationRules)},
	}
)

// Rules apply to the definitions of one list, but for the member that names the item.
type Rules []rule

// The rules of the lists.
var (
	Tools   = Rules(slices.Concat(toolRules, baseRules))
	Prompts = Rules(slices.Concat([]rule{{"arguments", intact, emptyFor(every(parsed(members(argumentRules)))), nil}},
		baseRules))
	Resources = Rules(slices.Concat(resourceRules, []rule{{"size", optional, size, nil}}, baseRules))
	Templates = Rules(slices.Concat(resourceRules, baseRules))
)

// Parse parses a definition, and what Mend and Older look at in it, in one scan. Object.Forget
// gives that memory back.
func Parse(text []byte) (raw.Object, error) {
	return raw.ParseDepth(text, raw.DefaultDepth, "inputSchema", "outputSchema", "properties", "annotations",
		"execution")
}

// Mend returns the definition without the parts that make typed clients reject a whole list.
// changes describes these changes. left is why the definition cannot be listed; "" if it can.
func (r Rules) Mend(o raw.Object) (mended raw.Object, changes, left string) {
	edits, problem, broken := apply(o, r, true)
	problem = strings.TrimPrefix(problem, ".")
	if broken {
		return o, "", problem
	}
	if len(edits) == 0 {
		return o, "", ""
	}
	text, err := o.Splice(edits...)
	if err == nil {
		o, err = Parse(text)
	}
	if err != nil {
		return o, "", problem
	}
	return o, problem, ""
}

// apply applies rules to the members of an object. broken means that the edits do not suffice.
// strict rejects members that occur twice even if all are good.
func apply(o raw.Object, rules []rule, strict bool) (edits []raw.Edit, problem string, broken bool) {
	for i := range rules {
		r := &rules[i]
		fixed, fault, breaks := r.apply(o, strict)
		switch {
		case fault == "":
			continue
		case breaks:
			return nil, "." + r.name + fault, true
		case problem != "":
			problem += "; "
		}
		problem += "." + r.name + fault
		edits = append(edits, raw.Edit{Name: r.name, Value: fixed}) // without a value, Splice removes the member
	}
	return edits, problem, false
}

// apply returns the value that replaces the member of the object, nil for none, and what is wrong with the member;
// "" if nothing is. breaks means that the object breaks its schema even so.
func (r *rule) apply(o raw.Object, strict bool) (fixed []byte, fault string, breaks bool) {
	fixed, fault, err := r.look(o)
	switch {
	case err == raw.ErrAbsent && r.need == present:
		return nil, " is missing", true
	case err == raw.ErrAbsent:
		return nil, "", false
	case err != nil && (strict || !r.allows(o)):
		return nil, " occurs twice, or in another letter case", true
	}
	return fixed, fault, fault != "" && fixed == nil && r.need != optional
}

// look checks the member of the object. The error comes from Object.Get.
func (r *rule) look(o raw.Object) (fixed []byte, problem string, err error) {
	v, err := o.Get(r.name)
	if r.need == assumed && (err == raw.ErrAbsent || err == nil && string(v) == "null") {
		return r.add()
	}
	switch {
	case err != nil:
		return nil, "", err
	case r.object == nil:
		fixed, problem = r.check(v)
		return fixed, problem, nil
	case v[0] != '{':
		return nil, " is no object", nil
	}
	inner, err := o.Object(r.name) // uses what was parsed already
	if err != nil {
		return nil, " cannot be read", nil
	}
	fixed, problem = r.object(inner)
	return fixed, problem, nil
}

// add returns the value of a member that is assumed.
func (r *rule) add() (value []byte, problem string, err error) {
	if r.object == nil {
		value, problem = r.check([]byte("null"))
		return value, problem, nil
	}
	empty, err := raw.Parse([]byte("{}"))
	if err != nil {
		return nil, "", err
	}
	if value, _ = r.object(empty); value == nil {
		value = empty.Text()
	}
	return value, " is missing", nil
}

// allows reports whether all members that readers may take for the rule's member are good.
func (r *rule) allows(o raw.Object) bool {
	look := r.check
	if look == nil {
		look = parsed(r.object)
	}
	for m := range o.All() {
		if name, err := m.Name(); err == nil && !strings.EqualFold(name, r.name) {
			continue
		}
		if _, problem := look(m.Value); problem != "" {
			return false
		}
	}
	return true
}

// members is the check of an object's members.
func members(rules []rule) objectCheck {
	return func(o raw.Object) ([]byte, string) {
		edits, problem, broken := apply(o, rules, false)
		if broken || len(edits) == 0 {
			return nil, problem
		}
		fixed, err := o.Splice(edits...)
		if err != nil {
			return nil, problem
		}
		return fixed, problem
	}
}

// parsed is the check of a value that must be an object.
func parsed(check objectCheck) valueCheck {
	return func(v []byte) ([]byte, string) {
		if v[0] != '{' {
			return nil, " is no object"
		}
		o, err := raw.Parse(v)
		if err != nil {
			return nil, " cannot be read"
		}
		return check(o)
	}
}

// begins is the check of a value by its first byte, which tells its type.
func begins(with, problem string) valueCheck {
	return func(v []byte) ([]byte, string) {
		if strings.IndexByte(with, v[0]) < 0 {
			return nil, problem
		}
		return nil, ""
	}
}

var (
	anyObject = begins("{", " is no object")
	text      = begins(`"`, " is no string")
	boolean   = begins("tf", " is neither true nor false")
)

// every is the check of an array that is broken by one broken element. each drops broken elements
// instead.
func every(element valueCheck) valueCheck { return array(element, false) }
func each(element valueCheck) valueCheck  { return array(element, true) }

func array(element valueCheck, drop bool) valueCheck {
	return func(v []byte) (fixed []byte, problem string) {
		if v[0] != '[' {
			return nil, " is no array"
		}
		elements, err := raw.Elements(v)
		if err != nil {
			return nil, " cannot be read"
		}
		kept := elements[:0:0]
		for i, e := range elements {
			better, fault := element(e)
			if fault != "" && problem == "" {
				problem = "[" + strconv.Itoa(i) + "]" + fault
				kept = append(kept, elements[:i]...)
			}
			switch {
			case fault == "" && problem == "":
			case fault == "":
				kept = append(kept, e)
			case better != nil:
				kept = append(kept, better)
			case !drop:
				return nil, problem
			}
		}
		if problem == "" {
			return nil, ""
		}
		return slices.Concat([]byte("["), bytes.Join(kept, []byte(",")), []byte("]")), problem
	}
}

// emptyFor is the check of an array that some servers write as null when it is empty.
func emptyFor(list valueCheck) valueCheck {
	return func(v []byte) ([]byte, string) {
		if v[0] == 'n' {
			return []byte("[]"), " is null"
		}
		return list(v)
	}
}

// mapping is the check of a map that some servers write as null or [] when it is empty.
func mapping(v []byte) ([]byte, string) {
	switch {
	case v[0] == '{':
		return nil, ""
	case v[0] == 'n':
		return []byte("{}"), " is null"
	case v[0] == '[':
		if list, err := raw.Elements(v); err == nil && len(list) == 0 {
			return []byte("{}"), " is an empty array"
		}
	}
	return nil, " is no object"
}

// nullOr is the check of a value that may also be null.
func nullOr(check valueCheck) valueCheck {
	return func(v []byte) ([]byte, string) {
		if v[0] == 'n' {
			return nil, ""
		}
		return check(v)
	}
}

// among is the check of a string that has one of a few values, given as JSON.
func among(values ...string) valueCheck {
	problem := " is not " + strings.Join(values, " or ")
	return func(v []byte) ([]byte, string) {
		if slices.Contains(values, string(v)) {
			return nil, ""
		}
		// written with escapes
		if s, err := raw.String(v); err == nil && slices.Contains(values, string(raw.Quote(s))) {
			return nil, ""
		}
		return nil, problem
	}
}

// objectType is the check of the type of a tool's inputSchema. Some servers give no type, or an object that
// may be null. Arguments are always an object.
func objectType(v []byte) (fixed []byte, problem string) {
	const object = `"object"`
	if _, problem = isObject(v); problem == "" {
		return nil, ""
	}
	if string(v) == "null" {
		return []byte(object), " is missing"
	}
	types, err := raw.Elements(v)
	has := func(name string) bool {
		return slices.ContainsFunc(types, func(e []byte) bool { return string(e) == name })
	}
	if v[0] != '[' || err != nil || !has(object) ||
		slices.ContainsFunc(types, func(e []byte) bool { return string(e) != object && string(e) != "\"null\"" }) {
		return nil, problem
	}
	return []byte(object), problem
}

var isObject = among(`"object"`)

// typeOfSchema is the check of a schema's type: a name, or several.
func typeOfSchema(v []byte) ([]byte, string) {
	if v[0] == '"' {
		return nil, ""
	}
	if list, err := raw.Elements(v); err != nil || len(list) == 0 {
		return nil, " is neither a string nor a list of strings"
	}
	return nil, ""
}

// size is the check of a whole number, however it is written.
func size(v []byte) ([]byte, string) {
	if f, err := strconv.ParseFloat(string(v), 64); err != nil || f != math.Trunc(f) {
		return nil, " is no integer"
	}
	return nil, ""
}

// priority is the check of a number from 0 to 1.
func priority(v []byte) ([]byte, string) {
	if f, err := strconv.ParseFloat(string(v), 64); err != nil || f < 0 || f > 1 {
		return nil, " is no number from 0 to 1"
	}
	return nil, ""
}

// dateTime is the check of a time with its zone (RFC 3339), as the TypeScript SDK makes it.
func dateTime(v []byte) ([]byte, string) {
	if s, err := raw.String(v); err != nil || !timeWithZone().MatchString(s) {
		return nil, " is no date and time (RFC 3339)"
	}
	return nil, ""
}

var timeWithZone = lazily(`^(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|` +
	`\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|` +
	`02-(?:0[1-9]|1\d|2[0-8])))` +
	`T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`)
