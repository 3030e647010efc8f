package clients

import (
	"fmt"
	"strings"

	"junction/cmd/junction/desk/clients/format"
)

// inputList is the key of the inputs with which VS Code asks for values. It is beside the servers.
const inputList = "inputs"

// keyInput returns the input with which VS Code asks for the API key.
func keyInput(id string) format.Object {
	return format.Object{{Key: "type", Value: "promptString"}, {Key: "id", Value: id},
		{Key: "description", Value: "API key for Junction"}, {Key: "password", Value: true}}
}

// inputID returns the ID of the input for an entry of a name.
func inputID(name string) string { return name + "-key" }

// withInput returns a text with an input for the API key, and the ID of the input. An input of a person that
// hides what is typed is used as it is; one that does not is left alone. rec notes an input that is added.
func withInput(text []byte, name string, rec *Record) (out []byte, id string, err error) {
	items, present, err := format.JSON{}.Items(text, inputList)
	if err != nil {
		return nil, "", err
	}
	used := map[string]map[string]any{}
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			name, _ := m["id"].(string)
			used[name] = m
		}
	}
	id = inputID(name)
	for n := 2; used[id] != nil; n++ {
		if used[id]["type"] == "promptString" && used[id]["password"] == true {
			return text, id, nil
		}
		id = fmt.Sprintf("%s-%d", inputID(name), n)
	}
	out, err = format.JSON{}.AddItem(text, inputList, keyInput(id))
	rec.Input, rec.Inputs = id, !present
	return out, id, err
}

// withoutInput returns a text without the input that Connect has added, unless a server refers to it.
func (r *Record) withoutInput(text []byte) ([]byte, error) {
	if r.Input == "" || strings.Contains(string(text), "${input:"+r.Input+"}") {
		return text, nil
	}
	items, _, err := format.JSON{}.Items(text, inputList)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && m["id"] == r.Input {
			return format.JSON{}.RemoveItem(text, inputList, i, r.Inputs)
		}
	}
	return text, nil
}

// sameInputs reports whether the inputs of out are those of text without the one that Connect has added.
func (r *Record) sameInputs(text, out []byte) bool {
	if r.Input == "" {
		return true
	}
	was, _, err := format.JSON{}.Items(text, inputList)
	is, _, isErr := format.JSON{}.Items(out, inputList)
	if err != nil || isErr != nil || strings.Contains(string(out), "${input:"+r.Input+"}") {
		return false
	}
	var want []any
	for _, item := range was {
		if m, ok := item.(map[string]any); !ok || m["id"] != r.Input {
			want = append(want, item)
		}
	}
	return len(want) == 0 && len(is) == 0 || equalTrees(want, is)
}
