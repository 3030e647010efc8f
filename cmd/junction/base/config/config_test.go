package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/yamlread"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// environment returns a getenv that knows vars and nothing else.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// testEnv is what the files under testdata may refer to.
func testEnv() func(string) (string, bool) {
	return environment(map[string]string{"SECRET": "s3cr3t-value", "HOST_WITHOUT_SCHEME": "s3cr3t-host.example.com/mcp", "EMPTY": "", "YES": "true", "SEVEN": "7",
		"API_KEY": "jct_key_Example0_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg0kcQpA"})
}

// parseText is Load for a text, without the warnings.
func parseText(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	c, d := parse(file, text, getenv, nil)
	if len(d.Problems) > 0 {
		return nil, d.Problems
	}
	return c, nil
}

func mustParse(t *testing.T, text string, vars map[string]string) *Config {
	t.Helper()
	c, err := parseText("test.yaml", []byte(text), environment(vars))
	if err != nil {
		t.Fatalf("parseText: %v\n%s", err, text)
	}
	if wrong, ok := violations(t, []byte(text)); ok && wrong != nil {
		t.Errorf("the schema rejects a valid file: %v\n%s", wrong, text)
	}
	return c
}

// TestNoUpstreams: a section without entries is a mistake only if it has no value, as one whose entries are
// comments.
func TestNoUpstreams(t *testing.T) {
	if c := mustParse(t, "upstreams: {}\n", nil); len(c.Upstreams) > 0 {
		t.Errorf("the upstreams are %v", c.Upstreams)
	}
	if _, err := parseText("test.yaml", []byte("upstreams: null\n"), environment(nil)); err == nil {
		t.Error("null is no mistake")
	}
}

// TestMistakes reads each file of testdata/bad. A file begins with one "# error:" line for each
// message that it is to get, in order and to the letter.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d files in testdata/bad (%v), want at least 25", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				text = withExpectations(t, file, text)
			}
			got, want := messages(t, file, text), expectations(text)
			if !slices.Equal(got, want) {
				t.Errorf("messages of %s:\ngot:\n  %s\nwant:\n  %s", file, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
			if len(got) == 0 {
				t.Errorf("%s has no mistake", file)
			}
			for _, m := range got {
				if strings.Contains(m, "s3cr3t") || auth.HoldsKey(m) || strings.Contains(m, "0123456789ABC") {
					t.Errorf("the message shows what a reference stands for: %s", m)
				}
				if strings.Contains(strings.TrimPrefix(m, filepath.Base(file)), "reflect.") || strings.Contains(m, "unmarshal") {
					t.Errorf("the message speaks of Go: %s", m)
				}
			}
		})
	}
}

// TestAnUnknownModeIsOneMistake: the keys of auth beside a mode with a mistake are not reported as if no mode were
// there.
func TestAnUnknownModeIsOneMistake(t *testing.T) {
	const at = "upstreams.a.auth"
	for given, want := range map[string]string{"mode: oauht, ": at + ".mode: ", "": at + ": has no effect without a mode"} {
		got := messages(t, "file", []byte("upstreams:\n  a: { url: https://a.example/mcp, auth: { "+given+"scopes: [x] } }\n"))
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("with %q the mistakes are %q, want one with %q", given, got, want)
		}
	}
}

const expectation = "# error: "

func expectations(text []byte) (want []string) {
	for line := range strings.Lines(string(text)) {
		if w, ok := strings.CutPrefix(line, expectation); ok {
			want = append(want, strings.TrimSuffix(w, "\n"))
		}
	}
	return want
}

func messages(t *testing.T, file string, text []byte) (got []string) {
	t.Helper()
	c, err := parseText(filepath.Base(file), text, testEnv())
	if err == nil {
		return nil
	}
	problems, ok := errors.AsType[Problems](err)
	if !ok || c != nil {
		t.Fatalf("Parse = %v, %T, want no Config and Problems", c, err)
	}
	for _, p := range problems {
		got = append(got, p.String())
	}
	return got
}

// withExpectations rewrites the head of the file. Messages name lines, which the head shifts, so it
// is made long enough first.
func withExpectations(t *testing.T, file string, text []byte) []byte {
	t.Helper()
	body := regexp.MustCompile(`(?m)^`+expectation+`.*\n`).ReplaceAll(text, nil)
	n := len(messages(t, file, body))
	head := bytes.Repeat([]byte(expectation+"\n"), n)
	got := messages(t, file, slices.Concat(head, body))
	head = nil
	for _, m := range got {
		head = append(head, expectation+m+"\n"...)
	}
	text = slices.Concat(head, body)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return text
}

