package call

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
	"junction/upstream/shell"
	"maps"
	"slices"
	"strings"
)

// listedTool is a tool as an endpoint lists it.
type listedTool struct {
	raw                      json.RawMessage // the whole definition, as sent
	name, title, description string          // "" if missing or not a string
	schema                   json.RawMessage // the input schema; nil if missing
}

// newListedTool reads the parts of a definition that we print, and ignores invalid ones.
func newListedTool(raw json.RawMessage) listedTool {
	m := membersOf(raw)
	t := listedTool{raw: raw, name: stringOf(m["name"]), title: stringOf(m["title"]),
		description: stringOf(m["description"]), schema: m["inputSchema"]}
	if t.title == "" {
		t.title = stringOf(membersOf(m["annotations"])["title"])
	}
	return t
}

// membersOf returns the members of a JSON object, and nil for any other value.
func membersOf(object json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(object, &m) != nil {
		return nil
	}
	return m
}

// stringOf returns the value of a JSON string, and "" for any other value.
func stringOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// parseArguments reads KEY=VALUE words.
func parseArguments(words []string) (map[string]string, error) {
	given := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		switch _, twice := given[key]; {
		case !ok || key == "":
			return nil, cli.Usagef("%q is no argument; write KEY=VALUE, or all of them as --json '{...}'", word)
		case twice:
			return nil, cli.Usagef("the argument %s is given twice", key)
		}
		given[key] = value
	}
	return given, nil
}

// wholeArguments reads the value of --json.
func wholeArguments(value string, stdin io.Reader) (json.RawMessage, error) {
	from := "--json"
	if value == "-" {
		from = "the standard input"
		b, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("reading the arguments: %w", err)
		}
		value = string(b)
	}
	raw := json.RawMessage(value)
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		if json.Valid(raw) {
			return nil, cli.Usagef("%s is no JSON object but %s; write it like '{\"key\": \"value\"}'", from,
				articled(kindOf(raw)))
		}
		return nil, cli.Usagef("%s is no JSON: %w", from, err)
	}
	return raw, nil
}

// arguments returns the arguments object for the given words. A value is a string unless the input
// schema requires another type for its key. Numbers keep their digits as typed. config is the value of
// --config in a suggested command.
func (t listedTool) arguments(given map[string]string, config string) (json.RawMessage, error) {
	object := make(map[string]json.RawMessage, len(given))
	properties := membersOf(membersOf(t.schema)["properties"])
	for _, key := range t.required() {
		if _, ok := given[key]; !ok {
			return nil, fmt.Errorf("%s needs the argument %s, as %s=VALUE; run: %s", prose.Flat(t.name),
				prose.Quote(key), prose.Flat(key), shell.Junction(config, "tools", t.name))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		value, err := t.argument(properties[key], key, given[key])
		if err != nil {
			return nil, err
		}
		object[key] = value
	}
	return json.Marshal(object)
}

// required returns the names of the arguments that the input schema requires.
func (t listedTool) required() (names []string) {
	_ = json.Unmarshal(membersOf(t.schema)["required"], &names) // of the server; the server checks the arguments, too
	return names
}

func (t listedTool) argument(property json.RawMessage, key, word string) (json.RawMessage, error) {
	wanted := t.types(property)
	if len(wanted) == 0 || slices.Contains(wanted, "string") {
		return json.Marshal(word)
	}
	raw := json.RawMessage(strings.TrimSpace(word))
	if slices.ContainsFunc(wanted, func(kind string) bool { return isKind(raw, kind) }) {
		return raw, nil
	}
	names := make([]string, len(wanted))
	for i, kind := range wanted {
		names[i] = articled(kind)
	}
	return nil, cli.Usagef("the argument %s of %s is %s, not %q; write it like %s=%s", key, t.name,
		strings.Join(names, " or "), word, key, cmp.Or(examples[wanted[0]], "null"))
}

// types returns the JSON types that a schema of the tool allows: those of its parts. The result is nil if the types
// are unknown.
func (t listedTool) types(schema json.RawMessage) (types []string) {
	for _, m := range t.parts(schema, 0) {
		var several []string
		if one := stringOf(m["type"]); one != "" {
			types = append(types, one)
		} else if json.Unmarshal(m["type"], &several) == nil {
			types = append(types, several...)
		}
	}
	return types
}

// deepest bounds the parts of a schema that are looked at: references may form cycles.
const deepest = 8

// parts returns the members of a schema, of its alternatives (generated for optional values), and of the schemas
// within the input schema to which these refer.
func (t listedTool) parts(schema json.RawMessage, depth int) []map[string]json.RawMessage {
	if depth > deepest {
		return nil
	}
	m := membersOf(schema)
	all := []map[string]json.RawMessage{m}
	for _, choice := range []string{"anyOf", "oneOf", "allOf"} {
		var schemas []json.RawMessage
		if json.Unmarshal(m[choice], &schemas) != nil {
			continue
		}
		for _, s := range schemas {
			all = append(all, t.parts(s, depth+1)...)
		}
	}
	if pointer, ok := strings.CutPrefix(stringOf(m["$ref"]), "#/"); ok {
		at := t.schema
		for step := range strings.SplitSeq(pointer, "/") {
			at = membersOf(at)[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		}
		all = append(all, t.parts(at, depth+1)...)
	}
	return all
}

// shownTypes are types for people: an array has the types of its items, and an object in it has its keys.
func (t listedTool) shownTypes(schema json.RawMessage, depth int) []string {
	types := t.types(schema)
	at := slices.Index(types, "array")
	if at < 0 || depth > deepest {
		return types
	}
	for _, m := range t.parts(schema, 0) {
		if m["items"] == nil {
			continue
		}
		items := t.shownTypes(m["items"], depth+1)
		if object := slices.Index(items, "object"); object >= 0 {
			var keys []string
			for _, part := range t.parts(m["items"], 0) {
				keys = slices.AppendSeq(keys, maps.Keys(membersOf(part["properties"])))
			}
			if slices.Sort(keys); len(keys) > 0 {
				items[object] += " with " + strings.Join(keys, ", ")
			}
		}
		if len(items) > 0 {
			types[at] += " of " + strings.Join(items, " or ")
		}
		break
	}
	return types
}

// isKind reports whether raw is JSON of a JSON Schema type.
func isKind(raw json.RawMessage, kind string) bool {
	if !json.Valid(raw) {
		return false
	}
	is := kindOf(raw)
	return is == kind || is == "integer" && kind == "number"
}

// kindOf returns the JSON Schema type of valid JSON. A number written as an integer is an integer.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if bytes.ContainsAny(raw, ".eE") {
		return "number"
	}
	return "integer"
}

func articled(kind string) string {
	switch kind {
	case "null":
		return kind
	case "integer", "array", "object":
		return "an " + kind
	}
	return "a " + kind
}

// examples are a value of each kind, as typed in a shell.
var examples = map[string]string{"integer": "3", "number": "1.5", "boolean": "true", "null": "null",
	"array": `'["a", "b"]'`, "object": `'{"key": "value"}'`}
