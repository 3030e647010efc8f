package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/upstream"
)

// TestDocumentsHaveTheKeysOfPrograms: a key of auth with the tag secret takes a program, and is named where the keys
// are listed.
func TestDocumentsHaveTheKeysOfPrograms(t *testing.T) {
	want := programKeys()
	for _, file := range []string{"auth/README.md", "CHANGELOG.md", "config.example.yaml", "upstream/config.go", "upstream/doc.go"} {
		text, err := os.ReadFile("../../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		plain := strings.NewReplacer("`", "", "//", "", "#", "").Replace(string(text))
		if !strings.Contains(strings.Join(strings.Fields(plain), " "), want) {
			t.Errorf("%s does not say that a program can stand in %s", file, want)
		}
	}
}

// TestProgramOfASecret: the file names programs only where a secret belongs. What a program has printed is not read
// again, and no message has it.
func TestProgramOfASecret(t *testing.T) {
	printed := func(name string, command []string) (string, string) {
		switch command[0] {
		case "op":
			return "canary-${HOME}${exec: [rm]}", ""
		case "wrong":
			return "canary-two\nlines", ""
		}
		return "", "the program " + command[0] + " printed nothing"
	}
	header := func(value string) string {
		return "upstreams:\n  a: { url: \"https://a.example/mcp\", headers: { X-Key: '" + value + "' } }\n" +
			"  b: { command: [cat] }\n"
	}
	for _, tt := range []struct{ name, text, want, problem string }{
		{name: "whole", text: header(`${exec: [op, read, "op://v/i/f"]}`), want: "canary-${HOME}${exec: [rm]}"},
		{name: "a part, and braces in quotes", text: header(`Bearer ${exec: [op, "{{.a}}", "b}"]}!`),
			want: "Bearer canary-${HOME}${exec: [rm]}!"},
		{name: "fails", text: header(`${exec: [none]}`), problem: "the program none printed nothing"},
		{name: "no value of a header", text: header(`${exec: [wrong]}`), problem: "has a line break in its value"},
		{name: "no list", text: header(`${exec: op read}`), problem: "needs a program and its arguments as a list"},
		{name: "empty", text: header(`${exec: []}`), problem: "needs a program and its arguments as a list"},
		{name: "another reference", text: header(`${exec: [op, "${HOME}"]}`), problem: "has another reference in it"},
		{name: "a relative path", text: header(`${exec: [./op]}`), problem: "must name a program in PATH"},
		{name: "not closed", text: header(`${exec: [op, "}]`), problem: "has a ${ without its }"},
		{name: "a command", text: "upstreams: { a: { command: ['${exec: [op]}'] } }\n", problem: "is possible only in"},
		{name: "a url", text: "upstreams: { a: { url: 'https://a.example/${exec: [op]}' } }\n",
			problem: "is possible only in"},
		{name: "another section", text: "listen: '${exec: [op]}'\nupstreams: { a: { command: [cat] } }\n",
			problem: "is possible only in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, d := parse("config.yaml", []byte(tt.text), environment(map[string]string{"HOME": "/home"}), printed)
			if len(d.Problems) > 1 || (len(d.Problems) == 0) != (tt.problem == "") ||
				tt.problem != "" && !strings.Contains(d.Problems.Error(), tt.problem) {
				t.Fatalf("the mistakes are %v, want %q", d.Problems, tt.problem)
			}
			if strings.Contains(d.Problems.Error(), "canary") {
				t.Errorf("a message has the secret: %v", d.Problems)
			}
			if tt.problem == "" && c.Upstreams["a"].Headers["X-Key"] != tt.want {
				t.Errorf("the header is %q, want %q", c.Upstreams["a"].Headers["X-Key"], tt.want)
			}
		})
	}
}

// TestWhereASecretIsKept: each source of a secret has its words, without the value. A default is in the file itself,
// and a variable in the place of something else is no secret.
func TestWhereASecretIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("canary-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, d := parse("config.yaml", []byte(`
upstreams:
  a: { url: "https://${HOST}/mcp", headers: { A: "Bearer ${TOKEN}", B: "${file:`+file+`}", C: "${exec: [/bin/op, read, canary-path]}",
       D: literal, E: "${NONE:-canary-default}" } }
`), environment(map[string]string{"TOKEN": "canary-variable", "HOST": "a.example"}), nil)
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	got := map[string]string{}
	for _, o := range c.Origins["a"] {
		got[o.Key] = o.From()
	}
	want := map[string]string{"headers.A": "the environment variable TOKEN", "headers.B": "the file " + file,
		"headers.C": "the program op"}
	if !maps.Equal(got, want) {
		t.Errorf("the secrets are kept in %v, want %v", got, want)
	}
}

// TestProgramsAreNotRunToReadAFile: without what programs have printed, a constant word stands for the secret, and the
// configuration lists the programs.
func TestProgramsAreNotRunToReadAFile(t *testing.T) {
	text := `
upstreams:
  a: { url: "https://a.example/mcp", exec: { every: 5m, inherit_env: [VAULT_ADDR] },
       auth: { mode: client_credentials, client_id: j, issuer: "https://i.example", client_secret: "${exec: [vault, get]}" } }
  b: { command: [cat], env: { TOKEN: "${exec: [op, read]}", SAME: "${exec: [op, read]}" } }
  off: { command: [cat], enabled: false, env: { TOKEN: "${exec: [op, read]}" } }
`
	c, d := parse("config.yaml", []byte(text), environment(nil), nil)
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	a, b := c.Origins["a"], c.Origins["b"]
	if len(c.Origins) != 2 || len(a) != 1 || a[0].Key != "auth.client_secret" || len(b) != 2 ||
		!slices.Equal(b[1].Program, []string{"op", "read"}) {
		t.Errorf("the programs are %+v", c.Origins)
	}
	if c.Upstreams["a"].Auth.ClientSecret != unprinted || c.Upstreams["b"].Env["TOKEN"] != unprinted {
		t.Errorf("the entries have %q and %q", c.Upstreams["a"].Auth.ClientSecret, c.Upstreams["b"].Env["TOKEN"])
	}
}

// TestMembersCompareNoSecretOfAProgram: two members with the same file agree, whatever their programs have printed.
func TestMembersCompareNoSecretOfAProgram(t *testing.T) {
	text := "upstreams: { a: { command: [cat], env: { TOKEN: '${exec: [op]}' } } }\n"
	shared := func(text, secret string) string {
		c, d := parse("config.yaml", []byte(text), environment(nil),
			func(string, []string) (string, string) { return secret, "" })
		if len(d.Problems) > 0 {
			t.Fatal(d.Problems)
		}
		s, err := c.Shared([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if one, other := shared(text, "canary-one"), shared(text, "canary-two"); one != other {
		t.Errorf("the members differ:\n%s\n%s", one, other)
	}
	if one, other := shared(text, "canary-one"), shared(strings.Replace(text, "op", "pass", 1), "canary-one"); one == other {
		t.Error("another program makes no difference between members")
	}
}

// TestProgramOfASecretDecides: a confined command may not change a program that Junction runs for a secret.
func TestProgramOfASecretDecides(t *testing.T) {
	dir := t.TempDir()
	text := "upstreams:\n  box: { command: [cat], sandbox: { write: [" + dir + "], require: true } }\n" +
		"  a: { command: [cat], env: { TOKEN: '${exec: [" + dir + "/op]}' } }\n"
	_, d := parse("/elsewhere/config.yaml", []byte(text), environment(nil), nil)
	if !strings.Contains(d.Problems.Error(), "the program of upstreams.a.env.TOKEN") {
		t.Errorf("the mistakes are %v", d.Problems)
	}
}

// TestExecSection: each key has its bounds, and variables are named one by one.
func TestExecSection(t *testing.T) {
	for entry, want := range map[string]string{
		"every: 59s": "must be between 1m and 24h", "every: 25h": "must be between 1m and 24h", "every: 1m": "",
		"inherit_env: [AWS_*]": "is no name of a variable", "inherit_env: [AWS_PROFILE]": "",
	} {
		text := "upstreams: { a: { command: [cat], exec: { " + entry + " } } }\n"
		_, d := parse("config.yaml", []byte(text), environment(nil), nil)
		if (len(d.Problems) == 0) != (want == "") || !strings.Contains(d.Problems.Error(), want) {
			t.Errorf("%s: %v, want %q", entry, d.Problems, want)
		}
	}
	var e upstream.Exec
	if e.Interval().Minutes() != 15 {
		t.Errorf("the default of every is %v", e.Interval())
	}
}