const exampleFile = "../../../../config.example.yaml"

func TestExampleLoads(t *testing.T) {
	c, _, err := Load(exampleFile, environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(c.Upstreams)), []string{"demo", "everything", "filesystem", "memory"}; !slices.Equal(got, want) {
		t.Errorf("upstreams %v, want %v", got, want)
	}
	if got, want := c.Upstreams["demo"].Command, []string{"junction", "demo"}; !slices.Equal(got, want) {
		t.Errorf("demo: command %q, want %q", got, want)
	}
	want := defaultConfig()
	want.Upstreams, want.Own = c.Upstreams, c.Own
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the example changes something beside upstreams:\ngot  %+v\nwant %+v", c, want)
	}
}

// TestExampleMentionsEveryKey takes the # from before every key of the example, which must then
// load and lack nothing that Config has.
func TestExampleMentionsEveryKey(t *testing.T) {
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	commented := regexp.MustCompile(`(?m)^( *)#([^ #\n])`)
	all := commented.ReplaceAll(text, []byte("$1$2"))
	all = bytes.Replace(all, []byte("driver: sqlite"), []byte("driver: postgres"), 1) // which replicas need
	c, d := parse("example", all, environment(map[string]string{"HOME": "/home/me", "GITHUB_TOKEN": "token",
		"EAB_SECRET": "c2VjcmV0"}), nil)
	// an authority, in place of the files, is for one process
	d.Problems = slices.DeleteFunc(d.Problems, func(p Problem) bool { return p.Path == "tls.acme" })
	if len(d.Problems) > 0 {
		t.Fatalf("with all keys uncommented:\n%v", d.Problems)
	}
	// Upstreams, endpoints and globs are the only keys that a person invents.
	given, element := map[string]bool{}, regexp.MustCompile(`\[\d+\]`)
	verdict := regexp.MustCompile(`\.(ask|deny)\.`) // what they select has the same keys
	for path := range d.Lines {
		parts := strings.Split(path, ".")
		if parts[0] == "endpoints" && len(parts) > 1 {
			parts[1] = "*"
		}
		if parts[0] == "upstreams" && len(parts) > 1 {
			parts[1] = "*"
			if len(parts) > 4 && parts[2] == "tools" {
				parts = []string{"upstreams", "*", "tools", "*", parts[len(parts)-1]}
			}
		}
		given[verdict.ReplaceAllString(element.ReplaceAllString(strings.Join(parts, "."), ""), ".allow.")] = true
	}
	var want []string
	walkKeys(reflect.TypeFor[Config](), "", &want)
	if len(want) < 50 {
		t.Fatalf("found only the keys %v", want)
	}
	for _, path := range want {
		path = strings.Replace(path, "endpoints.*.match.", "policies.match.", 1) // the same keys
		if !given[verdict.ReplaceAllString(path, ".allow.")] {
			t.Errorf("config.example.yaml does not mention %s", path)
		}
	}
	// Those whose default is this package's are the defaults.
	def := defaultConfig()
	if c.Listen != def.Listen || *c.Admin != *def.Admin || c.ShutdownGrace != def.ShutdownGrace || c.Log != def.Log {
		t.Errorf("the example gives %s, %s, %s, %v as defaults, which are %s, %s, %s, %v", c.Listen, *c.Admin, c.ShutdownGrace, c.Log,
			def.Listen, *def.Admin, def.ShutdownGrace, def.Log)
	}
}

func walkKeys(t reflect.Type, path string, keys *[]string) {
	switch {
	case t == reflect.TypeFor[upstream.Rules]():
		walkKeys(reflect.TypeFor[upstream.Rule](), path+".*", keys)
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
		walkKeys(t.Elem(), path+".*", keys)
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		walkKeys(t.Elem(), path, keys)
	case t.Kind() == reflect.Struct:
		for key, i := range yamlread.Keys(t) {
			*keys = append(*keys, yamlread.Join(path, key))
			walkKeys(t.FieldByIndex(i).Type, yamlread.Join(path, key), keys)
		}
	}
}

