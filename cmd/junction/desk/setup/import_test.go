package setup

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/base/cli"
)

// ran is what a run of a command gave.
type ran struct {
	code           int
	stdout, stderr string
}

// runProgram runs one of our commands.
func runProgram(t testing.TB, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	out, errs := authtest.Command(t, args, &stdout, &stderr)
	var file string
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&file, "config", "", "")
	root.AddCommand(Commands(out, errs, &file)...)
	code := cli.Run(t.Context(), root, args, strings.NewReader(stdin), out, errs)
	return ran{code, stdout.String(), stderr.String()}
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// atHome changes to a folder in a home folder with these files, which its configuration is in, too.
func atHome(t *testing.T, files map[string]string) (home string) {
	t.Helper()
	home = t.TempDir()
	for name, text := range files {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, file, text)
	}
	if err := os.MkdirAll(filepath.Join(home, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"} {
		t.Setenv(name, "")
	}
	t.Chdir(filepath.Join(home, "work"))
	return home
}

// TestImportLists: the list shows where each server is, and no secret; one broken file hides none
// of the others.
func TestImportLists(t *testing.T) {
	atHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"one": {"command": "npx",
			"args": ["-y", "a-server", "--key", "canary-1"], "env": {"TOKEN": "canary-2"}}}}`,
		".claude.json": "{\n  \"mcpServers\": {\n    \"two\": {",
		"other.json":   `{"servers": {"three": {"url": "https://mcp.example.com/path?key=canary-3"}}}`,
	})
	got := runProgram(t, "", "import")
	want := "SERVER  FOUND IN                      RESULT\n" +
		"one     Cursor, ~/.cursor/mcp.json:1  new: one, npx a-server, 2 secrets to a file\n"
	broken := strings.HasPrefix(got.stderr, "warning: ~/.claude.json line 3: is not JSON: ")
	if got.code != 0 || !strings.HasPrefix(got.stdout, want) || !broken {
		t.Errorf("import gave %d\n%s\n%s\nwant\n%s", got.code, got.stdout, got.stderr, want)
	}
	mustWrite(t, ".mcp.json", `{"mcpServers": {"four": {"command": "x"}}}`)
	got = runProgram(t, "", "import", "--config", "a.yaml")
	for _, want := range []string{"junction import --write --config a.yaml", "junction import --project . --write --config a.yaml"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("import of another configuration gave\n%s\nwant %s", got.stdout, want)
		}
	}
	got = runProgram(t, "", "import", "--from", "claude-code")
	if got.code != 1 || !strings.Contains(got.stderr, "line 3: ") {
		t.Errorf("import of a broken file gave %d, %s", got.code, got.stderr)
	}
	got = runProgram(t, "", "import", "--from", "../other.json", "--json")
	var list importJSON
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Servers) != 1 {
		t.Fatalf("import --json: %v\n%s", err, got.stdout)
	}
	s := list.Servers[0]
	if s.Upstream != "three" || s.Result != "new" || len(s.Secrets) != 1 || s.Summary != "https://mcp.example.com/path" {
		t.Errorf("import --json gave %+v", s)
	}
	got = runProgram(t, "", "import", "--from", "emacs")
	if got.code != 2 || !strings.Contains(got.stderr, "the clients are claude-code, ") {
		t.Errorf("an unknown client gave %d, %s", got.code, got.stderr)
	}
}

// TestImportHoldsProjects: the servers of the current project are listed, and decide nothing about
// those that are imported: neither their names, nor whether they are enabled.
func TestImportHoldsProjects(t *testing.T) {
	home := atHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"notes": {"command": "one"},
			"off": {"command": "two", "cwd": "~/work", "disabled": true}}}`,
		"work/.mcp.json":        `{"mcpServers": {"notes": {"command": "evil"}, "off": {"command": "two"}}}`,
		"work/.cursor/mcp.json": `{"mcpServers": {`,
	})
	for _, args := range [][]string{{"import", "--json"}, {"import", "--json", "--write", "--yes"}} {
		got := runProgram(t, "", args...)
		var list importJSON
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != 0 {
			t.Fatalf("%v gave %d, %v\n%s", args, got.code, err, got.stderr)
		}
		var said []string
		for _, s := range list.Servers {
			said = append(said, s.Server+" "+string(s.Scope)+" "+string(s.Result)+" "+s.Upstream)
		}
		want := "notes user new notes, off user new off, notes project held , off project same off"
		if got := strings.Join(said, ", "); got != want {
			t.Errorf("%v gave %s, want %s", args, got, want)
		}
		if len(list.Failures) != 1 || list.Servers[0].Look == nil || list.Servers[2].Look != nil {
			t.Errorf("%v gave %d failures, looks %v and %v", args, len(list.Failures), list.Servers[0].Look, list.Servers[2].Look)
		}
	}
	text, err := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml"))
	if err != nil || strings.Contains(string(text), "evil") || !strings.Contains(string(text), "enabled: false") {
		t.Errorf("the configuration is, %v:\n%s", err, text)
	}
}

