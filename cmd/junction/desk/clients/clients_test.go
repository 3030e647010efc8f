package clients

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/base/revision"
)

// mustHome returns a home on a system, with files at their paths below it.
func mustHome(t testing.TB, goos string, files map[string]string) Home {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "HOME", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Home{OS: goos, Dir: dir, Project: filepath.Join(dir, "work"), Getenv: environment(nil)}
}

func environment(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := m[name]
		return value, ok
	}
}

// mustRender returns the entry in YAML, with each secret in its reference.
func mustRender(t testing.TB, h Home, name string, e *Entry) string {
	t.Helper()
	keep := func(_, label, secret string) (string, error) { return label + "=" + secret, nil }
	text, _, err := e.YAML(name, "", keep)
	if err != nil {
		t.Fatalf("YAML(%s): %v", name, err)
	}
	return strings.ReplaceAll(text, h.Dir, "HOME")
}

// TestTranslation reads one server of each form that a client has.
func TestTranslation(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		want             string // the entry, and its notes
	}{
		{"a command", ".cursor/mcp.json", `{"mcpServers": {"s": {"command": "npx", "args": ["-y", "some-server",
			"--api-key", "canary-1", "--token=canary-2", "-v"],
			"env": {"API_TOKEN": "canary-3", "LEVEL": "debug", "MAX_TOKENS": 1000, "CA": "${env:CA}"}, "cwd": "HOME/dir",
			"autoApprove": ["x"]}}}`,
			`s:
  command: [npx, -y, some-server, --api-key, "${file:api-key=canary-1}", "--token=${file:token=canary-2}", -v]
  env:
    API_TOKEN: "${file:API_TOKEN=canary-3}"
    CA: "${CA}"
    LEVEL: debug
    MAX_TOKENS: "1000"
  dir: HOME/dir`},
		{"a URL", ".claude.json", `{"mcpServers": {"s": {"type": "sse",
			"url": "https://mcp.example.com/sse?api_key=canary-1&x=1",
			"headers": {"Authorization": "Bearer canary-2", "X-Team": "${TEAM:-blue}"}, "oauth": {"clientId": "a"}}}}`,
			`s:
  url: "https://mcp.example.com/sse?api_key=${file:url=canary-1}&x=1"
  headers:
    Authorization: "Bearer ${file:Authorization=canary-2}"
    X-Team: "${TEAM:-blue}"
  transport: sse
not imported: oauth`},
		{"a password in the URL", ".codeium/windsurf/mcp_config.json",
			`{"mcpServers": {"s": {"serverUrl": "https://ann:canary@mcp.example.com/", "disabled": true}}}`,
			`s:
  url: https://mcp.example.com/
  headers:
    Authorization: "Basic ${file:Authorization=YW5uOmNhbmFyeQ==}"
  enabled: false`},
		{"a literal reference", "Library/Application Support/Claude/claude_desktop_config.json",
			`{"mcpServers": {"s": {"command": "x", "args": ["${A}", "env:A", "postgresql://ann:canary@db/x"]}}}`,
			`s:
  command: [x, "$${A}", "${file:value=env:A}", "postgresql://ann:${file:argument=canary}@db/x"]`},
		{"inputs and folders", "Library/Application Support/Code/User/mcp.json", `{
			"inputs": [{"type": "promptString", "id": "api-key", "description": "Key of the service",
			"password": true}, {"id": "level", "default": "info"}],
			"servers": {"s": {"command": "${userHome}/bin/s", "args": ["${workspaceFolder}", "${input:level}",
			"${command:x}"], "env": {"API_KEY": "${input:api-key}"}, "envFile": ".env"}}}`,
			`s:
  command: [HOME/bin/s, "${folder}", "${LEVEL:-info}", "$${command:x}"]
  env:
    API_KEY: "${API_KEY}"
  isolation: folder
${command:…} of VS Code is kept as it is
set the environment variable API_KEY to the value that VS Code asks for (Key of the service)
not imported: envFile; put the variables of that file into env of the entry`},
		{"Codex", ".codex/config.toml", `model = "x"
[mcp_servers.s]
url = "https://mcp.example.com/mcp"
bearer_token_env_var = "SERVICE_TOKEN"
http_headers = { "X-Api-Key" = "canary-1" }
env_http_headers = { "X-Org" = "ORG" }
startup_timeout_sec = 120
tool_timeout_sec = 1200.5
enabled_tools = ["read", "write"]
disabled_tools = ["write", "drop"]
`,
			`s:
  url: https://mcp.example.com/mcp
  headers:
    Authorization: "Bearer ${SERVICE_TOKEN}"
    X-Api-Key: "${file:X-Api-Key=canary-1}"
    X-Org: "${ORG}"
  timeout: 20m0.5s
  max_timeout: 20m0.5s
  connect_timeout: 2m
  expose: listed
  tools:
    read: {enabled: true}
    drop: {enabled: false}
    write: {enabled: false}`},
		{"a command of Codex", ".codex/config.toml",
			"[mcp_servers.s]\ncommand = 's'\nenv_vars = ['TOKEN']\nenabled = false\n[mcp_servers.s.env]\nA = '$B ${C}'\n",
			`s:
  command: [s]
  env:
    A: "$B $${C}"
  inherit_env: [TOKEN]
  enabled: false`},
		{"Gemini CLI", ".gemini/settings.json", `{"mcpServers": {"s": {"httpUrl": "https://$HOST/mcp",
			"headers": {"X-Key": "$KEY"}, "timeout": 30000, "trust": true, "includeTools": ["a(x)", "b"],
			"excludeTools": ["b"]}}}`,
			`s:
  url: "https://${HOST}/mcp"
  headers:
    X-Key: "${KEY}"
  timeout: 30s
  expose: listed
  tools:
    a: {enabled: true}
    b: {enabled: false}`},
		{"Copilot CLI", ".copilot/mcp-config.json", `{"mcpServers": {"s": {"type": "local", "command": "s",
			"tools": ["*"], "env": {"A": "${A}"}}}}`,
			"s:\n  command: [s]\n  env:\n    A: \"${A}\""},
		{"opencode", ".config/opencode/opencode.jsonc", `{"mcp": {"s": {"type": "local", "command": ["s", "{env:A}",
			"{file:~/key}"], "environment": {"B": "b"}, "enabled": false, "timeout": 5000},}}`,
			`s:
  command: [s, "${A}", "${file:HOME/key}"]
  env:
    B: b
  enabled: false
  connect_timeout: 5s`},
		{"opencode 2", ".config/opencode/opencode.json", `{"mcp": {"servers": {"s": {"type": "remote",
			"url": "https://mcp.example.com/", "disabled": true}}}}`,
			"s:\n  url: https://mcp.example.com/\n  enabled: false"},
		{"Zed", ".config/zed/settings.json", `// begin
{"context_servers": {"s": {"source": "custom", "command": {"path": "s", "args": ["a"],
			"env": {"SECRET": "canary-1"}}}}} // end`,
			"s:\n  command: [s, a]\n  env:\n    SECRET: \"${file:SECRET=canary-1}\""},
		{"settings of VS Code", "Library/Application Support/Code/User/settings.json", `{"editor.tabSize": 2, // mine
			"mcp": {"inputs": [{"id": "key", "description": "the key"}], "servers": {"s": {"command": "s",
			"env": {"A": "${input:key}"}},}},}`,
			"s:\n  command: [s]\n  env:\n    A: \"${KEY}\"\n" +
				"set the environment variable KEY to the value that VS Code asks for (the key)"},
		{"a profile of VS Code", "Library/Application Support/Code/User/profiles/-1f/mcp.json",
			`{"servers": {"s": {"url": "https://mcp.example.com/"}}}`, "s:\n  url: https://mcp.example.com/"},
		{"a command of Goose", ".config/goose/config.yaml", `extensions:
  s: # mine
    enabled: true
    type: stdio
    name: S
    description: null
    display_name: S
    bundled: false
    cmd: s
    args: [-v, $LEVEL, "${API_KEY}"]
    envs: {LEVEL: debug, TOKEN: canary-1}
    env_keys: [API_KEY, LEVEL]
    timeout: 2000
    available_tools: [read]
    new: 1
`, `s:
  command: [s, -v, "$LEVEL", "$${API_KEY}"]
  env:
    API_KEY: "${API_KEY}"
    LEVEL: debug
    TOKEN: "${file:TOKEN=canary-1}"
  timeout: 33m20s
  max_timeout: 33m20s
  expose: listed
  tools:
    read: {enabled: true}
set the environment variable API_KEY to the value that Goose keeps in its keyring
not imported: new`},
		{"a URL of Goose", ".config/goose/config.yaml", `extensions:
  s: {enabled: false, type: streamable_http, name: s, uri: "https://mcp.example.com/$PLACE?$filter=x", timeout: 300,
    headers: {Authorization: "Bearer ${ API_KEY }", X-Token: $TOKEN}, envs: {PLACE: eu, TOKEN: canary-1},
    env_keys: [API_KEY], available_tools: [], socket: /s}
`, `s:
  url: "https://mcp.example.com/eu?$filter=x"
  headers:
    Authorization: "Bearer ${API_KEY}"
    X-Token: "${file:X-Token=canary-1}"
  enabled: false
  timeout: 5m
set the environment variable API_KEY to the value that Goose keeps in its keyring
not imported: socket`},
		{"an old URL of Goose", ".config/goose/config.yaml", `extensions: {s: {type: sse, uri: "https://a.example.com/"}}`,
			"s:\n  url: https://a.example.com/\n  transport: sse\n  enabled: false"},
		{"a bridge of Goose with a key", ".config/goose/config.yaml", `extensions: {s: {enabled: true, type: stdio, cmd: npx,
			args: [mcp-remote, "https://a.example.com/mcp"], env_keys: [KEY]}}`,
			"s:\n  command: [npx, mcp-remote, 'https://a.example.com/mcp']\n  env:\n    KEY: \"${KEY}\"\n" +
				"set the environment variable KEY to the value that Goose keeps in its keyring"},
		{"a server of a project", "work/.mcp.json", `{"mcpServers": {"s": {"command": "./s"}}}`,
			"s:\n  command: [./s]\n  dir: HOME/work"},
		{"a server of one project", ".claude.json", `{"projects": {"HOME/work": {"mcpServers": {"s": {"command": "s",
			"cwd": "sub"}}}, "/other": {"mcpServers": {"t": {"command": "t"}}}}}`,
			"s:\n  command: [s]\n  dir: HOME/work/sub"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := mustHome(t, "darwin", map[string]string{test.file: test.text})
			servers, errs := h.Read(h.Places())
			if len(servers) != 1 || len(errs) > 0 || servers[0].Err != nil {
				t.Fatalf("Read = %v, %v; want one server", servers, errs)
			}
			e := servers[0].Entry
			if got := strings.Join(append([]string{mustRender(t, h, "s", e)}, e.Notes...), "\n"); got != test.want {
				t.Errorf("the entry is\n%s\nwant\n%s", got, test.want)
			}
			if summary := e.Summary(); strings.Contains(summary, "canary") {
				t.Errorf("Summary shows a secret: %s", summary)
			}
		})
	}
}

