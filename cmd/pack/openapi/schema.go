package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// schemas converts the schemas of a document to JSON Schema 2020-12. Schemas that others refer to
// become members of $defs, so that circular references stay finite.
type schemas struct {
	doc  *openapi3.T
	old  bool           // OpenAPI 3.0, whose schemas differ from JSON Schema
	defs map[string]any // of one tool
	size int            // objects so far, of one tool
	// objects of a body that was too large
	total int
	tree  map[string]any // the whole document, made when a reference needs it
}

// maxObjects limits the schema of one tool. Clients and models could not use a larger one.
const maxObjects = 4000

// convert returns the JSON Schema of a schema.
func (s *schemas) convert(ref *openapi3.SchemaRef) any {
	if ref == nil {
		return map[string]any{}
	}
	text, err := json.Marshal(ref)
	if err != nil {
		return map[string]any{}
	}
	return s.rewrite(decode(text))
}

func decode(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return map[string]any{}
	}
	return v
}

// rewrite converts a schema: an object, or true or false.
func (s *schemas) rewrite(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	s.size++
	out := map[string]any{}
	for key, value := range object {
		switch key {
		case "$ref":
			out[key] = s.refer(value)
		case "properties", "patternProperties", "$defs", "dependentSchemas":
			members, _ := value.(map[string]any)
			converted := map[string]any{}
			for name, member := range members {
				if property, ok := member.(map[string]any); key == "properties" && ok && property["readOnly"] == true {
					continue // the API sets it
				}
				converted[name] = s.rewrite(member)
			}
			out[key] = converted
		case "items", "not", "if", "then", "else", "additionalProperties", "contains", "propertyNames",
			"unevaluatedItems", "unevaluatedProperties":
			out[key] = s.rewrite(value)
		case "allOf", "anyOf", "oneOf", "prefixItems":
			list, _ := value.([]any)
			for i := range list {
				list[i] = s.rewrite(list[i])
			}
			out[key] = list
		case "pattern": // one with a lookahead, for example, would make the whole schema unusable
			if text, ok := value.(string); ok {
				if _, err := regexp.Compile(text); err == nil {
					out[key] = value
				}
			}
		case "discriminator", "xml", "externalDocs", "example", "nullable", "readOnly", "$schema", "$id", "$anchor":
		default:
			if !strings.HasPrefix(key, "x-") {
				out[key] = value
			}
		}
	}
	if s.old {
		older(object, out)
	}
	require(out)
	return out
}

// require drops the names of properties that are left out.
func require(out map[string]any) {
	properties, has := out["properties"].(map[string]any)
	names, ok := out["required"].([]any)
	if !has || !ok {
		return
	}
	names = slices.DeleteFunc(names, func(name any) bool {
		text, _ := name.(string)
		_, is := properties[text]
		return !is && out["allOf"] == nil
	})
	if out["required"] = names; len(names) == 0 {
		delete(out, "required")
	}
}

// older converts the keywords of OpenAPI 3.0 that JSON Schema has in another form.
func older(object, out map[string]any) {
	for bound, inclusive := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		switch object[bound] {
		case true:
			out[bound] = out[inclusive]
			delete(out, inclusive)
		case false:
			delete(out, bound)
		}
	}
	if object["nullable"] != true {
		return
	}
	if kind, ok := out["type"].(string); ok {
		out["type"] = []any{kind, "null"}
	}
	if values, ok := out["enum"].([]any); ok && !slices.Contains(values, nil) {
		out["enum"] = append(values, nil)
	}
}

const components = "#/components/schemas/"

var unsafe = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// refer returns the reference to a member of $defs, which it makes if it is new.
func (s *schemas) refer(ref any) string {
	pointer, _ := ref.(string)
	name := unsafe.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(pointer, components), "#/"), "_")
	at := "#/$defs/" + name
	if _, known := s.defs[name]; known {
		return at
	}
	s.defs[name] = map[string]any{} // so that a circle ends
	if s.size > maxObjects {
		return at
	}
	if text, ok := strings.CutPrefix(pointer, components); ok && s.doc.Components != nil {
		if target := s.doc.Components.Schemas[unescape(text)]; target != nil {
			s.defs[name] = s.convert(target)
			return at
		}
	}
	s.defs[name] = s.rewrite(s.lookup(pointer))
	return at
}

func unescape(s string) string {
	return strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}").Replace(s)
}

// lookup returns a schema that is no component, such as #/paths/~1a/get/responses/200/….
func (s *schemas) lookup(pointer string) any {
	if s.tree == nil {
		text, err := json.Marshal(s.doc)
		if err != nil {
			return map[string]any{}
		}
		s.tree, _ = decode(text).(map[string]any)
	}
	var at any = s.tree
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
		switch v := at.(type) {
		case map[string]any:
			at = v[unescape(step)]
		case []any:
			i := 0
			if _, err := fmt.Sscan(step, &i); err != nil || i < 0 || i >= len(v) {
				return map[string]any{}
			}
			at = v[i]
		}
	}
	if copied, err := json.Marshal(at); err == nil { // rewrite changes lists in place
		return decode(copied)
	}
	return map[string]any{}
}

// object returns the input schema of a tool with the properties.
func (s *schemas) object(properties map[string]any, required []string) json.RawMessage {
	root := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		root["required"] = required
	}
	if len(s.defs) > 0 {
		root["$defs"] = maps.Clone(s.defs)
	}
	text, err := json.Marshal(root)
	if err != nil { // a value of the document that JSON does not have
		return json.RawMessage(`{"type":"object"}`)
	}
	return text
}
