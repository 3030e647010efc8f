package policy

import "junction/upstream/raw"

// Arguments are what a definition says about the arguments of calls.
type Arguments struct {
	Names   []string
	Open    bool // calls may have others
	Unknown bool // the definition does not tell
}

// ArgumentsOf returns the arguments of a tool or a prompt by its definition.
func ArgumentsOf(k Kind, definition raw.Object) (a Arguments) {
	if k == Prompt {
		list, err := definition.Elements("arguments")
		for _, e := range list {
			if o, err := raw.Parse(e); err == nil {
				name, _ := o.String("name")
				a.Names = append(a.Names, name)
			}
		}
		a.Unknown = err != nil && err != raw.ErrAbsent
		return a
	}
	schema, err := definition.Object("inputSchema")
	if err != nil {
		return Arguments{Unknown: true}
	}
	for _, key := range combining {
		if _, err := schema.Get(key); err != raw.ErrAbsent {
			return Arguments{Unknown: true}
		}
	}
	more, err := schema.Get("additionalProperties")
	a.Open = err != nil || string(more) != "false"
	properties, err := schema.Object("properties")
	for m := range properties.All() {
		name, _ := m.Name()
		a.Names = append(a.Names, name)
	}
	a.Unknown = err != nil && err != raw.ErrAbsent || a.Open && len(a.Names) == 0
	return a
}

// combining are the keywords with which a schema may have other arguments than its properties.
var combining = [...]string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties",
	"dependentSchemas", "dependencies"}
