package yamledit

import (
	"bytes"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

var two = []Entry{
	{Block: "# from a client\nx:\n  command: [x, y]", Flow: "x: {command: [x, y]}"},
	{Block: "z:\n  url: u", Flow: "z: {url: u}"},
}

// TestAdd adds two entries to files of every layout.
func TestAdd(t *testing.T) {
	const block = "  # from a client\n  x:\n    command: [x, y]\n  z:\n    url: u\n"
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "upstreams:\n" + block},
		{"comments", "# mine\n", "# mine\n\nupstreams:\n" + block},
		{"no section", "listen: a # b", "listen: a # b\n\nupstreams:\n" + block},
		{"the last section", "upstreams:\n  a: { command: [a] } # a\n", "upstreams:\n  a: { command: [a] } # a\n" + block},
		{"no newline at the end", "upstreams:\n  a: {}", "upstreams:\n  a: {}\n" + block},
		{"a section between others", "upstreams:\n  a:\n    command: [a]\n  # end of them\n\n# Where to listen.\nlisten: b\n",
			"upstreams:\n  a:\n    command: [a]\n  # end of them\n" + block + "\n# Where to listen.\nlisten: b\n"},
		{"other indentation", "upstreams:\n      a: {}\nlisten: b\n",
			"upstreams:\n      a: {}\n      # from a client\n      x:\n        command: [x, y]\n" +
				"      z:\n        url: u\nlisten: b\n"},
		{"an empty section", "upstreams: # none\n  # yet\nlisten: b\n",
			"upstreams: # none\n  # yet\n" + block + "listen: b\n"},
		{"null", "upstreams: ~ # none\nlisten: b\n", "upstreams:   # none\n" + block + "listen: b\n"},
		{"flow", "upstreams: { a: { command: [a] } } # b\n",
			"upstreams: { x: {command: [x, y]}, z: {url: u}, a: { command: [a] } } # b\n"},
		{"empty flow", "upstreams: {}\n", "upstreams:\n" + block},
		{"empty flow with a comment", "upstreams: { } # none\n  # yet\nlisten: b\n",
			"upstreams: # none\n  # yet\n" + block + "listen: b\n"},
		{"empty flow of two lines", "upstreams: {\n}\n", "upstreams: { x: {command: [x, y]}, z: {url: u} \n}\n"},
		{"empty flow in flow", "{ upstreams: {} }", "{ upstreams: { x: {command: [x, y]}, z: {url: u} } }"},
		{"all flow", "{ listen: é, upstreams: {a: {}} }",
			"{ listen: é, upstreams: { x: {command: [x, y]}, z: {url: u},a: {}} }"},
		{"CRLF", "upstreams:\r\n  a: {}\r\nlisten: b\r\n",
			strings.ReplaceAll("upstreams:\n  a: {}\n"+block+"listen: b\n", "\n", "\r\n")},
		{"an end of the document", "---\nupstreams:\n  a: {}\n...\n", "---\nupstreams:\n  a: {}\n" + block + "...\n"},
		{"a text that looks like an end", "upstreams:\n  a:\n    dir: |\n      # not a comment\nlisten: b\n",
			"upstreams:\n  a:\n    dir: |\n      # not a comment\n" + block + "listen: b\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Add([]byte(test.text), "upstreams", two)
			if err != nil {
				t.Fatal(err)
			}
			var tree map[string]any
			if err := yaml.Unmarshal(got, &tree); err != nil {
				t.Errorf("the result is no YAML: %v", err)
			}
			if string(got) != test.want {
				t.Errorf("Add gives\n%s\nwant\n%s", got, test.want)
			}
			if section, _ := tree["upstreams"].(map[string]any); section["x"] == nil || section["z"] == nil {
				t.Errorf("the section is %v", section)
			}
		})
	}
	for _, text := range []string{"[]", "a: [", "{ a: b }", "b: &x {}\nupstreams: *x\n", "upstreams: [a]\n"} {
		if out, err := Add([]byte(text), "upstreams", two); err == nil {
			t.Errorf("Add(%q) = %s; want an error", text, out)
		}
	}
}

// FuzzAdd: no text makes it panic, and what the text had it still has, byte for byte and in order.
func FuzzAdd(f *testing.F) {
	for _, text := range []string{
		"", "upstreams: {}", "upstreams:\n  a: {}\n\n# c\nb: 1\n", "upstreams:\n",
		"\xef\xbb\xbfupstreams: ~", "a: &b\n  c: d\n...\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		out, err := Add(text, "upstreams", two)
		if !bytes.Equal(text, before) {
			t.Fatal("the text was changed in place")
		}
		if err == nil && len(out) <= len(text) {
			t.Fatalf("Add(%q) = %q", text, out)
		}
	})
}