// TestImportAsks: an import asks the URLs of new servers, with few requests and without credentials, and only after the
// person has confirmed what was shown. The entry gets the auth that the answer 401 asks for.
func TestImportAsks(t *testing.T) {
	var requests atomic.Int32
	var seen sync.Map
	answer := func(challenge string, status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if r.Header.Get("Authorization") != "" || r.Header.Get("X-Team") != "" {
				seen.Store(r.URL.Path, true)
			}
			if challenge != "" {
				w.Header().Set("WWW-Authenticate", challenge)
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/mcp"
	}
	oauth := answer(`Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource"`, 401)
	token, open := answer("Bearer", 401), answer("", 200)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	home := atHome(t, map[string]string{".cursor/mcp.json": `{"mcpServers": {
		"oauth": {"url": "` + oauth + `", "headers": {"X-Team": "blue"}},
		"token": {"url": "` + token + `"},
		"open": {"command": "npx", "args": ["-y", "mcp-remote@latest", "` + open + `"]},
		"gone": {"url": "` + gone.URL + `/mcp"},
		"own": {"url": "` + oauth + `/2", "headers": {"Authorization": "Bearer canary-1"}},
		"off": {"url": "` + oauth + `/3", "disabled": true}}}`})
	for _, args := range [][]string{{"import"}, {"import", "--json"}, {"import", "--write"}, {"import", "--write", "--json"}} {
		runProgram(t, "", args...)
		if n := requests.Load(); n != 0 {
			t.Fatalf("%v sent %d requests before a person confirmed", args, n)
		}
	}
	got := runProgram(t, "", "import", "--write", "--yes")
	const most = 6 // for one server: the handshakes of both eras, and the documents of a sign-in
	if n := requests.Load(); got.code != 0 || n < 3 || n > 3*most {
		t.Errorf("import gave %d after %d requests, want 0 after at most 6 for each of 3 servers\n%s%s", got.code, n, got.stdout, got.stderr)
	}
	seen.Range(func(path, _ any) bool {
		t.Errorf("the request to %v had headers of the entry", path)
		return true
	})
	for _, want := range []string{
		"\nSign in with: junction login oauth\n",
		"\ntoken answered 401 Unauthorized and named no sign-in: it needs a token; set headers, such as Authorization: \"Bearer ${TOKEN}\".\n",
		"\ngone could not be asked whether it needs a sign-in, because ",
		"connects to the URL without mcp-remote",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("import prints\n%s\nwant %q", got.stdout, want)
		}
	}
	text, err := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml"))
	want := "  oauth:\n    url: " + oauth + "\n    headers:\n      X-Team: blue\n    auth: {mode: oauth}\n"
	if err != nil || !strings.Contains(strings.ReplaceAll(string(text), "'", ""), want) ||
		strings.Count(string(text), " auth: {") != 1 || !strings.Contains(string(text), "\n  gone:") {
		t.Errorf("the configuration is, %v:\n%s\nwant\n%s", err, text, want)
	}
}