// TestImpossible: a server that Junction cannot have says why.
func TestImpossible(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "neither a command nor a URL", `[]`: "not a mapping", `{"settings": {}}`: "an extension of the client",
		`{"command": "x", "args": [{}]}`: "args[0] is not a text", `{"command": "x",
			"env": {"A": []}}`: "env.A is not a text",
		`{"command": []}`:                     "neither a command nor a URL",
		`{"type": "ws", "url": "ws://x/mcp"}`: "has the scheme ws, and Junction reaches servers by http and https only",
	} {
		h := mustHome(t, "linux", map[string]string{".cursor/mcp.json": `{"mcpServers": {"s": ` + text + `}}`})
		servers, errs := h.Read(h.Places())
		if len(servers) != 1 || len(errs) > 0 || servers[0].Err == nil || !strings.Contains(servers[0].Err.Error(), want) {
			t.Errorf("%s: %v, %v; want a server with the error %q", text, servers, errs, want)
		}
	}
}

// TestPlaces: each system has its own paths, and variables change them.
func TestPlaces(t *testing.T) {
	for _, test := range []struct {
		goos string
		env  map[string]string
		want string
	}{
		{"linux", nil, `claude-code .claude.json
claude-desktop .config/Claude/claude_desktop_config.json
cursor .cursor/mcp.json
vscode .config/Code/User/mcp.json
codex .codex/config.toml
gemini .gemini/settings.json
copilot .copilot/mcp-config.json
opencode .config/opencode/opencode.json
windsurf .codeium/windsurf/mcp_config.json
zed .config/zed/settings.json
goose .config/goose/config.yaml`},
		{"darwin", map[string]string{"XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/l",
			"COPILOT_HOME": "/p", "GOOSE_PATH_ROOT": "/g"}, `claude-code /l/.claude.json
claude-desktop Library/Application Support/Claude/claude_desktop_config.json
cursor .cursor/mcp.json
vscode Library/Application Support/Code/User/mcp.json
codex /c/config.toml
gemini .gemini/settings.json
copilot /p/mcp-config.json
opencode /x/opencode/opencode.json
windsurf .codeium/windsurf/mcp_config.json
zed /x/zed/settings.json
goose /g/config/config.yaml`},
		{"windows", map[string]string{"APPDATA": "/r"}, `claude-code .claude.json
claude-desktop /r/Claude/claude_desktop_config.json
cursor .cursor/mcp.json
vscode /r/Code/User/mcp.json
codex .codex/config.toml
gemini .gemini/settings.json
copilot .copilot/mcp-config.json
opencode .config/opencode/opencode.json
windsurf .codeium/windsurf/mcp_config.json
zed /r/Zed/settings.json
goose /r/Block/goose/config/config.yaml`},
	} {
		t.Run(test.goos, func(t *testing.T) {
			h := Home{OS: test.goos, Dir: "/home/ann", Project: "/home/ann/work", Getenv: environment(test.env)}
			var lines []string
			for _, c := range All() {
				p, ok := h.Place(c, User)
				if !ok {
					t.Fatalf("%s has no file", c.ID)
				}
				lines = append(lines, c.ID+" "+strings.TrimPrefix(filepath.ToSlash(p.File), "/home/ann/"))
			}
			if got := strings.Join(lines, "\n"); got != test.want {
				t.Errorf("places are\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestPlaceOfAVariant: of a client with several files, the one of the variant that is installed is
// changed.
func TestPlaceOfAVariant(t *testing.T) {
	c, err := Lookup("VS Code")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		".config/Code/User/x":            ".config/Code/User/mcp.json",
		".config/Code - Insiders/User/x": ".config/Code - Insiders/User/mcp.json",
		".vscode-server/data/User/x":     ".vscode-server/data/User/mcp.json",
		"x":                              ".config/Code/User/mcp.json",
		// these are only read
		".config/Code - Insiders/User/settings.json":         ".config/Code - Insiders/User/mcp.json",
		".config/Code - Insiders/User/profiles/-1f/mcp.json": ".config/Code - Insiders/User/mcp.json",
	} {
		h := mustHome(t, "linux", map[string]string{file: ""})
		p, _ := h.Place(c, User)
		if got, err := filepath.Rel(h.Dir, p.File); err != nil || filepath.ToSlash(got) != want {
			t.Errorf("with %s, the file is %s, want %s", file, got, want)
		}
	}
}

// TestPlaceOfProject: of the files that a client reads in a project, the one that exists is changed.
func TestPlaceOfProject(t *testing.T) {
	for _, name := range []string{"opencode.json", "opencode.jsonc"} {
		h := mustHome(t, "linux", map[string]string{"work/" + name: "{}"})
		c, err := Lookup("opencode")
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := h.Place(c, Project); !ok || filepath.Base(p.File) != name {
			t.Errorf("the file is %s, want %s", p.File, name)
		}
	}
}

// TestReadErrors: a file that cannot be read hides none of the others.
func TestReadErrors(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".cursor/mcp.json":      `{"mcpServers": {"s": {"command": "x"}}}`,
		".claude.json":          "{\n  \"mcpServers\": {",
		".codex/config.toml":    "[mcp_servers.a]\ncommand =\n",
		".gemini/settings.json": strings.Repeat(" ", revision.MaxSize) + "{}",
	})
	if err := os.Mkdir(filepath.Join(h.Dir, ".copilot"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.Dir, ".copilot", "mcp-config.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	servers, errs := h.Read(h.Places())
	if len(servers) != 1 || servers[0].Name != "s" || servers[0].Line != 1 {
		t.Errorf("Read = %v; want the server of Cursor", servers)
	}
	got := fmt.Sprint(errors.Join(errs...))
	for _, want := range []string{
		"~/.claude.json line 2: is not JSON: ", "~/.codex/config.toml line 2: is not TOML: ",
		"~/.gemini/settings.json: is larger than 10 MiB", "~/.copilot/mcp-config.json: is not a regular file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the errors are\n%s\nwant %q", got, want)
		}
	}
	if len(errs) != 4 {
		t.Errorf("%d errors; want one for each file:\n%s", len(errs), got)
	}
}

// TestPlan brings the servers of several clients together.
func TestPlan(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".claude.json": `{"mcpServers": {
			"GitHub": {"command": "gh-server", "env": {"T": "${TOKEN}"}},
			"my server!": {"command": "one"},
			"junction": {"type": "http", "url": "http://localhost:8420/mcp"},
			"off": {"command": "off", "disabled": true},
			"kept": {"command": "kept", "env": {"A": "old"}}
		}}`,
		".cursor/mcp.json": `{"mcpServers": {
			"github": {"command": "gh-server", "env": {"T": "${env:TOKEN}"}},
			"GITHUB": {"command": "other"},
			"my-server": {"command": "two"},
			"remote": {"command": "npx", "args": ["mcp-remote", "http://127.0.0.1:8420/web/mcp"]},
			"on": {"command": "off"},
			"present": {"command": "there"},
			"": {"command": "nameless"}
		}}`,
	})
	h.Getenv = environment(map[string]string{"TOKEN": "canary-1"})
	servers, errs := h.Read(h.Places())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	existing := []Known{
		{Name: "there", Command: []string{"there"}},
		{Name: "kept", Command: []string{"kept"}, Env: map[string]string{"A": "new"}},
	}
	m := Merge{Existing: existing,
		Own: []string{"http://127.0.0.1:8420/mcp"}, Getenv: h.Getenv}
	var lines []string
	for _, o := range m.Plan(servers) {
		line := fmt.Sprintf("%s %s %s %s", o.Server.Name, o.Result, o.Name, strings.Join(o.Notes, "; "))
		lines = append(lines, strings.TrimSpace(line))
		if o.Name == "off" && o.Server.Entry.Off && o.Result == New {
			t.Error("off is off, although a client uses it")
		}
	}
	want := `GitHub new GitHub
my server! new my-server
junction skipped  it is Junction itself
off new off Claude Code has it disabled, and gets its tools through Junction
kept present kept differs from the client's; the configuration keeps its own; to take the client's: junction remove kept; junction import --write kept
github same GitHub
GITHUB new GITHUB-2 another server is called GITHUB
my-server new my-server-2 another server is called my-server
remote skipped  it is Junction itself
on same off
present present there
new server`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the plan is\n%s\nwant\n%s", got, want)
	}
}