func TestParse(t *testing.T) {
	c := mustParse(t, `
listen: "[::]:0"
public_url: https://MCP.example.com:443/
admin: ""
metrics: false
auth:
  api_keys:
    - { name: ci, hash: "${HASH}", cidrs: [10.0.0.0/8, "2001:db8::/32"], expires: 2027-06-30 }
    - { name: ci, hash: "${HASH2}" }
  trusted_proxies: [10.1.2.3/32]
allowed_origins: [https://App.example.com, vscode-webview://panel]
allowed_hosts: [MCP.example.com, mcp.example.com:8443]
shutdown_grace: ${GRACE}
log: { level: debug, format: json }
names: { max_length: 64, separator: "-" }
limits: { body: 2MiB, header: 512, sessions: "${N:-5}", read_timeout: 1m }
sessions: { key_file: /k, idle: 1h }
catalog: { grace: 1s }
defaults: { concurrency: 7 }
upstreams:
  one: &one
    command: [prog, 8080, true, "a b"]
    env: { PORT: 8080, DEBUG: true, EMPTY: "", KEY: env:KEY }
    idle_stop: 0
    enabled: true
    isolation: session
    tools:
      z*: { enabled: false }
      a: { as: b, timeout: 1s }
      "*": {}
  two:
    <<: *one
    prefix: ""
    env: { A: "$${KEY}" }
  three: { url: "https://x.example.com/mcp?k=${KEY}", transport: sse, era: legacy, expose: listed, headers: { A: "B ${KEY}" } }
`, map[string]string{"GRACE": "3s", "KEY": "${N}: [x]", "HASH": "sha256:" + strings.Repeat("0a", 32), "HASH2": "sha256:" + strings.Repeat("0b", 32)})

	admin, prefix, on, off, none := "", "", true, false, map[string]string{"A": "${KEY}"}
	one := upstream.Config{
		Command: []string{"prog", "8080", "true", "a b"}, Env: map[string]string{"PORT": "8080", "DEBUG": "true", "EMPTY": "", "KEY": "${N}: [x]"},
		Enabled: &on, Isolation: upstream.IsolationSession,
		Tools: upstream.Rules{{Glob: "z*", Rule: upstream.Rule{Enabled: &off}}, {Glob: "a", Rule: upstream.Rule{As: "b", Timeout: time.Second}}, {Glob: "*"}},
	}
	two := one
	two.Prefix, two.Env = &prefix, none
	want := &Config{
		Listen: "[::]:0", PublicURL: "https://mcp.example.com", Admin: &admin, ShutdownGrace: 3 * time.Second, Log: Log{slog.LevelDebug, LogJSON},
		AllowedOrigins: []string{"https://app.example.com", "vscode-webview://panel"}, AllowedHosts: []string{"mcp.example.com", "mcp.example.com:8443"},
		Upstreams: map[string]upstream.Config{"one": one, "two": two, "three": {
			URL: "https://x.example.com/mcp?k=${N}: [x]", Transport: client.TransportSSE, Era: client.EraLegacy, Expose: upstream.ExposeListed,
			Headers: map[string]string{"A": "B ${N}: [x]"},
		}},
	}
	want.Auth.Config = auth.Config{
		APIKeys: []auth.Key{
			{
				Name: "ci", Hash: auth.Hash(bytes.Repeat([]byte{0x0a}, 32)), Expires: auth.Moment{Time: time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC)},
				CIDRs: []auth.CIDR{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, {Prefix: netip.MustParsePrefix("2001:db8::/32")}},
			},
			{Name: "ci", Hash: auth.Hash(bytes.Repeat([]byte{0x0b}, 32))},
		},
		TrustedProxies: []auth.CIDR{{Prefix: netip.MustParsePrefix("10.1.2.3/32")}},
	}
	want.Names.MaxLength, want.Names.Separator = 64, "-"
	want.Limits.Body, want.Limits.Header, want.Limits.Sessions, want.Limits.ReadTimeout = 2<<20, 512, 5, time.Minute
	want.Sessions.KeyFile, want.Sessions.Idle = "/k", time.Hour
	want.Catalog.Grace, want.Defaults.Concurrency = time.Second, 7
	want.Own = c.Own
	want.Origins = map[string][]Origin{"one": {{Key: "env.KEY", Variable: "KEY"}}, "three": {{Key: "headers.A", Variable: "KEY"}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("Parse:\ngot  %+v\nwant %+v", c, want)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	c, warnings, err := Load("", environment(nil))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Load of no file: %v, %v", warnings, err)
	}
	if c.Listen != "127.0.0.1:8420" || *c.Admin != "127.0.0.1:8421" || c.ShutdownGrace != 10*time.Second || len(c.Upstreams) != 0 {
		t.Errorf("defaults: %+v", c)
	}
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), maxFile/2+1), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing.yaml")
	for file, want := range map[string]string{
		dir:     "read the configuration " + dir + ": it is no regular file; name a file, such as config.yaml",
		large:   "read the configuration " + large + ": it is larger than 1024 KiB",
		missing: "read the configuration " + missing + ": no such file or directory; name another file with --config, or create it with junction add",
	} {
		if _, _, err := Load(file, environment(nil)); err == nil || err.Error() != want {
			t.Errorf("Load(%s) = %v, want %s", file, err, want)
		}
	}
}

