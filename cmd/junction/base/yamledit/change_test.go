package yamledit

import (
	"bytes"
	"errors"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestRemove removes b from files of every layout.
func TestRemove(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"between others", "u:\n  a: { c: [a] }\n  b: { c: [b] }\n  d: {}\n", "u:\n  a: { c: [a] }\n  d: {}\n"},
		{"with its comment", "u:\n  a: {} # a\n  # b's\n  b:\n    c: [b]\n    # of b\n  # d's\n  d: {}\n",
			"u:\n  a: {} # a\n  # d's\n  d: {}\n"},
		{"the first", "u:\n  b:\n    c: 1\n\n  # a's\n  a: {}\n", "u:\n\n  # a's\n  a: {}\n"},
		{"the last", "u:\n  a: {}\n\n  # b's\n  b:\n    c: 1\n\n# after\nl: x\n", "u:\n  a: {}\n\n# after\nl: x\n"},
		{"at the end", "u:\n  a: {}\n  b: {}", "u:\n  a: {}\n"},
		{"a comment at the end", "u:\n  a: {}\n  b: {}\n  # the end\nl: x\n", "u:\n  a: {}\n  # the end\nl: x\n"},
		{"before the end of the document", "u:\n  a: {}\n  b:\n    c: 1\n...\n", "u:\n  a: {}\n...\n"},
		{"several lines in brackets", "u:\n  b: {\n    c: [x,\n  y]\n  }\n  a: {}\n", "u:\n  a: {}\n"},
		{"a text with a comment in it", "u:\n  b:\n    c: |\n      # text\n\n      more\n  a: {}\n", "u:\n  a: {}\n"},
		{"CRLF", "u:\r\n  a: {}\r\n  b:\r\n    c: 1\r\nl: x\r\n", "u:\r\n  a: {}\r\nl: x\r\n"},
		{"flow", "u: { a: {c: 1}, b: { c: 'x, }', d: \"\\\"}\" }, e: {} } # f\n", "u: { a: {c: 1}, e: {} } # f\n"},
		{"quotes in flow", "u: { b: 'it''s, a', a: 1 }\n", "u: { a: 1 }\n"},
		{"the last in flow", "u: { a: {c: 1}, b: { c: [1, 2] } } # f\n", "u: { a: {c: 1} } # f\n"},
		{"the first in flow", "{ é: 1, u: { b: it's, a: {} } }", "{ é: 1, u: { a: {} } }"},
		{"flow with comments", "u: {\n  a: 1, # a }\n  b: 2 # b, }\n}\n", "u: {\n  a: 1, # a }\n  \n}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Remove([]byte(test.text), "u", "b")
			if err != nil {
				t.Fatal(err)
			}
			var tree struct{ U map[string]any }
			if err := yaml.Unmarshal(got, &tree); err != nil || tree.U["a"] == nil || tree.U["b"] != nil {
				t.Errorf("the section is %v (%v)", tree.U, err)
			}
			if string(got) != test.want {
				t.Errorf("Remove gives\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	for _, text := range []string{"", "[]", "u: [", "u: {}\n", "u:\n  a: 1\n", "u: &x\n  b: 1\n", "u: [b]\n", "x: &x { b: 1, c: 2 }\nu: *x\n"} {
		if out, err := Remove([]byte(text), "u", "b"); err == nil {
			t.Errorf("Remove(%q) = %q; want an error", text, out)
		}
	}
}

// TestRemoveTheOnlyKey: the section stays, as {}. A key that is added then makes the file what it was.
func TestRemoveTheOnlyKey(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"l: x\nu: # c\n  b:\n    c: 1\n\n# after\nm: x\n", "l: x\nu: {} # c\n\n# after\nm: x\n"},
		{"u:\n  b:\n    c: 1\n", "u: {}\n"},
		{"u:\r\n  b:\r\n    c: 1\r\nm: x\r\n", "u: {}\r\nm: x\r\n"},
		{"'u':\n  # b's\n  b: {}\n", "'u': {}\n"},
		{"u: { b: 1 }\n", "u: {  }\n"},
		{"{ l: x, u: { b: 1 } }\n", "{ l: x, u: {  } }\n"},
	} {
		got, err := Remove([]byte(test.text), "u", "b")
		if err != nil || string(got) != test.want {
			t.Errorf("Remove(%q) = %q, %v; want %q", test.text, got, err, test.want)
		}
		if !bytes.Contains([]byte(test.text), []byte("    c: 1")) {
			continue
		}
		again, err := Add(got, "u", []Entry{{Block: "b:\n  c: 1"}})
		if err != nil || string(again) != test.text {
			t.Errorf("Add(%q) = %q, %v; want %q", got, again, err, test.text)
		}
	}
}

// TestRemoveSection: a section goes without the comments around it, also if it is all there is.
func TestRemoveSection(t *testing.T) {
	for text, want := range map[string]string{
		"# l's\nl: x\n\n# u's\nu:\n  # a's\n  a: {}\n# the end\n": "# l's\nl: x\n\n# u's\n# the end\n",
		"u:\n  a: {}\nl: x\n":            "l: x\n",
		"# u's\nu: { a: 1, b: 2 } # u\n": "# u's\n",
		"{ l: x, u: { a: 1 } }":          "{ l: x }",
	} {
		if got, err := RemoveSection([]byte(text), "u"); err != nil || string(got) != want {
			t.Errorf("RemoveSection(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]error{"l: x\n": ErrNoKey, "": ErrNoKey, "{ u: { a: 1 } }": ErrOnlyKey} {
		if got, err := RemoveSection([]byte(text), "u"); !errors.Is(err, want) {
			t.Errorf("RemoveSection(%q) = %q, %v; want %v", text, got, err, want)
		}
	}
}

// TestSet switches an entry off and on again: the file becomes byte for byte what it was.
func TestSet(t *testing.T) {
	for _, test := range []struct{ name, text, off string }{
		{"block", "u:\n  a:\n    c: [a] # c\n    # of a\n\n  # b's\n  b: {}\n",
			"u:\n  a:\n    c: [a] # c\n    # of a\n    on: false\n\n  # b's\n  b: {}\n"},
		{"flow", "u:\n  a: { c: [a] } # a\n", "u:\n  a: { on: false, c: [a] } # a\n"},
		{"at the end", "u:\n    a:\n          c: 1\n", "u:\n    a:\n          c: 1\n          on: false\n"},
		{"CRLF", "u:\r\n  a:\r\n    c: 1\r\n", "u:\r\n  a:\r\n    c: 1\r\n    on: false\r\n"},
		{"all flow", `{"u": {"a": {"c": 1}}}`, `{"u": {"a": { on: false,"c": 1}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			off, err := Set([]byte(test.text), "u", "a", "on", "false")
			if err != nil || string(off) != test.off {
				t.Fatalf("Set gives %v\n%s\nwant\n%s", err, off, test.off)
			}
			on, err := Unset(off, "u", "a", "on")
			on = bytes.Replace(on, []byte(`{ "c"`), []byte(`{"c"`), 1) // one space stays
			if err != nil || string(on) != test.text {
				t.Errorf("Unset gives %v\n%s\nwant\n%s", err, on, test.text)
			}
		})
	}
	for text, want := range map[string]string{
		"u:\n  a: { on: false } # x\n":      "u:\n  a: { on: true } # x\n",
		"u:\n  a:\n    on: 'false' # x\n":   "u:\n  a:\n    on: true # x\n",
		"u:\n  a:\n    on: \"${ON}\" # x\n": "u:\n  a:\n    on: true # x\n",
	} {
		if got, err := Set([]byte(text), "u", "a", "on", "true"); err != nil || string(got) != want {
			t.Errorf("Set(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "u: {}\n", "u: { a: [1] }\n", "u:\n  a:\n    on: [1]\n", "x: &x { c: 1 }\nu: { a: *x }\n", "u:\n  a:\n    on:\n    c: 1\n"} {
		if out, err := Set([]byte(text), "u", "a", "on", "true"); err == nil {
			t.Errorf("Set(%q) = %q; want an error", text, out)
		}
	}
}

// FuzzChange: no text makes it panic or is changed in place.
func FuzzChange(f *testing.F) {
	for _, text := range []string{"", "u: { a: 1, b: 2 }", "u:\n  a: {}\n\n  # c\n  b: 1\n", "u: {a: \"", "u:\n  a: '", "u: {b: &x {}, a: *x}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		_, _ = Remove(text, "u", "a")
		_, _ = Set(text, "u", "a", "b", "true")
		_, _ = Unset(text, "u", "a", "b")
		if !bytes.Equal(text, before) {
			t.Fatal("the text was changed in place")
		}
	})
}