// TestPlanLimits: of equal servers, the longest time limits hold. A client without a limit has Junction's.
func TestPlanLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, gemini, codex, want string }{
		{"a longer one comes later", `, "timeout": 90000`, "tool_timeout_sec = 300", "5m0s 0s"},
		{"a longer one comes first", `, "timeout": 300000`, "tool_timeout_sec = 90", "5m0s 0s"},
		{"only the first has one, which is short", `, "timeout": 30000`, "", "0s 0s"},
		{"only the first has one, which is long", `, "timeout": 300000`, "", "5m0s 0s"},
		{"the start", "", "startup_timeout_sec = 300", "0s 5m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := mustHome(t, "linux", map[string]string{
				".gemini/settings.json": `{"mcpServers": {"x": {"command": "x-server"` + tt.gemini + `}}}`,
				".codex/config.toml":    "[mcp_servers.y]\ncommand = \"x-server\"\n" + tt.codex + "\n",
			})
			servers, errs := h.Read(h.Places())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			slices.SortFunc(servers, func(a, b *Server) int { return strings.Compare(a.Name, b.Name) })
			out := (&Merge{Getenv: h.Getenv}).Plan(servers)
			if len(out) != 2 || out[1].Result != Same {
				t.Fatalf("the servers are not equal: %+v", out)
			}
			if e := out[0].Server.Entry; fmt.Sprint(e.Timeout, e.ConnectTimeout) != tt.want {
				t.Errorf("timeout and connect_timeout are %v %v, want %s", e.Timeout, e.ConnectTimeout, tt.want)
			}
		})
	}
}

