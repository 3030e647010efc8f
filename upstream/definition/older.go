package definition

import (
	"slices"

	"junction/upstream/raw"
)

// This file has what the schema of 2026-07-28 allows in a tool's definition, and the schemas of the
// legacy era do not: an outputSchema of any type (SEP-2106), properties whose schema is true or
// false, and any value of execution.taskSupport, which the modern era does not have.

// Older returns the edits that make a mended definition one for legacy clients. A legacy server has
// broken its own schema where there are any, so that changes names them as well. If work is over, the
// results mean nothing.
func Older(o raw.Object, changes string, legacy bool, work *Work) ([]raw.Edit, string) {
	output := func(o raw.Object) ([]byte, string) { return olderOutput(o, work) }
	rules := slices.Insert(slices.Clone(olderRules), 1, rule{"outputSchema", optional, nil, output})
	edits, problem, _ := apply(o, rules, false)
	if !legacy || len(edits) == 0 {
		return edits, changes
	}
	if changes != "" {
		changes += "; "
	}
	return edits, changes + problem[1:]
}

var (
	olderRules = []rule{
		{"inputSchema", optional, nil, members(olderSchemaRules)},
		{"execution", optional, nil, members([]rule{
			{"taskSupport", optional, among(`"required"`, `"optional"`, `"forbidden"`), nil},
		})},
	}
	olderSchemaRules = []rule{{"properties", optional, nil, properties}}
	olderObject      = members(append([]rule{{"type", present, among(`"object"`), nil}}, olderSchemaRules...))
)

// olderOutput is the check of an outputSchema.
func olderOutput(o raw.Object, work *Work) (fixed []byte, problem string) {
	if fixed, problem = olderObject(o); problem != "" && fixed == nil {
		return nil, problem
	}
	if _, fault := uncompilable(o, work); fault != "" {
		return nil, fault
	}
	return fixed, problem
}

// properties is the check of a map of schemas, each an object. A schema that is true or false
// becomes the object that means the same; a value that is no schema becomes {}, which demands
// nothing either.
func properties(o raw.Object) ([]byte, string) {
	problem := ""
	for m := range o.All() {
		if m.Value[0] != '{' && m.Value[0] != '[' { // the TypeScript SDK takes an array for an object
			problem = " has a schema that is no object"
			break
		}
	}
	if problem == "" {
		return nil, ""
	}
	b := []byte{'{'}
	for m := range o.All() {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, m.Key...), ':')
		switch m.Value[0] {
		case '{', '[':
			b = append(b, m.Value...)
		case 'f':
			b = append(b, `{"not":{}}`...)
		default:
			b = append(b, "{}"...)
		}
	}
	return append(b, '}'), problem
}