func TestReferences(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	token := write("token", "from-file\n")
	write("windows", "from-windows\r\n")
	write("two", "one\n\n")
	write("nested", "${A}")
	full := write("full", strings.Repeat("x", maxReferencedFile))
	large := write("large", strings.Repeat("x", maxReferencedFile+1))
	vars := map[string]string{"A": "a", "B_2": "b", "_": "under", "EMPTY": "", "NESTED": "${A}", "DOLLAR": "$${A}"}

	unset := func(name string) string {
		return "the environment variable " + name + " is not set; set it where junction starts and restart it, or write ${" + name + ":-default}"
	}
	noReference := func(quoted string) string {
		return quoted + " is no reference; write ${VAR}, ${VAR:-default} or ${file:/path}, or $${ where ${ is meant as it stands"
	}
	for _, tt := range []struct {
		in, want string
		wrong    []string
	}{
		{in: "", want: ""},
		{in: "plain $A $ {A} }", want: "plain $A $ {A} }"},
		{in: "${A}", want: "a"},
		{in: "x${A}y${B_2}z", want: "xaybz"},
		{in: "${env:A}${_}", want: "aunder"},
		{in: "${EMPTY}", want: ""},
		{in: "${EMPTY:-x}", want: "x"},
		{in: "${A:-x}", want: "a"},
		{in: "${NONE:-}", want: ""},
		{in: "${NONE:-a:-b c}", want: "a:-b c"},
		{in: "${env:NONE:-x}", want: "x"},
		{in: "${NESTED}", want: "${A}"},
		{in: "${DOLLAR}", want: "$${A}"},
		{in: "${file:nested}", want: "${A}"},
		{in: "${file:" + token + "}", want: "from-file"},
		{in: "Bearer ${file:token}!", want: "Bearer from-file!"},
		{in: "${file:windows}", want: "from-windows"},
		{in: "${file:two}", want: "one\n"},
		{in: "${file:full}", want: strings.Repeat("x", maxReferencedFile)},
		{in: "$${A}", want: "${A}"},
		{in: "$$${A}", want: "$${A}"},
		{in: "$${A}${A}$${", want: "${A}a${"},
		{in: "env:A", want: "a"},
		{in: "env:prod-1", want: "env:prod-1"},
		{in: "env:", want: "env:"},
		{in: "${NONE:-env:A}", want: "env:A"},
		{in: " env:A", want: " env:A"},

		{in: "${NONE}-${A}-${NO_2}", wrong: []string{unset("NONE"), unset("NO_2")}},
		{in: "env:NONE", wrong: []string{unset("NONE")}},
		{in: "${}", wrong: []string{noReference(`"${}"`)}},
		{in: "${1A}", wrong: []string{noReference(`"${1A}"`)}},
		{in: "${input:token}", wrong: []string{noReference(`"${input:token}"`)}},
		{in: "${A:?must}", wrong: []string{noReference(`"${A:?must}"`)}},
		{in: "${ A }", wrong: []string{noReference(`"${ A }"`)}},
		{in: "a ${A", wrong: []string{"has a ${ without its }; close it, or write $${ where ${ is meant as it stands"}},
		{in: "${NONE:-${A}}", wrong: []string{"the default of ${NONE:-…} holds another reference, which is not possible; use a plain value"}},
		{in: "${file:}", wrong: []string{"${file:} names no file; write ${file:/path}"}},
		{in: "${file:none}", wrong: []string{"cannot read the file of ${file:none}: " +
			filepath.Join(dir, "none") + ": no such file or directory; create the file, or correct the path"}},
		{in: "${file:" + filepath.Join(dir, "none") + "}", wrong: []string{"cannot read the file of ${file:" +
			filepath.Join(dir, "none") + "}: no such file or directory; create the file, or correct the path"}},
		{in: "${file:~/tok}", wrong: []string{"cannot read the file of ${file:~/tok}: " + filepath.Join(dir, "~/tok") +
			": no such file or directory; ~ means nothing here; write the whole path"}},
		{in: "${file:.}", wrong: []string{"cannot read the file of ${file:.}: " + dir + ": it is no regular file; name another file"}},
		{in: "${file:" + large + "}", wrong: []string{"cannot read the file of ${file:" + large + "}: it is larger than 64 KiB; name another file"}},
		{in: strings.Repeat("${file:"+full+"}", maxReferenced/maxReferencedFile+1),
			wrong: []string{"the references of the file stand for more than 4 MiB; use fewer or shorter ones"}},
	} {
		e := expander{dir: dir, named: Inputs{}, getenv: environment(vars), left: maxReferenced}
		got, _, wrong := e.expand(tt.in)
		if !slices.Equal(wrong, tt.wrong) {
			t.Errorf("expand(%.40q): %q, want %q", tt.in, wrong, tt.wrong)
		}
		if tt.wrong == nil && got != tt.want {
			t.Errorf("expand(%.40q) = %.40q, want %.40q", tt.in, got, tt.want)
		}
	}
}