// TestSecretNames tells secrets from settings by the names of their fields.
func TestSecretNames(t *testing.T) {
	names := map[string]bool{
		"GITHUB_TOKEN": true, "API_KEY": true, "apiKey": true, "DB_PASSWORD": true, "X-Api-Key": true,
		"Authorization": true, "--token": true, "CLIENT_SECRET": true, "SENTRY_DSN": true, "MONKEY": false, "KEYBOARD": false,
		"PATH": false, "AUTHOR": false, "LOG_LEVEL": false, "HOST": false,
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if got := secretName(name); got != names[name] {
			t.Errorf("secretName(%s) = %v", name, got)
		}
	}
	for text, want := range map[string]string{
		"plain text":                                                    "",
		"@scope/package@2026.8.31":                                      "",
		"x ghp_canary0000000000000000000 y":                             "ghp_canary0000000000000000000",
		"https://x/s/c4n4ry0123456789abcdefghijklmnop/mcp":              "c4n4ry0123456789abcdefghijklmnop",
		"image@sha256:0123456789abcdef0123456789abcdef0123456789abcdef": "",
	} {
		got := ""
		for _, span := range secretSpans(text) {
			got += text[span[0]:span[1]]
		}
		if got != want {
			t.Errorf("the secret in %q is %q, want %q", text, got, want)
		}
	}
}

// TestNotesOrder: two runs say the same.
func TestNotesOrder(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{".config/Code/User/mcp.json": `{"servers": {"s": {"command": "x", "env": {
		"F": "${input:f}", "E": "${input:e}", "D": "${input:d}", "C": "${input:c}", "B": "${input:b}", "A": "${input:a}"}}}}`})
	servers, errs := h.Read(h.Places())
	if len(servers) != 1 || len(errs) > 0 {
		t.Fatal(servers, errs)
	}
	if notes := servers[0].Entry.Notes; len(notes) != 6 || !slices.IsSorted(notes) {
		t.Errorf("the notes are %q", notes)
	}
}