// TestPick reads the answers to a question for some of a few names.
func TestPick(t *testing.T) {
	for answer, want := range map[string]string{
		"": "a b-c d", "all": "a b-c d", "none": "", "B-C, a": "b-c a", "a a": "a", "-a": "b-c d", "-b-c -d": "a",
		"all -d": "a b-c", "a -a": "", "x": "? x", "-x": "? x", "all x": "? x",
		"y": "a b-c d", "YES": "a b-c d", "n": "", "no": "", "y a": "? y",
	} {
		chosen, unknown := pick(answer, []string{"a", "b-c", "d"})
		got := strings.Join(chosen, " ")
		if unknown != "" {
			got = "? " + unknown
		}
		if got != want {
			t.Errorf("pick(%q) = %q, want %q", answer, got, want)
		}
	}
	if chosen, unknown := pick("No", []string{"a", "no"}); strings.Join(chosen, " ") != "no" || unknown != "" {
		t.Errorf("of a server that is called no, No chooses %q, %q", chosen, unknown)
	}
	all := []string{"a", "b"}
	if pick("-a", all); strings.Join(all, " ") != "a b" {
		t.Errorf("the names have become %q", all)
	}
}

// TestImportWithoutServersOfClients: where no client has a server, the line names a file that could not be
// read, and the servers that the configuration has already.
func TestImportWithoutServersOfClients(t *testing.T) {
	home := atHome(t, map[string]string{".claude.json": "{\n  \"mcpServers\": {"})
	file := filepath.Join(home, "work", "mine.yaml")
	mustWrite(t, file, "upstreams:\n  a: { command: [x] }\n  b: { command: [x] }\n")
	got := runProgram(t, "", "import", "--config", file)
	want := "No servers found in the files of MCP clients; 1 file could not be read; ~/work/mine.yaml has 2 servers.\n"
	if got.stdout != want {
		t.Errorf("import prints %q, want %q", got.stdout, want)
	}
}

// TestImportOfAName: only the servers of the given names are imported, and a name that no server has is an error.
func TestImportOfAName(t *testing.T) {
	home := atHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"one": {"command": "a"}, "my notes": {"command": "b"}, "two": {"command": "c"}}}`,
		".claude.json":     `{"mcpServers": {"one": {"command": "d"}}}`,
	})
	for name, want := range map[string]string{"nots": "junction import lists them", "cursor": "junction import --from cursor"} {
		if got := runProgram(t, "", "import", name); got.code != 1 || !strings.Contains(got.stderr, want) {
			t.Errorf("import %s: %+v", name, got)
		}
	}
	for _, test := range []struct{ name, want string }{
		{"One", "one: one-2:"}, // of both clients
		{"my-notes", "my-notes:"},
		{"two", "two:"},
	} {
		mustWrite(t, filepath.Join(home, "work", "c.yaml"), "upstreams: {}\n")
		got := runProgram(t, "", "import", test.name, "--write", "--yes", "--config", "c.yaml")
		text, err := os.ReadFile("c.yaml")
		if err != nil || got.code != 0 {
			t.Fatal(err, got)
		}
		var names []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "  ") && strings.HasSuffix(line, ":\n") && !strings.HasPrefix(line, "   ") {
				names = append(names, strings.TrimSpace(line))
			}
		}
		if strings.Join(names, " ") != test.want {
			t.Errorf("import %s gives %v, want %s\n%s", test.name, names, test.want, text)
		}
	}
}

// TestSetupWithoutClients: setup says how a client is connected if it finds none.
func TestSetupWithoutClients(t *testing.T) {
	atHome(t, nil)
	var out bytes.Buffer
	g := guide{stdout: &out, file: "mine.yaml", yes: true}
	if _, err := g.connect(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Found no MCP client on this machine.", "run: junction connect CLIENT --config mine.yaml\n",
		"CLIENT is ", "cursor", "Every other client connects to the URL of Junction."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("setup prints %q, want %q in it", out.String(), want)
		}
	}
}
