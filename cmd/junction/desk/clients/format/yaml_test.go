package format

import (
	"fmt"
	"strings"
	"testing"
)

// TestAddServerToYAML puts a server into files of every layout, and takes it out again.
func TestAddServerToYAML(t *testing.T) {
	const entry = "junction:\n    url: \"http://127.0.0.1:8420/mcp\"\n    headers:\n      Authorization: \"Bearer ${KEY}\"\n"
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "s:\n  " + entry},
		{"no servers", "a: 1 # mine\n", "a: 1 # mine\n\ns:\n  " + entry},
		{"one server", "s:\n  a:\n    cmd: x # c\n\n# the end\nb: 1\n",
			"s:\n  a:\n    cmd: x # c\n  " + entry + "\n# the end\nb: 1\n"},
		{"CRLF and a byte order mark", byteOrderMark + "s:\r\n  a:\r\n    cmd: x\r\n",
			byteOrderMark + "s:\r\n  a:\r\n    cmd: x\r\n  " + strings.ReplaceAll(entry, "\n", "\r\n")},
		{"one line", "s: {a: {cmd: x}}\n", "s: { \"junction\": {\"headers\":{\"Authorization\":\"Bearer ${KEY}\"}," +
			"\"url\":\"http://127.0.0.1:8420/mcp\"},a: {cmd: x}}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := YAML{}.Add([]byte(test.text), []string{"s"}, "junction", testEntry)
			if err != nil || string(got) != test.want {
				t.Fatalf("Add = %v\n%s\nwant\n%s", err, got, test.want)
			}
			out, err := YAML{}.Remove(got, []string{"s"}, "junction")
			if hasOther := strings.Contains(test.text, "s:"); hasOther && (err != nil ||
				strings.ReplaceAll(string(out), " ", "") != strings.ReplaceAll(test.text, " ", "")) {
				t.Errorf("Remove = %v\n%s\nwant what it was before:\n%s", err, out, test.text)
			}
		})
	}
}

// TestYAMLServers reads servers in the order of the file, with the lines of their names, and puts one
// back as it was written.
func TestYAMLServers(t *testing.T) {
	const text = "x: &x {cmd: a}\ns:\n  # the first\n  b:\n    cmd: b # c\n    # d\n    args: [1, two, true]\n\n" +
		"  a: *x\n  1: {cmd: c}\n  c: text\n"
	servers, err := YAML{}.Servers([]byte(text), []string{"s"})
	const want = "[{b 4 map[args:[1 two true] cmd:b]} {a 9 map[cmd:a]} {1 10 map[cmd:c]} {c 11 map[]}]"
	if got := fmt.Sprint(servers); err != nil || got != want {
		t.Fatalf("Servers = %v\n%s\nwant\n%s", err, got, want)
	}
	block := YAML{}.Block([]byte(text), []string{"s"}, servers[0])
	if want := "b:\n  cmd: b # c\n  # d\n  args: [1, two, true]"; block != want {
		t.Errorf("Block = %q; want %q", block, want)
	}
	out, err := YAML{}.Restore([]byte("s:\n    a: {}\n"), []string{"s"}, "b", block)
	if want := "s:\n    a: {}\n    b:\n      cmd: b # c\n      # d\n      args: [1, two, true]\n"; err != nil || string(out) != want {
		t.Errorf("Restore = %v\n%s\nwant\n%s", err, out, want)
	}
	if block := (YAML{}).Block([]byte(text), []string{"s"}, servers[2]); block != "1: {cmd: c}" {
		t.Errorf("Block of a server on one line = %q", block)
	}
}

// TestBrokenYAML: a file that cannot be parsed, or that would need too much memory, is neither read
// nor edited, and the error has the line.
func TestBrokenYAML(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	for _, test := range []struct {
		name, text string
		line       int
		want       string
	}{
		{"not YAML", "a: 1\ns: {\n", 0, "is not YAML: "},
		{"a key twice", "a: 1\ns:\n  b: 1\n  b: 2\n", 4, "is not YAML: "},
		{"not UTF-8", "a: '\xff'", 1, "is not UTF-8 text"},
		{"a list", "- a\n", 0, "has no mapping at the root"},
		{"servers in a list", "s: []\n", 0, "has no mapping at s"},
		{"aliases of aliases", bomb + "s: {}\n", 0, "is not YAML: document contains excessive aliasing"},
		{"large", "# " + strings.Repeat("x", maxYAML), 0, "is larger than 1 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := YAML{}.Servers([]byte(test.text), []string{"s"})
			syntax, ok := err.(*SyntaxError)
			if !ok || !strings.HasPrefix(err.Error(), test.want) || test.line > 0 && syntax.Line != test.line {
				t.Errorf("Servers = %v; want %q at line %d", err, test.want, test.line)
			}
			if out, err := (YAML{}).Add([]byte(test.text), []string{"s"}, "x", testEntry); err == nil {
				t.Errorf("Add = %.100s; want an error", out)
			}
		})
	}
}

func FuzzYAMLEdit(f *testing.F) {
	for _, text := range []string{
		"", "a: 1", "mcpServers:\n  a:\n    cmd: x # c\n  # d\n  b: {}\n# e\n", "mcpServers: {a: {}, b: 1}",
		byteOrderMark + "mcpServers:\r\n  a: |\r\n    x\r\n", "mcpServers: ~\nb: &x [1]\nc: *x\n", "---\na: 1\n...\n",
		"mcpServers:\n  1: {}\n  junction: 1\n", "x: &x {a: 1}\nmcpServers:\n  <<: *x\n  b: 2020-01-01\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkEdit(t, YAML{}, text) })
}
