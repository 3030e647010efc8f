package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/proxy/schema"
	"junction/upstream/raw"
)

// TestLargeDocuments compares each tool of large documents with what the document says, as a reader
// of its own finds it. The documents are not part of this repository; the README says where they are
// from:
//
//	JUNCTION_OPENAPI=FOLDER go test ./cmd/pack/openapi -run LargeDocuments -v
//
// Without the variable it compares the small documents of this package.
func TestLargeDocuments(t *testing.T) {
	dir := "testdata"
	if given := os.Getenv("JUNCTION_OPENAPI"); given != "" {
		dir = given
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // a folder
		}
		var doc map[string]any
		if json.Unmarshal(text, &doc) != nil {
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatalf("%s: %v", e.Name(), err)
			}
		}
		if doc["openapi"] == nil {
			continue // a part of another document
		}
		t.Run(e.Name(), func(t *testing.T) { compareDocument(t, dir, e.Name(), reading{doc}) })
	}
}

func compareDocument(t *testing.T, dir, name string, doc reading) {
	api, err := load(t, dir, name, "base_url: https://api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	tools := map[string]*Operation{}
	for _, o := range api.Operations {
		tools[o.Method+" "+o.Path] = o
	}
	operations, compared, reduced := doc.operations(), 0, 0
	for _, at := range slices.Sorted(maps.Keys(operations)) {
		o, left := tools[at], slices.IndexFunc(api.Warnings, func(w string) bool {
			return strings.HasPrefix(w, at+" is left out: ")
		})
		switch {
		case o == nil && left < 0:
			t.Errorf("%s is no tool, and no warning says why", at)
		case o == nil:
			t.Logf("%s", api.Warnings[left])
		default:
			small := slices.ContainsFunc(api.Warnings, func(w string) bool {
				return strings.HasPrefix(w, "the body of "+o.Name+" has more than ")
			})
			if small {
				reduced++
			}
			for _, p := range doc.differences(operations[at], o, small) {
				t.Errorf("%s (%s): %s", at, o.Name, p)
			}
			compared++
		}
		delete(tools, at)
	}
	for at := range tools {
		t.Errorf("the tool %s is no operation of the document", at)
	}
	t.Logf("%d operations, %d compared, %d with a body that is too large for models", len(operations), compared, reduced)
}

// reading is a document as maps and lists.
type reading struct{ doc map[string]any }

// object follows the references of a value in the document; nil if they lead elsewhere.
func (r reading) object(v any) map[string]any {
	for range 20 {
		m, _ := v.(map[string]any)
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		pointer, local := strings.CutPrefix(ref, "#/")
		if !local {
			return nil
		}
		v = r.doc
		for part := range strings.SplitSeq(pointer, "/") {
			inner, _ := v.(map[string]any)
			v = inner[strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}").Replace(part)]
		}
	}
	return nil
}

// one is an operation, with the parameters of its path.
type one struct{ item, operation map[string]any }

// operations returns the operations by method and path.
func (r reading) operations() map[string]one {
	all := map[string]one{}
	paths, _ := r.doc["paths"].(map[string]any)
	for at, v := range paths {
		item := r.object(v)
		for _, method := range []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"} {
			if op, ok := item[method].(map[string]any); ok {
				all[strings.ToUpper(method)+" "+at] = one{item, op}
			}
		}
	}
	return all
}

// parameters returns the parameters by place and name.
func (r reading) parameters(o one) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, list := range []any{o.item["parameters"], o.operation["parameters"]} {
		values, _ := list.([]any)
		for _, v := range values {
			if p := r.object(v); p != nil {
				all[fmt.Sprintf("%v %v", p["in"], p["name"])] = p
			}
		}
	}
	return all
}

