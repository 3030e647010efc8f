package format

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var testEntry = Object{{"url", "http://127.0.0.1:8420/mcp"}, {"headers", Object{{"Authorization", "Bearer ${KEY}"}}}}

// TestAddServer puts a server into files of every layout.
func TestAddServer(t *testing.T) {
	const entry = "\"junction\": {\n      \"url\": \"http://127.0.0.1:8420/mcp\",\n      \"headers\": {\n" +
		"        \"Authorization\": \"Bearer ${KEY}\"\n      }\n    }"
	const oneLine = `"junction": {"url": "http://127.0.0.1:8420/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}`
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "{\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n"},
		{"an empty object", "{}\n", "{\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n"},
		{"no servers", "{\n  \"theme\": \"dark\" // mine\n}\n",
			"{\n  \"theme\": \"dark\", // mine\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n"},
		{"an empty list", "{\n  \"mcpServers\": {}\n}\n", "{\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n"},
		{"one server", "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {},\n    " + entry + "\n  }\n}\n"},
		{"a trailing comma and comments", "{\n  \"mcpServers\": {\n    \"a\": {}, // first\n    // the end\n  },\n}\n",
			"{\n  \"mcpServers\": {\n    \"a\": {}, // first\n    // the end\n    " + entry + ",\n  },\n}\n"},
		{"a comment without a comma", "{\n  \"mcpServers\": {\n    \"a\": {} /* first */ // and last\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"a\": {}, /* first */ // and last\n    " + entry + "\n  }\n}"},
		{"one line", `{"mcpServers": {"a": {}}}`, `{"mcpServers": {"a": {}, ` + oneLine + `}}`},
		{"one line with a trailing comma", `{"mcpServers": {"a": {},}}`, `{"mcpServers": {"a": {}, ` + oneLine + `,}}`},
		{"tabs", "{\n\t\"mcpServers\": {\n\t\t\"a\": {}\n\t}\n}\n",
			strings.ReplaceAll("{\n  \"mcpServers\": {\n    \"a\": {},\n    "+entry+"\n  }\n}\n", "  ", "\t")},
		{"CRLF and a byte order mark", byteOrderMark + "{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n",
			byteOrderMark + strings.ReplaceAll("{\n  \"mcpServers\": {\n    \"a\": {},\n    "+entry+"\n  }\n}\n", "\n", "\r\n")},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := JSON{}.Add([]byte(test.text), []string{"mcpServers"}, "junction", testEntry)
			if err != nil || string(got) != test.want {
				t.Fatalf("add = %v\n%s\nwant\n%s", err, got, test.want)
			}
			out, err := JSON{}.Remove(got, []string{"mcpServers"}, "junction")
			if err != nil {
				t.Fatalf("remove: %v", err)
			}
			if strings.Contains(test.text, `"a"`) && string(out) != test.text {
				t.Errorf("remove gives\n%s\nwant what it was before:\n%s", out, test.text)
			}
		})
	}
}

// TestRemoveServer takes servers out from between others.
func TestRemoveServer(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"first", "{\"s\": {\n  \"x\": 1,\n  \"b\": 2\n}}", "{\"s\": {\n  \"b\": 2\n}}"},
		{"middle", "{\"s\": {\n  \"a\": 1,\n  \"x\": 1, // x\n  \"b\": 2\n}}", "{\"s\": {\n  \"a\": 1, // x\n  \"b\": 2\n}}"},
		{"last", "{\"s\": {\n  \"a\": 1, // a\n  \"x\": 1\n}}", "{\"s\": {\n  \"a\": 1 // a\n}}"},
		{"only", "{\"s\": {\"x\": {}}}", "{\"s\": {}}"},
		{"after a comment on the line", "{\"s\": { // c\n  \"x\": 1}}", "{\"s\": { // c\n}}"},
		{"after a comment with slashes", "{\"s\": { /* // */ \"x\": 1, /* b */\n  \"b\": 2}}", "{\"s\": { /* // */ /* b */\n  \"b\": 2}}"},
		{"a comment before the comma", "{\"s\": {\"x\": 1 /* c */, \"b\": 2}}", "{\"s\": { /* c */ \"b\": 2}}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := JSON{}.Remove([]byte(test.text), []string{"s"}, "x")
			if err != nil || string(got) != test.want {
				t.Errorf("remove = %v\n%s\nwant\n%s", err, got, test.want)
			}
		})
	}
}

