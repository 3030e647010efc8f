package format

import (
	"strings"
	"testing"
)

var testItem = Object{{"type", "promptString"}, {"id", "x"}, {"password", true}}

// TestItemsComeAndGo puts an item into the list of a file of each layout, and takes it out again. The
// file is then byte for byte what it was.
func TestItemsComeAndGo(t *testing.T) {
	const item = "{\n      \"type\": \"promptString\",\n      \"id\": \"x\",\n      \"password\": true\n    }"
	const flat = `{"type": "promptString", "id": "x", "password": true}`
	servers := "{\n  \"servers\": {\n    \"a\": {}\n  }"
	for _, test := range []struct{ name, text, want string }{
		{"no list", servers + "\n}\n", servers + ",\n  \"inputs\": [\n    " + item + "\n  ]\n}\n"},
		{"no list and a trailing comma", servers + ", // a\n}\n",
			servers + ", // a\n  \"inputs\": [\n    " + item + "\n  ],\n}\n"},
		{"no list on one line", `{"servers": {"a": {}}}`, `{"servers": {"a": {}}, "inputs": [` + flat + `]}`},
		{"another item", servers + ",\n  \"inputs\": [\n    {\"id\": \"b\"} // mine\n  ]\n}\n",
			servers + ",\n  \"inputs\": [\n    {\"id\": \"b\"}, // mine\n    " + item + "\n  ]\n}\n"},
		{"another item on one line", `{"inputs": [{"id": "b"}], "servers": {"a": {}}}`,
			`{"inputs": [{"id": "b"}, ` + flat + `], "servers": {"a": {}}}`},
		{"tabs and a comma at the end", "{\n\t\"inputs\": [\n\t\t{\"id\": \"b\"},\n\t],\n}\n",
			"{\n\t\"inputs\": [\n\t\t{\"id\": \"b\"},\n\t\t" + strings.ReplaceAll(item, "  ", "\t") + ",\n\t],\n}\n"},
		{"CRLF and a byte order mark", byteOrderMark + strings.ReplaceAll(servers+"\n}\n", "\n", "\r\n"),
			byteOrderMark + strings.ReplaceAll(servers+",\n  \"inputs\": [\n    "+item+"\n  ]\n}\n", "\n", "\r\n")},
		{"an item that is no object", `{"inputs": ["b"]}`, `{"inputs": ["b", ` + flat + `]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, had, err := JSON{}.Items([]byte(test.text), "inputs")
			if err != nil {
				t.Fatal(err)
			}
			got, err := JSON{}.AddItem([]byte(test.text), "inputs", testItem)
			if err != nil || string(got) != test.want {
				t.Fatalf("AddItem = %v\n%s\nwant\n%s", err, got, test.want)
			}
			out, err := JSON{}.RemoveItem(got, "inputs", len(before), !had)
			if err != nil || string(out) != test.text {
				t.Errorf("RemoveItem = %v\n%s\nwant what it was before:\n%s", err, out, test.text)
			}
		})
	}
}

// TestAnEmptyListStays: the list is removed with its last item only where the caller says so.
func TestAnEmptyListStays(t *testing.T) {
	const text = `{"inputs": [{"id": "x"}], "n": 1e400}`
	for _, test := range []struct {
		whole bool
		want  string
	}{{false, `{"inputs": [], "n": 1e400}`}, {true, `{ "n": 1e400}`}} {
		out, err := JSON{}.RemoveItem([]byte(text), "inputs", 0, test.whole)
		if err != nil || string(out) != test.want {
			t.Errorf("RemoveItem(%t) = %s, %v; want %s", test.whole, out, err, test.want)
		}
	}
}

// TestListsThatAreNone: a value that is no list, a key that occurs twice, and an item that does not exist
// are errors, and nothing is written.
func TestListsThatAreNone(t *testing.T) {
	for _, text := range []string{`{"inputs": {}}`, `{"inputs": null}`, `[]`, `{"inputs": [], "inputs": []}`, `{"inputs": [}`} {
		if out, err := (JSON{}).AddItem([]byte(text), "inputs", testItem); err == nil {
			t.Errorf("AddItem(%s) = %s; want an error", text, out)
		}
	}
	for _, i := range []int{-1, 1} {
		if out, err := (JSON{}).RemoveItem([]byte(`{"inputs": [{}]}`), "inputs", i, false); err == nil {
			t.Errorf("RemoveItem(%d) = %s; want an error", i, out)
		}
	}
}
