package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"junction/upstream"
)

// TestOneBadEntryBlocksItself: mistakes within the entries of upstreams block these upstreams, and
// the others are served. Mistakes elsewhere stop the start, and show those of upstreams too.
func TestOneBadEntryBlocksItself(t *testing.T) {
	const good = "  good: { command: [junction, demo] }\n"
	for _, test := range []struct {
		name, text string
		blocked    map[string]string // parts of the reasons
		fails      string
	}{
		{"an unset variable", "upstreams:\n" + good + "  bad: { command: [junction, demo], env: { TOKEN: \"${NOT_SET}\" } }\n",
			map[string]string{"bad": "config.yaml:3: upstreams.bad.env.TOKEN: the environment variable NOT_SET is not set; set it where junction starts and restart it, or write ${NOT_SET:-default}, or run junction setup --config "}, ""},
		{"a bad header", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", headers: { \"a b\": c } }\n", map[string]string{"bad": "upstreams.bad.headers"}, ""},
		{"a bad variable", "upstreams:\n" + good + "  bad: { command: [junction, demo], env: { A: [b] } }\n", map[string]string{"bad": "upstreams.bad.env"}, ""},
		{"a certificate without its key", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", tls: { cert_file: /c.pem } }\n", map[string]string{"bad": "upstreams.bad.tls"}, ""},
		{"a bad mode", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", auth: { mode: magic } }\n", map[string]string{"bad": "upstreams.bad.auth.mode"}, ""},
		{"a bad value of a key of auth", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", auth: { mode: oauth, issuer: \"http://login.example\" } }\n", map[string]string{"bad": "upstreams.bad.auth.issuer"}, ""},
		{"a missing key of auth", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", auth: { mode: client_credentials } }\n", map[string]string{"bad": "upstreams.bad.auth"}, ""},
		{"a misspelled key beside headers", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", headers_more: { A: b } }\n", map[string]string{"bad": "upstreams.bad.headers_more"}, ""},
		{"a missing file", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", headers: { A: \"${file:/no/such}\" } }\n", map[string]string{"bad": "cannot read the file"}, ""},
		{"several mistakes", "upstreams:\n" + good + "  bad: { url: \"${A}\", headers: { A: \"${B}\" }, colour: red }\n", map[string]string{"bad": "and 2 mistakes more; run: junction check --config"}, ""},
		{"no mapping", "upstreams:\n" + good + "  bad: [junction, demo]\n", nil, "upstreams.bad"},
		{"all of them", "upstreams:\n  bad: { url: \"${A}\" }\n  worse: { url: \"${B}\" }\n", map[string]string{"bad": "A is not set", "worse": "B is not set"}, ""},
		{"a mistake elsewhere", "listen: nowhere\nupstreams:\n" + good + "  bad: { url: \"${A}\" }\n", nil, "upstreams.bad.url"},
		{"a key in plain text", "upstreams:\n" + good + "  bad: { url: \"https://x.example/mcp\", headers: { A: jct_key_" + strings.Repeat("a", 57) + " } }\n", nil, "plain text"},
		{"a disabled entry with unset variables", "upstreams:\n" + good + "  bad: { enabled: false, url: \"${A}\", headers: { A: \"${B}\", C: \"env:C\" }, timeout: \"${T}\" }\n", map[string]string{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			none := func(string) (string, bool) { return "", false }
			c, _, err := LoadServing(file, none, false)
			if test.fails != "" {
				if problems, ok := errors.AsType[Problems](err); !ok || !strings.Contains(problems.Error(), test.fails) {
					t.Fatalf("LoadServing = %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, u := range c.Upstreams {
				if why := test.blocked[name]; (u.Blocked == "") != (why == "") || !strings.Contains(u.Blocked, why) {
					t.Errorf("%s is blocked by %q, want %q", name, u.Blocked, why)
				}
				if strings.Contains(u.Blocked, "which asks for it") && !strings.Contains(u.Blocked, " is not set; ") {
					t.Errorf("%s is blocked by %q, for which setup does not ask", name, u.Blocked)
				}
			}
			_, _, err = LoadServing(file, none, true)
			if kept := strings.HasPrefix(test.name, "several") || strings.HasPrefix(test.name, "a misspelled"); (err != nil) != kept {
				t.Errorf("on reload: %v, want a spelling mistake to leave the last good configuration alone", err)
			}
			if _, _, err := Load(file, none); (err == nil) != (len(test.blocked) == 0) {
				t.Errorf("Load, which check uses, = %v", err)
			}
		})
	}
}

// TestMistakesInCredentialsAreDocumented: the pages about reloads name each key of an entry in which a mistake blocks
// only its upstream, and the keys of credentials are those.
func TestMistakesInCredentialsAreDocumented(t *testing.T) {
	var keys []string
	of := reflect.TypeFor[upstream.Config]()
	for _, field := range reflect.VisibleFields(of) {
		if key := field.Tag.Get("yaml"); upstream.IsCredential(key) {
			keys = append(keys, "`"+key+"`")
		}
	}
	last := len(keys) - 1
	want := "a mistake in " + strings.Join(keys[:last], ", ") + " or " + keys[last] + ","
	for _, name := range []string{"../../README.md", "../../../../integration/safety/README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
}

// TestUnsetVariableOfTheServiceNamesItsFile: a process at a terminal does not read the file with the variables of the
// service. The mistake says so if that file has the variable, and setup does not ask for it.
func TestUnsetVariableOfTheServiceNamesItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("upstreams:\n  a: { command: [x], env: { A: \"${IN_FILE}\", B: \"${NOWHERE}\" } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(EnvironmentOf(file), []byte("IN_FILE=canary-value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hint = " has it, but only a service and a process in the background read that file: to start one, end this process, and run: junction service start --config "
	for _, test := range []struct {
		service      string
		first, other bool
	}{{"", true, false}, {EnvironmentOf(file), false, false}} {
		_, _, err := Load(file, func(name string) (string, bool) { return test.service, name == ServiceVariables })
		problems, _ := errors.AsType[Problems](err)
		if len(problems) != 2 {
			t.Fatalf("Load = %v, want two mistakes", err)
		}
		for n, want := range []bool{test.first, test.other} {
			if text := problems[n].Text; strings.Contains(text, EnvironmentOf(file)+hint) != want || strings.Contains(text, "canary") {
				t.Errorf("with the service %q: %s", test.service, text)
			}
		}
	}
	c, _, err := LoadServing(file, func(string) (string, bool) { return "", false }, false)
	if err != nil {
		t.Fatal(err)
	}
	if why := c.Upstreams["a"].Blocked; strings.Contains(why, "which asks for it") {
		t.Errorf("a is blocked by %q, for which setup does not ask", why)
	}
}