// TestBrokenFiles: a file that cannot be parsed is not edited, and the error has the line.
func TestBrokenFiles(t *testing.T) {
	for _, test := range []struct {
		name, text string
		format     Format
		line       int
		want       string
	}{
		{"cut off", "{\n  \"mcpServers\": {\n    \"a\": {", JSON{}, 3, "is not JSON: "},
		{"not JSON", "{\n  mcpServers: {}\n}", JSON{}, 2, "is not JSON: "},
		{"not UTF-8", "{\n\"a\": \"\xff\"}", JSON{}, 2, "is not UTF-8 text"},
		{"UTF-16", "\xff\xfe{\x00}\x00", JSON{}, 1, "is not UTF-8 text"},
		{"a list", "[]", JSON{}, 0, "has no object at the root"},
		{"servers in a list", `{"mcpServers": []}`, JSON{}, 0, "the value of mcpServers is not an object"},
		{"servers twice", `{"mcpServers": {}, "mcpServers": {}}`, JSON{}, 0, `has the key "mcpServers" twice`},
		{"deep", "{\"a\":\n" + strings.Repeat("[", 1e6), JSON{}, 2, "has more than 500 nested values"},
		{"TOML cut off", "a = 1\n[mcp_servers.a\n", TOML{}, 2, "is not TOML: "},
		{"TOML twice", "[a]\n[b]\n[a]\n", TOML{}, 3, "is not TOML: "},
		{"TOML deep", "a = " + strings.Repeat("[", 1e6), TOML{}, 1, "is not TOML: "},
		{"TOML long key", "\na" + strings.Repeat(".a", 1e4) + " = 1", TOML{}, 2, "has more than 500 nested values"},
		{"TOML not UTF-8", "a = '\xff'", TOML{}, 1, "is not UTF-8 text"},
		{"TOML list", "mcpServers = 1", TOML{}, 0, "has no table at mcpServers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.format.Servers([]byte(test.text), []string{"mcpServers"})
			syntax, ok := errors.AsType[*SyntaxError](err)
			if !ok || syntax.Line != test.line || !strings.Contains(err.Error(), test.want) {
				t.Errorf("servers: %v on line %d; want %q on line %d", err, syntax.Line, test.want, test.line)
			}
			if out, err := test.format.Add([]byte(test.text), []string{"mcpServers"}, "x", testEntry); err == nil {
				t.Errorf("add = %s; want an error", out)
			}
			if out, err := test.format.Remove([]byte(test.text), []string{"mcpServers"}, "x"); err == nil {
				t.Errorf("remove = %s; want an error", out)
			}
		})
	}
}

func FuzzJSONEdit(f *testing.F) {
	for _, text := range []string{
		"", " ", "{}", `{"mcpServers":{"a":{"command":"x"}}}`, `{"mcpServers":{"junction":1}}`,
		"{\n  // c\n  \"mcpServers\": {\n    \"a\": {}, // b\n  },\n}\n",
		byteOrderMark + "{\r\n\t\"mcpServers\": { /* c */ }\r\n}",
		`{"x": [1, 2.50, "é\u00e9", null,], "mcpServers": {"a": {}}}`,
		"{\"mcpServers\": { \"a\": 1 // c\n}}", `{"mcpServers":{"a":1}/**/}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkEdit(t, JSON{}, text) })
}

func FuzzTOMLEdit(f *testing.F) {
	for _, text := range []string{
		"", "a = 1", "a = nan\n", "[[mcpServers.a]]\n", "mcpServers = { a = { command = 'x' } }\n",
		"# c\n\n[mcpServers.a]\ncommand = 'x' # d\n\n# e\n[mcpServers.a.env]\nA = \"1\"\n\n" +
			"[b]\nc = \"\"\"\n# no\n\"\"\"\n",
		byteOrderMark + "[mcpServers]\r\na.command = 'x'\r\n",
		"[mcpServers.junction]\nurl='x'", "mcpServers.a.command = 'x'",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkEdit(t, TOML{}, text) })
}

// checkEdit adds a server, and takes each server out.
func checkEdit(t *testing.T, f Format, text []byte) {
	keys := []string{"mcpServers"}
	before := bytes.Clone(text)
	servers, err := f.Servers(text, keys)
	if err != nil && len(servers) > 0 {
		t.Fatalf("servers = %v and %v", servers, err)
	}
	for _, s := range servers {
		if out, err := f.Remove(text, keys, s.Name); err == nil {
			left, err := f.Servers(out, keys)
			if err != nil || len(left) != len(servers)-1 {
				t.Fatalf("without %q: %v, %d servers are left of %d\n%s", s.Name, err, len(left), len(servers), out)
			}
		}
	}
	if out, err := f.Add(text, keys, "junction", testEntry); err == nil {
		all, err := f.Servers(out, keys)
		isLast := err == nil && all[len(all)-1].Name == "junction"
		if err != nil || !isLast && f == Format(JSON{}) {
			t.Fatalf("added: %v\n%s", err, out)
		}
	}
	if !bytes.Equal(text, before) {
		t.Fatalf("the text was changed in place")
	}
}