// TestAliasesAreBounded gives a file of 30 kB that would mean 160,000 values.
func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("upstreams:\n  first:\n    command: [x]\n    env: &env\n")
	for i := range 400 {
		fmt.Fprintf(&b, "      V%d: x\n", i)
	}
	for i := range 400 {
		fmt.Fprintf(&b, "  u%d: { command: [x], env: *env }\n", i)
	}
	_, err := parseText("test.yaml", []byte(b.String()), environment(nil))
	want := "test.yaml:1: has more than 100000 values when its aliases are followed; use fewer aliases"
	if err == nil || err.Error() != want {
		t.Errorf("Parse = %v, want %s", err, want)
	}
}

// TestMergeBombIsBounded merges each of twenty mappings ten times into the next.
func TestMergeBombIsBounded(t *testing.T) {
	text := "upstreams:\n  a0: &a0 { command: [x], env: { A: b } }\n"
	for i := 1; i < 20; i++ {
		text += fmt.Sprintf("  a%d: &a%d\n    <<: [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	_, err := parseText("test.yaml", []byte(text), environment(nil))
	if err == nil || !strings.Contains(err.Error(), "when its aliases are followed") {
		t.Errorf("Parse = %v, want a refusal", err)
	}
}

func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"bin/tool", "work/local"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "junction.yaml")
	text := `upstreams:
  self: { command: [junction, demo] }
  found: { command: [tool] }
  missing: { command: [no-such-tool] }
  text: { command: [text] }
  other_path: { command: [tool], env: { PATH: /nowhere } }
  own_path: { command: [local], env: { PATH: "${DIR}/work" } }
  absolute: { command: ["${DIR}/bin/tool"] }
  no_absolute: { command: ["${DIR}/bin/none"] }
  in_dir: { command: [./local], dir: "${DIR}/work" }
  not_in_dir: { command: [./tool], dir: "${DIR}/work" }
  no_dir: { command: [tool], dir: /no/such/folder }
  disabled: { command: [no-such-tool], enabled: false }
  remote: { url: https://mcp.example.com/mcp }
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	getenv := environment(map[string]string{"DIR": dir, "PATH": "relative" + string(filepath.ListSeparator) + filepath.Join(dir, "bin")})
	c, warnings, err := Load(file, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Upstreams) != 13 {
		t.Errorf("%d upstreams, want 13", len(c.Upstreams))
	}
	var got []string
	for _, w := range warnings {
		got = append(got, strings.TrimPrefix(Problem(w).String(), file))
	}
	const gone = "; that upstream cannot start"
	want := []string{
		`:4: upstreams.missing.command: there is no program no-such-tool` + gone + `: install no-such-tool, or write its full path into command`,
		`:5: upstreams.text.command: there is no program text` + gone + `: install text, or write its full path into command`,
		`:6: upstreams.other_path.command: there is no program tool` + gone + `: install tool, or write its full path into command`,
		`:9: upstreams.no_absolute.command: there is no program ${DIR}/bin/none` + gone + `: install ${DIR}/bin/none, or correct its path in command`,
		`:11: upstreams.not_in_dir.command: there is no program ./tool` + gone + `: there is no ${DIR}/work/tool (relative to ${DIR}/work): write the full path into command, or correct dir`,
		`:12: upstreams.no_dir.dir: is no folder` + gone + ": create the folder /no/such/folder, or correct dir",
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings:\ngot:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestWarningsOfPolicies is about words that are in the file once and should be there twice.
func TestWarningsOfPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junction.yaml")
	const upstreams = `upstreams:
  a: { command: [junction], capabilities: [web, web2], tools: { "delete_*": { capabilities: [destroy] }, b: { capabilities: [web] } } }
  b: { command: [junction], capabilities: [only] }
`
	const unused = ", so that no caller can use "
	for _, tt := range []struct {
		text string
		want []string
	}{
		{upstreams, []string{
			"2: upstreams.a.capabilities[0]: no policy gives the capability web" + unused + "this upstream",
			"2: upstreams.a.capabilities[1]: no policy gives the capability web2" + unused + "this upstream",
			"2: upstreams.a.tools.delete_*.capabilities[0]: no policy gives the capability destroy" + unused + "these tools",
			"2: upstreams.a.tools.b.capabilities[0]: no policy gives the capability web" + unused + "these tools",
			"3: upstreams.b.capabilities[0]: no policy gives the capability only" + unused + "this upstream",
		}},
		{upstreams + `policies:
  - { name: x, capabilities: [web, destroy, other], rules: [{ allow: { upstreams: [a, "c*"] } }, { deny: { upstreams: B } }] }
  - { name: y, match: { cidr: 10.0.0.0/8 }, capabilities: [only, web] }
`, []string{
			"2: upstreams.a.capabilities[1]: no policy gives the capability web2" + unused + "this upstream",
			"5: policies[0].capabilities[2]: nothing requires the capability other",
			"5: policies[0].rules[0].allow.upstreams[1]: \"c*\" matches no upstream of this file",
			"5: policies[0].rules[1].deny.upstreams: \"B\" matches no upstream of this file; did you mean b?",
		}},
		{upstreams + "policies:\n  - { name: x, capabilities: web }\n", nil}, // what they give is not known
		{"upstreams:\n  a: { command: [junction] }\n", nil},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, _ := Load(file, environment(nil))
		var got []string
		for _, w := range warnings {
			got = append(got, strings.TrimPrefix(Problem(w).String(), file+":"))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("warnings of\n%s\ngot:\n  %s\nwant:\n  %s", tt.text, strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
		}
	}
}

// TestPoliciesParse reads every way of writing, with our walk and with package yaml, which must
// agree.
func TestPoliciesParse(t *testing.T) {
	const section = `
- name: developers
  match: { group: [engineering, "007"], key: ci, kind: key, user: ann, issuer: i, email: a@b.c, email_domain: b.c, scope: s, oauth_client: o, cidr: 10.0.0.0/8, surface: [web] }
  enforced: true
  capabilities: [web, files]
  rules:
    - allow: &all { upstreams: [files, search] }
    - ask: { tools: "shell__*", prompts: [a, b], resources: 1 }
    - deny: { <<: *all, where: { command: "rm -rf *", /options/cwd: { re: "^/etc" }, n: [1, true, { re: "2" }] } }
  redact: [secrets, { name: ticket, re: "TCK-[0-9]{8}" }]
  validate: true
  pinned: true
  limits: { rate: 60/m, burst: 20, concurrent: 8 }
- name: everybody
  enforced: false
  rules: [{ allow: { upstreams: "${NAME}" } }]
`
	c := mustParse(t, "upstreams: { a: { command: [x] } }\npolicies:"+strings.ReplaceAll(section, "\n", "\n  ")+"\n", map[string]string{"NAME": "a"})
	files := &policy.Selector{Upstreams: policy.List{"files", "search"}}
	want := policy.Config{
		{
			Name: "developers",
			Match: &policy.Match{Group: policy.List{"engineering", "007"}, Key: policy.List{"ci"}, Kind: policy.List{"key"}, User: policy.List{"ann"}, Issuer: policy.List{"i"},
				Email: policy.List{"a@b.c"}, EmailDomain: policy.List{"b.c"}, Scope: policy.List{"s"}, OAuthClient: policy.List{"o"}, CIDR: policy.List{"10.0.0.0/8"},
				Surface: policy.List{"web"}},
			Enforced: new(true), Capabilities: []string{"web", "files"},
			Rules: []policy.Rule{
				{Allow: files},
				{Ask: &policy.Selector{Tools: policy.List{"shell__*"}, Prompts: policy.List{"a", "b"}, Resources: policy.List{"1"}}},
				{Deny: &policy.Selector{Upstreams: files.Upstreams, Where: policy.Where{
					"command": {{Glob: "rm -rf *"}}, "/options/cwd": {{Re: "^/etc"}}, "n": {{Glob: "1"}, {Glob: "true"}, {Re: "2"}},
				}}},
			},
			Redact:   policy.Redactions{Patterns: []policy.Redact{{Word: "secrets"}, {Name: "ticket", Re: "TCK-[0-9]{8}"}}},
			Validate: true, Pinned: true, Limits: policy.Limits{Rate: 1, Burst: 20, Concurrent: 8},
		},
		{Name: "everybody", Enforced: new(false), Rules: []policy.Rule{{Allow: &policy.Selector{Upstreams: policy.List{"a"}}}}},
	}
	if !reflect.DeepEqual(c.Policies, want) {
		t.Errorf("Parse:\ngot  %+v\nwant %+v", c.Policies, want)
	}
	var other policy.Config
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(section, "${NAME}", "a")), &other); err != nil || !reflect.DeepEqual(other, want) {
		t.Errorf("package yaml: %v\ngot  %+v\nwant %+v", err, other, want)
	}
	if _, err := policy.Compile(c.Policies); err != nil {
		t.Error(err)
	}
}

// TestCheckWarnsAboutOneFile: with several principals, check names the upstreams whose processes use one file. It has
// no note about those that share a process because the operator has written so.
func TestCheckWarnsAboutOneFile(t *testing.T) {
	key := func(name, digit string) string {
		return "{ name: " + name + ", hash: \"sha256:" + strings.Repeat(digit, 64) + "\" }"
	}
	for _, tt := range []struct {
		keys string
		want []string
	}{
		{"", nil},
		{key("a", "1"), nil},
		{key("a", "1") + ", " + key("a", "2"), nil}, // an old and a new key of one principal
		{key("a", "1") + ", " + key("b", "2"), []string{
			"2: upstreams.memory: several processes write the same file (MEMORY_FILE_PATH), so that users overwrite each other's " +
				"data; for one process and one call at a time, write isolation: shared and concurrency: 1",
			"3: upstreams.notes: each user has a process, and all processes use the file of NOTES_DB: if they write it, users " +
				"overwrite each other's data; for one process and one call at a time, write isolation: shared and " +
				"concurrency: 1; if they only read it, write isolation: principal",
		}},
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		text := "upstreams:\n  memory: { command: [junction, demo, \"@modelcontextprotocol/server-memory\"] }\n" +
			"  notes: { command: [junction, demo], env: { NOTES_DB: /srv/notes.db } }\n" +
			"  shared: { command: [junction, demo], env: { NOTES_DB: /srv/notes.db }, isolation: shared, concurrency: 1 }\n" +
			"  off: { command: [junction, demo], env: { NOTES_DB: /srv/notes.db }, enabled: false }\n"
		if tt.keys != "" {
			text += "auth: { api_keys: [ " + tt.keys + " ] }\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := checkFile(&out, file, os.LookupEnv); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, " upstreams.") || strings.Contains(line, "upstreams.shared") || strings.Contains(line, "upstreams.off") {
				got = append(got, strings.TrimSuffix(line[strings.LastIndex(line, ".yaml:")+len(".yaml:"):], "\n"))
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("check of the keys [%s] prints %s, want %q", tt.keys, &out, tt.want)
		}
	}
}

// TestCheckSaysWhatASessionIs notes that clients without a session share a process for each folder of a header, or that
// of their principal, and that only a command can have one for each folder of their roots.
func TestCheckSaysWhatASessionIs(t *testing.T) {
	const shares = "have no session: windows of one principal share one "
	const each = " for each folder in the header Junction-Folder, and one without the header (isolation: session)"
	for entry, want := range map[string]string{
		"{ command: [junction, demo], isolation: session }": "note: upstreams.a: clients of MCP 2026-07-28, such as " +
			"Claude Code and Copilot CLI, " + shares + "process" + each + "; to separate windows by their roots, too, set " +
			"isolation: folder\n",
		"{ url: https://a.example.com, isolation: session }":                shares + "connection" + each + "\n",
		"{ command: [junction, demo], isolation: folder }":                  "",
		"{ command: [junction, demo], isolation: session, enabled: false }": "",
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		if err := os.WriteFile(file, []byte("upstreams:\n  a: "+entry+"\n  b: { command: [junction, demo] }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := checkFile(&out, file, os.LookupEnv); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), shares) != (want != "") {
			t.Errorf("check of %s prints %s, want %q", entry, &out, want)
		}
	}
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junction.yaml")
	for _, tt := range []struct{ text, out, err string }{
		{"upstreams:\n  a: { url: https://a.example.com }\n", "ok: 1 upstream\n", "<nil>"},
		{"upstreams:\n  a: { url: https://a.example.com }\n  b: { command: [junction] }\n", "ok: 2 upstreams\n", "<nil>"},
		{"upstreams:\n  a: { command: [none] }\n",
			"warning: FILE:2: upstreams.a.command: there is no program none; that upstream cannot start: install none, or write its full path into command\nok: 1 upstream\n", "<nil>"},
		{"upstreams:\n  a: { command: [npx -y some-package] }\n  b: { command: [~/bin/server] }\n  c: { command: [/dev/null] }\n",
			"warning: FILE:2: upstreams.a.command: there is no program npx -y some-package; that upstream cannot start: write its arguments apart: [npx, -y, some-package]\n" +
				"warning: FILE:3: upstreams.b.command: there is no program ~/bin/server; that upstream cannot start: write its full path into command, because ~ is not expanded\n" +
				"warning: FILE:4: upstreams.c.command: /dev/null is no program that may be run; that upstream cannot start: chmod +x, or run Junction as another user\n" +
				"ok: 3 upstreams\n", "<nil>"},
		{"lisen: x\nupstreams:\n  a: { command: [none] }\n  b: { url: a.example.com }\n",
			"FILE:1: lisen: unknown key; did you mean listen?\n" +
				"FILE:4: upstreams.b.url: needs a scheme: https://a.example.com\n" +
				"warning: FILE:3: upstreams.a.command: there is no program none; that upstream cannot start: install none, or write its full path into command\n",
			"FILE has 2 mistakes; Junction does not start because of line 1"},
		{"listen: x\nlisten_to: y\nupstreams:\n  a: { url: a.example.com, endpoint: https://a.example.com }\n",
			"FILE:1: listen: must be host:port, such as 127.0.0.1:8420 or [::1]:8420\n" +
				"FILE:2: listen_to: unknown key; did you mean listen?\n" +
				"FILE:4: upstreams.a.endpoint: unknown key; did you mean url?\n" +
				"FILE:4: upstreams.a.url: needs a scheme: https://a.example.com\n",
			"FILE has 4 mistakes; Junction does not start because of lines 1, 2"},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := checkFile(authtest.Searched(t, "what junction check writes", &out), file, environment(nil))
		got := strings.ReplaceAll(out.String(), file, "FILE")
		if err == nil { // the files have no authentication
			before, after, noted := strings.Cut(got, "note: auth: there is no authentication: ")
			_, after, _ = strings.Cut(after, "\n")
			if got = before + after; !noted {
				t.Errorf("check of\n%s\ndoes not say that there is no authentication", tt.text)
			}
		}
		if got != tt.out {
			t.Errorf("check of\n%s\ngot:\n%swant:\n%s", tt.text, got, tt.out)
		}
		if got := strings.ReplaceAll(fmt.Sprint(err), file, "FILE"); got != tt.err {
			t.Errorf("check of\n%s\nerror %s, want %s", tt.text, got, tt.err)
		}
	}
}

// FuzzParse wants a Config or Problems of any text, and of each problem one printable line.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, exampleFile) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseText("f", text, testEnv())
		if (c == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v", c, err)
		}
		if err == nil {
			if c.Admin == nil {
				t.Fatalf("Parse lets %+v pass", c)
			}
			return
		}
		problems, ok := errors.AsType[Problems](err)
		if !ok || len(problems) == 0 {
			t.Fatalf("parseText: %T %v", err, err)
		}
		last, end := 1, 1
		for _, r := range string(text) {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // all of them end lines in YAML
				end++
			}
		}
		for _, p := range problems {
			if p.Line < last || p.Line > end || strings.ContainsAny(p.String(), "\n\r\x1b") || p.Text == "" {
				t.Fatalf("%#v after line %d", p, last)
			}
			last = p.Line
		}
	})
}

// checkFile is what junction check writes about a file.
func checkFile(w io.Writer, file string, getenv func(string) (string, bool)) error {
	r, err := Inspect(file, getenv, (*Config).Obstacles)
	if err != nil {
		return err
	}
	return r.Print(w)
}
