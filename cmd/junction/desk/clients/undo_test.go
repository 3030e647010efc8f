package clients

import (
	"bytes"
	"strings"
	"testing"

	"junction/cmd/junction/desk/clients/format"
)

// TestUndo takes changes back, also where the text has changed before them, and refuses to guess.
func TestUndo(t *testing.T) {
	block := strings.Repeat("same ", 20)
	for _, test := range []struct{ name, before, after, now, want string }{
		{"nothing else", "abc", "axc", "axc", "abc"},
		{"text before it", "abc", "axc", "-axc", "-abc"},
		{"text after it", "abc", "axc", "axc-", "abc-"},
		{"whole characters", "é", "è", "-è", "-é"},
		{"a place that is like others", block + "x" + block, block + block, block + block, block + "x" + block},
		{"an uncertain place", block + "x" + block, block + block, "-" + block + block, ""},
		{"gone", "abc", "axc", "ayc", ""},
		{"several times", "b", "x", "x.x", "b.x"},
	} {
		got, ok := diff([]byte(test.before), []byte(test.after)).undo([]byte(test.now))
		if string(got) != test.want || ok != (test.want != "") {
			t.Errorf("%s: undo = %q, %v; want %q", test.name, got, ok, test.want)
		}
	}
}

// FuzzUndoOfEdits: a server that was added to a text of any format is taken back byte for byte.
func FuzzUndoOfEdits(f *testing.F) {
	for _, text := range []string{
		"", " ", "{}", "{\n  // c\n  \"s\": {\n    \"a\": {}, // b\n  },\n}\n",
		"\xef\xbb\xbf{\r\n\t\"s\": { /* c */ }\r\n}", `{"x": [1, 2.50, "\u00e9", null,], "s": {"a": {}}}`,
		"a = 1", "# c\n\n[s.a]\ncommand = 'x' # d\n", "\xef\xbb\xbf[s]\r\na.command = 'x'\r\n",
		"a: é # c\ns:\n  b:\n    cmd: x\n\n# end\n", "s: {a: {cmd: x}}", "s: ~\nb: 1",
	} {
		f.Add([]byte(text))
	}
	entry := format.Object{{Key: "url", Value: "http://127.0.0.1/mcp"}, {Key: "headers", Value: format.Object{
		{Key: "Authorization", Value: "Bearer ${KEY}"}}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, of := range []format.Format{format.JSON{}, format.TOML{}, format.YAML{}} {
			added, err := of.Add(text, []string{"s"}, "junction", entry)
			if err != nil {
				continue
			}
			if back, ok := diff(text, added).undo(added); !ok || !bytes.Equal(back, text) {
				t.Fatalf("undo gives %v\n%q\nwant\n%q", ok, back, text)
			}
		}
	})
}