// differences returns how a tool differs from its operation. small says that its body is not
// described.
func (r reading) differences(o one, tool *Operation, small bool) (list []string) {
	bad := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	var input struct {
		Type       string
		Properties map[string]any
		Required   []string
		Defs       map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(tool.InputSchema, &input); err != nil || input.Type != "object" {
		bad("the input schema is %.80s: %v", tool.InputSchema, err)
		return list
	}
	definition := append(append([]byte(`{"inputSchema":`), tool.InputSchema...), '}')
	if _, err := new(schema.Validator).Check(context.Background(), definition, raw.Object{}, nil, nil); err != nil {
		bad("the input schema cannot be used: %v", err)
	}
	if id, ok := o.operation["operationId"].(string); ok && id != tool.ID {
		bad("the id is %s, want %s", tool.ID, id)
	}
	want := r.parameters(o)
	for _, p := range tool.params {
		at := p.in + " " + p.name
		theirs := want[at]
		if theirs == nil {
			bad("the argument %s is no parameter of the operation", p.key)
			continue
		}
		delete(want, at)
		required := theirs["required"] == true || p.in == "path"
		if slices.Contains(input.Required, p.key) != required {
			bad("the argument %s is required: %v, want %v", p.key, !required, required)
		}
		property := resolved(input.Properties[p.key], input.Defs)
		list = append(list, r.compareSchema(p.key, property, theirs["schema"])...)
	}
	for at := range want {
		if place, name, _ := strings.Cut(at, " "); place != "cookie" && !ignorable(place, name) {
			bad("the parameter %s is no argument", at)
		}
	}
	list = append(list, r.compareBody(o, tool, input.Properties, input.Defs, input.Required, small)...)
	if readOnly := tool.Annotations.ReadOnly != nil && *tool.Annotations.ReadOnly; readOnly !=
		slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, tool.Method) {
		bad("read-only is %v for %s", readOnly, tool.Method)
	}
	return list
}

// ignorable reports whether OpenAPI has a header in another place.
func ignorable(place, name string) bool {
	return place == "header" &&
		slices.Contains([]string{"accept", "content-type", "authorization", "cookie"}, strings.ToLower(name))
}

// compareSchema compares the type and the words of a simple schema.
func (r reading) compareSchema(key string, got map[string]any, theirs any) (list []string) {
	want := r.object(theirs)
	if want == nil {
		return nil
	}
	if kind, ok := want["type"].(string); ok && kind != "object" && kind != "file" && len(got) > 0 && want["nullable"] != true {
		if text := fmt.Sprint(got["type"]); text != kind && got["type"] != nil {
			list = append(list, fmt.Sprintf("the type of %s is %s, want %s", key, text, kind))
		}
	}
	words, _ := want["enum"].([]any)
	theWords, _ := got["enum"].([]any)
	if len(words) > 0 && want["nullable"] != true && fmt.Sprint(words) != fmt.Sprint(theWords) {
		list = append(list, fmt.Sprintf("the words of %s are %v, want %v", key, theWords, words))
	}
	return list
}

// resolved follows the references of an input schema.
func resolved(v any, defs map[string]any) map[string]any {
	m, _ := v.(map[string]any)
	for range 20 {
		if all, ok := m["allOf"].([]any); ok && len(all) == 1 && m["properties"] == nil {
			m, _ = all[0].(map[string]any)
		}
		ref, ok := m["$ref"].(string)
		if !ok {
			break
		}
		name := strings.TrimPrefix(ref, "#/$defs/")
		m, _ = defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)].(map[string]any)
	}
	return m
}

// compareBody compares the argument for the body.
func (r reading) compareBody(o one, tool *Operation, properties, defs map[string]any, required []string,
	small bool) (list []string) {
	theirs := r.object(o.operation["requestBody"])
	content, _ := theirs["content"].(map[string]any)
	if len(content) == 0 {
		if tool.body != nil {
			list = append(list, "has an argument for a body, which the operation has not")
		}
		return list
	}
	if tool.body == nil {
		return []string{"has no argument for the body"}
	}
	if got, want := slices.Contains(required, tool.body.key), theirs["required"] == true; got != want {
		list = append(list, fmt.Sprintf("the body is required: %v, want %v", got, want))
	}
	media, there := content["application/json"].(map[string]any)
	if !there || small {
		return list
	}
	want, _ := r.object(media["schema"])["properties"].(map[string]any)
	got, _ := resolved(properties[tool.body.key], defs)["properties"].(map[string]any)
	for name, v := range want {
		one := r.object(v)
		if _, there := got[name]; !there && len(got) > 0 && one["readOnly"] != true {
			list = append(list, fmt.Sprintf("the body has no member %s", name))
		}
	}
	return list
}
