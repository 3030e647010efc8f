package clients

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

// userFiles are files as people have them: one for each client, on Linux.
var userFiles = map[string]string{
	".claude.json": "{\n  \"numStartups\": 41,\n  \"mcpServers\": {\n" +
		"    \"a\": {\n      \"command\": \"one\"\n    }\n  },\n  \"projects\": {}\n}\n",
	".config/Claude/claude_desktop_config.json": "{}",
	".cursor/mcp.json": "{\n\t// mine\n\t\"mcpServers\": {\n" +
		"\t\t\"a\": { \"command\": \"one\", }, // first\n\t\t/* last */\n\t},\n}\n",
	".config/Code/User/mcp.json": "\xef\xbb\xbf" + "{\r\n    \"servers\": {\r\n" +
		"        \"a\": {\"command\": \"one\"}\r\n    },\r\n    \"inputs\": []\r\n}",
	".codex/config.toml": "# mine\nmodel = \"x\"\n\n[mcp_servers.a] # first\n" +
		"command = \"one\"\n\n[profiles.fast]\nmodel = \"y\"",
	".gemini/settings.json":             `{"theme":"Dark","mcpServers":{"a":{"command":"one"}},"n":1e400}`,
	".copilot/mcp-config.json":          "{\n  \"mcpServers\": {}\n}\n",
	".config/opencode/opencode.jsonc":   "{\n  \"$schema\": \"x\", // é\n  \"mcp\": { // none yet\n  }\n}\n",
	".codeium/windsurf/mcp_config.json": "",
	".config/goose/config.yaml": "GOOSE_MODE: auto # mine\n\nextensions:\n  developer:\n    enabled: true\n" +
		"    type: builtin # in Goose\n    name: developer\n\n# end\nproviders: {}\n",
	".config/zed/settings.json": "// Zed\n{\n  \"theme\": \"One\",\n  // \"context_servers\": {}\n}\n// end",
}

func mustOutfit(t testing.TB, files map[string]string) *Outfit {
	t.Helper()
	h := mustHome(t, "linux", files)
	return &Outfit{Home: h, Records: &Records{File: filepath.Join(h.Dir, "state", "connections.json")}}
}

const testURL = "http://127.0.0.1:8420/mcp"

var testTarget = Target{Name: "junction", URL: testURL, Key: true, Own: []string{testURL}, Config: "/a.yaml"}

func mustConnect(t testing.TB, o *Outfit, p Place, target Target, remove ...string) *Done {
	t.Helper()
	done, err := o.Connect(context.Background(), p, target, remove)
	if err != nil {
		t.Fatalf("Connect(%s): %v", p.Client.ID, err)
	}
	return done
}

func mustDisconnect(t testing.TB, o *Outfit, p Place) *Done {
	t.Helper()
	done, err := o.Disconnect(p, testTarget)
	if err != nil {
		t.Fatalf("Disconnect(%s): %v", p.Client.ID, err)
	}
	return done
}

func mustRead(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustPlace(t testing.TB, o *Outfit, id string) Place {
	t.Helper()
	c, err := Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := o.Home.Place(c, User)
	if !ok {
		t.Fatalf("%s has no file", id)
	}
	return p
}

// names returns the servers of a place.
func names(t testing.TB, o *Outfit, p Place) []string {
	t.Helper()
	servers, errs := o.Home.Read([]Place{p})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var list []string
	for _, s := range servers {
		list = append(list, s.Name)
	}
	return list
}

// TestConnect connects each client and disconnects it: twice each, and byte for byte.
func TestConnect(t *testing.T) {
	for _, c := range All() {
		t.Run(c.ID, func(t *testing.T) {
			o := mustOutfit(t, userFiles)
			p := mustPlace(t, o, c.ID)
			before := mustRead(t, p.File)
			done := mustConnect(t, o, p, testTarget)
			connected := mustRead(t, p.File)
			if !done.Changed || mustRead(t, done.Backup) != before || !slices.Contains(names(t, o, p), "junction") {
				t.Fatalf("Connect = %+v\n%s", done, connected)
			}
			if again := mustConnect(t, o, p, testTarget); again.Changed || mustRead(t, p.File) != connected {
				t.Errorf("a second Connect changed the file: %+v", again)
			}
			moved := testTarget
			moved.URL, moved.Own = "http://127.0.0.1:9000/mcp", []string{"http://127.0.0.1:9000/mcp"}
			mustConnect(t, o, p, moved)
			if text := mustRead(t, p.File); !strings.Contains(text, ":9000/") || strings.Contains(text, ":8420/") {
				t.Errorf("the URL did not change:\n%s", text)
			}
			done = mustDisconnect(t, o, p)
			if got := mustRead(t, p.File); !done.Changed || got != before {
				t.Errorf("after Disconnect the file is\n%q\nwant\n%q", got, before)
			}
			if done = mustDisconnect(t, o, p); done.Changed {
				t.Errorf("a second Disconnect = %+v", done)
			}
		})
	}
}

// TestConnectEntry: each client gets the form that it reads, without a key in the file.
func TestConnectEntry(t *testing.T) {
	o := mustOutfit(t, userFiles)
	var lines []string
	for _, c := range All() {
		p := mustPlace(t, o, c.ID)
		mustConnect(t, o, p, testTarget)
		text, _ := revision.Read(p.File)
		servers, err := c.format.Servers(text, p.servers(text))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(servers, func(r format.Server) bool { return r.Name == "junction" })
		lines = append(lines, strings.ReplaceAll(fmt.Sprint(c.ID, " ", servers[i].Fields), testURL, "URL"))
	}
	want := `claude-code map[headers:map[Authorization:Bearer ${JUNCTION_KEY} Junction-Folder:${PWD:-}] type:http url:URL]
claude-desktop map[args:[stdio --url URL] command:junction]
cursor map[headers:map[Authorization:Bearer ${env:JUNCTION_KEY} Junction-Folder:${workspaceFolder}] url:URL]
vscode map[headers:map[Authorization:Bearer ${input:junction-key}] type:http url:URL]
codex map[bearer_token_env_var:JUNCTION_KEY env_http_headers:map[Junction-Folder:PWD] url:URL]
gemini map[headers:map[Authorization:Bearer ${JUNCTION_KEY} Junction-Folder:${PWD:-}] httpUrl:URL]
copilot map[headers:map[Authorization:Bearer ${JUNCTION_KEY} Junction-Folder:${PWD:-}] tools:[*] type:http url:URL]
opencode map[headers:map[Authorization:Bearer {env:JUNCTION_KEY} Junction-Folder:{env:PWD}] type:remote url:URL]
windsurf map[headers:map[Authorization:Bearer ${env:JUNCTION_KEY}] serverUrl:URL]
zed map[args:[stdio --url URL] command:junction]
goose map[description:All MCP servers of Junction enabled:true env_keys:[JUNCTION_KEY] ` +
		`headers:map[Authorization:Bearer ${JUNCTION_KEY}] name:junction type:streamable_http uri:URL]`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the entries are\n%s\nwant\n%s", got, want)
	}
}

// TestConnectReplaces: the servers that Connect takes out come back, in whatever the file has
// become in between.
func TestConnectReplaces(t *testing.T) {
	const text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"one\", \"n\": [1, 2.50]}, // first\n" +
		"    \"b\": {\"command\": \"two\"},\n    \"c\": {}\n  }\n}\n"
	for _, test := range []struct {
		name   string
		change func(string) string
		want   string // "" is the text as it was, with the same change
	}{
		{"nothing", func(s string) string { return s }, ""},
		{"elsewhere", func(s string) string { return "// new\n" + s + "// end\n" }, ""},
		{"another server", func(s string) string { return strings.Replace(s, `"c": {}`, `"c": {"command": "x"}`, 1) }, ""},
		{"the entry", func(s string) string { return strings.Replace(s, "8420", "8421", 1) }, "a b c"},
		{"its place", func(s string) string { return strings.Replace(s, `"junction"`, "\n\n\"junction\"", 1) }, "a b c"},
		{"the entry is gone", func(s string) string { return "{\"mcpServers\": {\"c\": {}}}" }, "a b c"},
		{"a server is back", func(s string) string {
			return strings.Replace(s, `"c": {}`, `"c": {}, "a": {"command": "own"}`, 1)
		}, "a b c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, map[string]string{".cursor/mcp.json": text})
			p := mustPlace(t, o, "cursor")
			done := mustConnect(t, o, p, testTarget, "a", "b")
			if got := names(t, o, p); !slices.Equal(got, []string{"c", "junction"}) || len(done.Removed) != 2 {
				t.Fatalf("the servers are %q, %q removed", got, done.Removed)
			}
			if again := mustConnect(t, o, p, testTarget); again.Changed {
				t.Errorf("Connect without servers to remove changed the file: %+v", again)
			}
			changed := test.change(mustRead(t, p.File))
			if err := os.WriteFile(p.File, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(done.Backup); err != nil {
				t.Fatal(err)
			}
			mustDisconnect(t, o, p)
			got, want := mustRead(t, p.File), test.change(text)
			if test.want == "" && got != want {
				t.Errorf("the file is\n%s\nwant\n%s", got, want)
			}
			servers := strings.Join(slices.Sorted(slices.Values(names(t, o, p))), " ")
			if test.want != "" && servers != test.want {
				t.Errorf("the servers are %s\n%s", servers, got)
			}
		})
	}
}

// TestDisconnectOfCodex: a table comes back as it was written, with values of each type, also in a
// file that has changed since.
func TestDisconnectOfCodex(t *testing.T) {
	for _, test := range []struct{ name, block, want string }{ // "" is the block
		{"numbers", "[mcp_servers.files]\ncommand = \"one\"\nargs = [\"a\",\"c\"]\nstartup_timeout_sec = 20.0\n" +
			"tool_timeout_sec = 60 # long\n# twice\nstartup_timeout_ms = 20_000\nenv = {}\n", ""},
		{"a date", "[mcp_servers.files]\nurl = \"https://x.example/mcp\"\nsince = 2026-01-02T03:04:05Z\n" +
			"day = 2026-01-02\n[mcp_servers.files.env]\nA = 'x'\n", ""},
		{"keys of another table", "[mcp_servers]\nfiles.command = \"one\"\nfiles.tool_timeout_sec = 20.0\n",
			"[mcp_servers.files]\ncommand = 'one'\ntool_timeout_sec = 20.0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, map[string]string{".codex/config.toml": "model = \"x\"\n\n" + test.block})
			p := mustPlace(t, o, "codex")
			mustConnect(t, o, p, testTarget, "files")
			rewrite(t, p, `"x"`, `"y"`)
			if done := mustDisconnect(t, o, p); len(done.Lost) > 0 {
				t.Fatalf("lost: %+v", done)
			}
			got, want := mustRead(t, p.File), cmp.Or(test.want, test.block)
			if !strings.HasPrefix(got, "model = \"y\"\n") || !strings.HasSuffix(got, "\n\n"+want) {
				t.Errorf("the file is\n%s\nwant the table\n%s", got, want)
			}
		})
	}
}

// rewrite replaces a text in the file of a place.
func rewrite(t testing.TB, p Place, from, to string) {
	t.Helper()
	text := strings.Replace(mustRead(t, p.File), from, to, 1)
	if err := os.WriteFile(p.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDisconnectLosesNothing: a server that cannot be put back does not keep Junction in the file. The
// note names the backup, or has the server if the backup is gone.
func TestDisconnectLosesNothing(t *testing.T) {
	for _, backup := range []bool{true, false} {
		o := mustOutfit(t, map[string]string{".codex/config.toml": "model = \"x\"\n\n[mcp_servers.files]\ncommand = \"one\"\n"})
		p := mustPlace(t, o, "codex")
		connected := mustConnect(t, o, p, testTarget, "files")
		const inline = "mcp_servers = {other = {command = \"two\"}}\n" // no table can follow
		if err := os.WriteFile(p.File, []byte(inline), 0o600); err != nil {
			t.Fatal(err)
		}
		want := "copy it from the backup ~/.codex/config.toml."
		if !backup {
			want = "add it by hand:\n[mcp_servers.files]\ncommand = \"one\"\n"
			if err := os.Remove(connected.Backup); err != nil {
				t.Fatal(err)
			}
		}
		done := mustDisconnect(t, o, p)
		if !slices.Equal(done.Lost, []string{"files"}) || len(done.Removed) > 0 || len(done.Notes) != 1 ||
			!strings.Contains(done.Notes[0], want) {
			t.Errorf("Disconnect = %+v; want the note %q", done, want)
		}
		if rec, err := o.Records.find(p); rec != nil || err != nil {
			t.Errorf("the record is %v, %v; want none", rec, err)
		}
	}
}

// TestConnectForgets: after a person has restored a file by hand, its servers are the person's.
func TestConnectForgets(t *testing.T) {
	const was = "model = \"x\"\n\n[mcp_servers.files]\ncommand = \"one\"\n"
	o := mustOutfit(t, map[string]string{".codex/config.toml": was})
	p := mustPlace(t, o, "codex")
	mustConnect(t, o, p, testTarget, "files")
	const now = "[mcp_servers.files]\ncommand = \"new\"\n"
	if err := os.WriteFile(p.File, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
	mustConnect(t, o, p, testTarget)
	if got := names(t, o, p); !slices.Equal(got, []string{"files", "junction"}) {
		t.Errorf("the servers are %q", got)
	}
	rewrite(t, p, "\"new\"", "\"newer\"")
	mustDisconnect(t, o, p)
	if got, want := mustRead(t, p.File), strings.Replace(now, "new", "newer", 1); got != want {
		t.Errorf("the file is\n%s\nwant\n%s", got, want)
	}
}

// TestConnectKeepsWhatIsBack: a server that a person put back beside Junction stays, as the person
// wrote it.
func TestConnectKeepsWhatIsBack(t *testing.T) {
	o := mustOutfit(t, map[string]string{".cursor/mcp.json": `{"mcpServers":{"a":{"command":"one"}}}`})
	p := mustPlace(t, o, "cursor")
	mustConnect(t, o, p, testTarget, "a")
	rewrite(t, p, `"junction"`, `"a":{"command":"own"},"junction"`)
	mustConnect(t, o, p, testTarget)
	if got := names(t, o, p); !slices.Equal(got, []string{"a", "junction"}) {
		t.Errorf("the servers are %q", got)
	}
	mustDisconnect(t, o, p)
	if got := mustRead(t, p.File); !strings.Contains(got, `"own"`) || strings.Contains(got, `"one"`) {
		t.Errorf("the file is %s", got)
	}
}

// TestConnectKeepsAnotherJunction: a file with the entry of another configuration stays as it is, until
// that configuration or a person has taken its entry out.
func TestConnectKeepsAnotherJunction(t *testing.T) {
	const was = `{"mcpServers":{"notes":{"command":"one"}}}`
	o := mustOutfit(t, map[string]string{".cursor/mcp.json": was})
	p := mustPlace(t, o, "cursor")
	mustConnect(t, o, p, testTarget, "notes")
	connected := mustRead(t, p.File)
	other := Target{Name: "junction", URL: "http://127.0.0.1:9000/mcp", Own: []string{"http://127.0.0.1:9000/mcp"},
		Config: "/b.yaml"}
	named := other
	named.Name = "home"
	const want = "~/.cursor/mcp.json: is connected to another Junction (" + testURL + "); run first: " +
		"junction disconnect cursor --config /a.yaml"
	for _, target := range []Target{other, named} {
		_, err := o.Connect(t.Context(), p, target, nil)
		_, undoErr := o.Disconnect(p, target)
		if fmt.Sprint(err) != want || fmt.Sprint(undoErr) != want {
			t.Errorf("as %s, Connect = %v\nDisconnect = %v\nwant %s", target.Name, err, undoErr, want)
		}
		if got := mustRead(t, p.File); got != connected {
			t.Errorf("as %s, the file has become\n%s", target.Name, got)
		}
	}
	same := testTarget
	same.Config = "/moved.yaml" // a renamed file
	mustConnect(t, o, p, same)
	mustDisconnect(t, o, p)
	mustConnect(t, o, p, named)
	if err := os.WriteFile(p.File, []byte(was), 0o600); err != nil { // restored by hand
		t.Fatal(err)
	}
	mustConnect(t, o, p, testTarget)
	if got := names(t, o, p); !slices.Equal(got, []string{"notes", "junction"}) {
		t.Errorf("the servers are %q", got)
	}
}

// TestDisconnectRemovesTheBackup: the backup goes when the file is what it was, and is named where
// it stays.
func TestDisconnectRemovesTheBackup(t *testing.T) {
	for _, edited := range []bool{false, true} {
		o := mustOutfit(t, userFiles)
		p := mustPlace(t, o, "codex")
		backup := mustConnect(t, o, p, testTarget).Backup
		if edited {
			rewrite(t, p, "# mine", "# ours")
		}
		done := mustDisconnect(t, o, p)
		_, err := os.Stat(backup)
		if gone := errors.Is(err, fs.ErrNotExist); gone == edited {
			t.Errorf("edited: %t; the backup is gone: %t", edited, gone)
		}
		if named := slices.Contains(done.Stays, backup); named != edited {
			t.Errorf("edited: %t; the backup that stays is %q", edited, done.Stays)
		}
	}
}

// TestConnectFiles: mode and links of a file stay, and only its owner can read the backup; what cannot be
// edited stays as it is.
func TestConnectFiles(t *testing.T) {
	const text = "{\"mcpServers\": {}}"
	o := mustOutfit(t, map[string]string{"real.json": text, ".cursor/x": ""})
	p := mustPlace(t, o, "cursor")
	real := filepath.Join(o.Home.Dir, "real.json")
	if err := errors.Join(os.Symlink(real, p.File), os.Chmod(real, 0o640)); err != nil {
		t.Fatal(err)
	}
	done := mustConnect(t, o, p, testTarget)
	for file, want := range map[string]fs.FileMode{real: 0o640, done.Backup: 0o600} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != want {
			t.Errorf("%s has the mode %v, %v; want %v", file, info, err, want)
		}
	}
	if info, err := os.Lstat(p.File); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	mustDisconnect(t, o, p)
	if got := mustRead(t, real); got != text {
		t.Errorf("the file is %q, want %q", got, text)
	}
	for _, test := range []struct{ name, text, want string }{
		{"cut off", "{\n\"mcpServers\": {", "~/.cursor/mcp.json line 2: is not JSON: "},
		{"another junction", `{"mcpServers": {"junction": {"command": "mine"}}}`, "choose a name with --name"},
		{"large", strings.Repeat(" ", revision.MaxSize+1), "is larger than 10 MiB"},
	} {
		if err := os.WriteFile(real, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := o.Connect(t.Context(), p, testTarget, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || mustRead(t, real) != test.text {
			t.Errorf("%s: %v; want %q, and the file as it was", test.name, err, test.want)
		}
	}
	if err := errors.Join(os.WriteFile(real, []byte(text), 0o600), os.Chmod(real, 0o400)); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Connect(t.Context(), p, testTarget, nil); err == nil || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("a read-only file: %v", err)
	}
	if rec, err := o.Records.find(p); rec != nil || err != nil {
		t.Error("a Connect that failed is remembered")
	}
	_, err := o.Connect(t.Context(), mustPlace(t, o, "zed"), testTarget, nil)
	if err == nil || !strings.Contains(err.Error(), "there is no folder ~/.config/zed; install Zed") {
		t.Errorf("a client that is not there: %v", err)
	}
}

// TestConnectCreates: a file that Connect created is removed, unless something else is in it.
func TestConnectCreates(t *testing.T) {
	o := mustOutfit(t, map[string]string{".cursor/x": ""})
	p := mustPlace(t, o, "cursor")
	mustConnect(t, o, p, testTarget)
	mustDisconnect(t, o, p)
	if _, err := os.Stat(p.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	mustConnect(t, o, p, testTarget)
	text := strings.Replace(mustRead(t, p.File), "\"mcpServers\": {", "\"mcpServers\": {\n    \"a\": {},", 1)
	if err := os.WriteFile(p.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustDisconnect(t, o, p)
	if got := names(t, o, p); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the servers are %q", got)
	}
}

// claude is the command of Claude Code: it formats the file anew, as the real one does.
type claude struct {
	file string
	fail bool
	args []string
}

func (c *claude) Run(_ context.Context, _ string, args ...string) error {
	c.args = args
	if c.fail {
		return errors.New("exit status 1")
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	const entry = `"mcpServers":{"junction":{"type":"http","url":"` + testURL + `"},`
	text = bytes.Replace(text, []byte(`"mcpServers": {`), []byte(entry), 1)
	return os.WriteFile(c.file, bytes.ReplaceAll(text, []byte("\n"), nil), 0o600)
}

// TestConnectOfAProject: the folder of a client in a project is created, and goes if nothing else is in it.
func TestConnectOfAProject(t *testing.T) {
	for _, id := range []string{"cursor", "vscode", "zed", "copilot"} {
		o := mustOutfit(t, map[string]string{"repo/x": ""})
		o.Home.Project = filepath.Join(o.Home.Dir, "repo")
		c, err := Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := o.Home.Place(c, Project)
		mustConnect(t, o, p, testTarget)
		if got := names(t, o, p); !slices.Equal(got, []string{"junction"}) {
			t.Errorf("%s: the servers are %q", id, got)
		}
		mustDisconnect(t, o, p)
		if left, err := os.ReadDir(o.Home.Project); len(left) != 1 {
			t.Errorf("%s: the project has %v, %v", id, left, err)
		}
		p.folder = filepath.Join(o.Home.Dir, "none")
		p.File = filepath.Join(p.folder, ".x", "mcp.json")
		if _, err := o.Connect(t.Context(), p, testTarget, nil); err == nil || !strings.Contains(err.Error(), "there is no folder ~/none") {
			t.Errorf("%s: a project that is not there: %v", id, err)
		}
	}
}

// TestConnectByCommand: Claude Code adds the entry itself; if it does not, the file is edited.
func TestConnectByCommand(t *testing.T) {
	for _, fail := range []bool{false, true} {
		o := mustOutfit(t, userFiles)
		p := mustPlace(t, o, "claude-code")
		run := &claude{file: p.File, fail: fail}
		o.Run = run.Run
		before := mustRead(t, p.File)
		done := mustConnect(t, o, p, testTarget)
		if done.Command == fail || !slices.Contains(names(t, o, p), "junction") {
			t.Errorf("Connect = %+v", done)
		}
		const want = "mcp add --scope user --transport http junction " + testURL +
			" --header Authorization: Bearer ${JUNCTION_KEY} --header Junction-Folder: ${PWD:-}"
		if got := strings.Join(run.args, " "); got != want {
			t.Errorf("claude was run with %q, want %q", got, want)
		}
		mustDisconnect(t, o, p)
		if got := mustRead(t, p.File); got != before {
			t.Errorf("the file is\n%s\nwant\n%s", got, before)
		}
	}
}

// TestRecords: what is remembered is for the user only, and a broken file says what to do.
func TestRecords(t *testing.T) {
	o := mustOutfit(t, userFiles)
	p := mustPlace(t, o, "cursor")
	mustConnect(t, o, p, testTarget, "a")
	if info, err := os.Stat(o.Records.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of records is %v, %v", info, err)
	}
	if err := os.WriteFile(o.Records.File, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := o.Disconnect(p, testTarget)
	if err == nil || !strings.Contains(err.Error(), "is not what junction connect wrote") {
		t.Errorf("Disconnect with a broken file of records: %v", err)
	}
	if !slices.Contains(names(t, o, p), "junction") {
		t.Error("the file was changed, and the servers that were taken out are lost")
	}
}

// TestImportReadsShortTimeoutsAsSeconds: a timeout of 60 is that of a client which counts seconds, and of
// 60000 that of one which counts milliseconds.
func TestImportReadsShortTimeoutsAsSeconds(t *testing.T) {
	o := mustOutfit(t, map[string]string{".gemini/settings.json": `{"mcpServers":{"a":{"command":"x","timeout":60},` +
		`"b":{"command":"x","timeout":60000},"c":{"command":"x"}}}`})
	servers, errs := o.Home.Read([]Place{mustPlace(t, o, "gemini")})
	var got []string
	for _, s := range servers {
		got = append(got, fmt.Sprint(s.Name, " ", s.Entry.Timeout, " ", s.Entry.Notes))
	}
	want := []string{"a 1m0s [the timeout counts as seconds: 1m]", "b 1m0s []", "c 0s []"}
	if len(errs) > 0 || !slices.Equal(got, want) {
		t.Errorf("the entries are %q, %v; want %q", got, errs, want)
	}
}

// TestImportLeavesTimeToInstall: a short startup timeout of Codex does not become that of a command which
// may download its package first, and a note says so.
func TestImportLeavesTimeToInstall(t *testing.T) {
	o := mustOutfit(t, map[string]string{".codex/config.toml": "[mcp_servers.a]\ncommand = \"npx\"\nstartup_timeout_sec = 20\n" +
		"[mcp_servers.b]\ncommand = \"npx\"\nstartup_timeout_sec = 180\n[mcp_servers.c]\ncommand = \"own\"\nstartup_timeout_sec = 20\n"})
	servers, errs := o.Home.Read([]Place{mustPlace(t, o, "codex")})
	var got []string
	for _, s := range servers {
		got = append(got, fmt.Sprint(s.Name, " ", s.Entry.ConnectTimeout, " ", s.Entry.Notes))
	}
	want := []string{"a 0s [the start may take 2m, not 20s, because the package may have to be downloaded first]",
		"b 3m0s []", "c 20s []"}
	if len(errs) > 0 || !slices.Equal(got, want) {
		t.Errorf("the entries are %q, %v; want %q", got, errs, want)
	}
}

// TestImportKnowsListsOfGemini: a server that the lists of Gemini CLI leave out is disabled.
func TestImportKnowsListsOfGemini(t *testing.T) {
	const servers = `"mcpServers":{"a":{"command":"x"},"b":{"command":"x"}}}`
	for lists, want := range map[string]string{
		``:                                "a=false b=false",
		`"mcp":{"excluded":["a"]},`:       "a=true b=false",
		`"mcp":{"allowed":["a"]},`:        "a=false b=true",
		`"mcp":{"allowed":[]},`:           "a=true b=true",
		`"excludeMCPServers":["b"],`:      "a=false b=true",
		`"allowMCPServers":["b"],`:        "a=true b=false",
		`"mcp":{"serverCommand":"none"},`: "a=false b=false",
	} {
		o := mustOutfit(t, map[string]string{".gemini/settings.json": "{" + lists + servers})
		found, errs := o.Home.Read([]Place{mustPlace(t, o, "gemini")})
		var got []string
		for _, s := range found {
			got = append(got, fmt.Sprintf("%s=%t", s.Name, s.Entry.Off))
		}
		if len(errs) > 0 || strings.Join(got, " ") != want {
			t.Errorf("with %s, disabled are %q, %v; want %s", lists, got, errs, want)
		}
	}
}

// TestImportKnowsListsOfClaudeCode: a server that the user has disabled or rejected in a project is
// disabled there, and nowhere else. A rejected name counts as it is in rules.
func TestImportKnowsListsOfClaudeCode(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".claude.json": `{"mcpServers":{"a":{"command":"x"},"b":{"command":"x"}},"projects":{
			"HOME/work":{"mcpServers":{"a":{"command":"l"},"c":{"command":"l"}},
				"disabledMcpServers":["a","d"],"disabledMcpjsonServers":["e"]},
			"HOME/other":{"disabledMcpServers":["c","h"]}}}`,
		".claude/settings.json": `{"disabledMcpjsonServers":["b","c","f"]}`,
		"work/.mcp.json": `{"mcpServers":{"d":{"command":"p"},"e":{"command":"p"},"f":{"command":"p"},
			"my git":{"command":"p"},"h":{"command":"p"}}}`,
		"work/.claude/settings.local.json": `{"enabledMcpjsonServers":["f"],"disabledMcpjsonServers":["my_git",7]}`,
	})
	servers, errs := h.Read(h.Places())
	var off, on []string
	for _, s := range servers {
		if name := fmt.Sprintf("%s %s", s.Scope, s.Name); s.Entry.Off {
			off = append(off, name)
		} else {
			on = append(on, name)
		}
	}
	wantOff := []string{"local a", "project d", "project e", "project f", "project my git"}
	wantOn := []string{"user a", "user b", "local c", "project h"}
	if len(errs) > 0 || !slices.Equal(off, wantOff) || !slices.Equal(on, wantOn) {
		t.Errorf("disabled are %q, the others %q, %v; want %q, %q", off, on, errs, wantOff, wantOn)
	}
}

// TestImportReadsSomeProfiles: of very many profiles of VS Code, only some are read.
func TestImportReadsSomeProfiles(t *testing.T) {
	files := map[string]string{}
	for i := range maxProfiles + 20 {
		files[fmt.Sprintf(".config/Code/User/profiles/%03d/mcp.json", i)] = `{"servers":{"s":{"command":"x"}}}`
	}
	h := mustHome(t, "linux", files)
	if servers, errs := h.Read(h.Places()); len(servers) != maxProfiles || len(errs) > 0 {
		t.Errorf("Read = %d servers, %v; want %d", len(servers), errs, maxProfiles)
	}
}

// TestImportKnowsRulesOfClients: tools that Claude Code and opencode deny by the names of their own
// servers are hidden, because those rules do not match the names of Junction's tools.
func TestImportKnowsRulesOfClients(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".claude.json": `{"mcpServers":{"my git":{"command":"x"},"git":{"command":"y","includeTools":["read","delete_all"]},"all":{"command":"z"}}}`,
		".claude/settings.json": `{"permissions":{"allow":["mcp__git__read"],
			"deny":["mcp__my_git__drop","mcp__git__delete_*","mcp__all","Bash(rm:*)"]}}`,
		"work/.mcp.json":                   `{"mcpServers":{"git":{"command":"p"}}}`,
		"work/.claude/settings.json":       `{"permissions":{"deny":["mcp__git__push"]}}`,
		"work/.claude/settings.local.json": `{"permissions":{"deny":["mcp__git__tag"]}}`,
		".config/opencode/opencode.json": `{"tools":{"wiki_drop":false,"wiki_read":true,"wiki_ask":"ask","all*":false,"wiki":false},
			"mcp":{"wiki":{"type":"local","command":["w"]},"all":{"type":"local","command":["a"]}}}`,
	})
	servers, errs := h.Read(h.Places())
	var got []string
	for _, s := range servers {
		got = append(got, fmt.Sprintf("%s %s %t %q %q", s.Scope, s.Name, s.Entry.Off, s.Entry.Without, s.Entry.Only))
	}
	want := []string{`user my git false ["drop"] []`, `user git false ["delete_*"] ["read"]`, `user all true [] []`,
		`project git false ["delete_*" "push" "tag"] []`, `user wiki false ["drop"] []`, `user all true [] []`}
	if len(errs) > 0 || !slices.Equal(got, want) {
		t.Errorf("the entries are %q, %v; want %q", got, errs, want)
	}
	o := mustOutfit(t, map[string]string{"elsewhere/settings.json": `{"permissions":{"deny":["mcp__git__push"]}}`,
		"elsewhere/.claude.json": `{"mcpServers":{"git":{"command":"y"}}}`})
	o.Home.Getenv = environment(map[string]string{"CLAUDE_CONFIG_DIR": filepath.Join(o.Home.Dir, "elsewhere")})
	servers, errs = o.Home.Read([]Place{mustPlace(t, o, "claude-code")})
	if len(errs) > 0 || len(servers) != 1 || !slices.Equal(servers[0].Entry.Without, []string{"push"}) {
		t.Errorf("with CLAUDE_CONFIG_DIR the servers are %v, %v", servers, errs)
	}
}

// TestImportKnowsPermissionsOfOpencode: a tool that opencode denies is hidden, under any glob, and a note names the
// tools before which it asks. A later rule lifts a deny only if it is more specific.
func TestImportKnowsPermissionsOfOpencode(t *testing.T) {
	const hides, asks, patterns = "the settings of opencode hide ", "opencode asks before it calls ", "not imported: "
	for rules, want := range map[string]string{
		`"permission":{"git_push":"deny","github_drop":"deny","git":"deny","bash":"deny"}`: `false ["push"] [] ` + hides + "push",
		`"permission":"deny"`:                                                            `true [] [] ` + hides + "all tools",
		`"permission":{"*":"deny","bash":"allow"}`:                                       `true [] [] ` + hides + "all tools",
		`"permission":{"gi*":"deny"}`:                                                    `true [] [] ` + hides + "all tools",
		`"tools":{"g?t_*":false}`:                                                        `true [] [] ` + hides + "all tools",
		`"tools":{"*_push":false,"git_t*":false}`:                                        `false ["*_push" "push" "t*"] [] ` + hides + "'*_push', 't*', push",
		`"tools":{"git_push":false},"permission":{"git_push":"allow"}`:                   `false [] [] `,
		`"permission":{"*":"deny","git_*":"allow"}`:                                      `false [] [] `,
		`"permission":{"git_*":"allow","*":"deny"}`:                                      `true [] [] ` + hides + "all tools",
		`"permission":{"git_*":"deny","*":"allow"}`:                                      `true [] [] ` + hides + "all tools",
		`"permission":{"git_push":"deny","git_*":"ask"}`:                                 `false ["push"] [] ` + hides + "push; " + asks + "its tools",
		`"permission":{"*":"deny","git_see":"ask","git_r*":"allow"}`:                     `false [] ["see"] ` + hides + "all tools but see; " + asks + "see",
		`"permission":{"*":"deny","git_*":"ask","git_drop":"deny"}`:                      `false ["drop"] [] ` + hides + "drop; " + asks + "its tools",
		`"permission":{"*":"deny","git_see":"allow","git_read":"allow","git_s*":"deny"}`: `false ["s*"] ["read"] ` + hides + "all tools but read, see",
		`"permission":["deny"],"tools":7`:                                                `false [] [] `,
		`"permission":{"git_pull":"ask"}`:                                                `false [] [] ` + asks + "pull",
		`"permission":{"git_run":{"*":"deny"}}`:                                          `false ["run"] [] ` + hides + "run",
		`"permission":{"git_run":{"*":"allow","rm *":"deny"},"bash":{"x":"deny"}}`:       `false [] [] ` + patterns + "the patterns in permission of git_run",
		`"permission":{"*":"ask"}`:                                                       `false [] [] ` + asks + "its tools",
	} {
		h := mustHome(t, "linux", map[string]string{".config/opencode/opencode.json": `{"mcp":{"git":{"type":"local",
			"command":["g"]}},` + rules + `}`})
		servers, errs := h.Read(h.Places())
		if len(errs) > 0 || len(servers) != 1 || servers[0].Err != nil {
			t.Fatal(servers, errs)
		}
		e := servers[0].Entry
		notes := strings.ReplaceAll(strings.Join(e.Notes, "; "), "; Junction asks only if a policy has ask", "")
		if got := fmt.Sprintf("%t %q %q %s", e.Off, e.Without, e.Only, notes); got != want {
			t.Errorf("%s gives\n%s\nwant\n%s", rules, got, want)
		}
	}
}

// TestConnectAcceptsAnotherPathOfTheProgram: an entry that starts the same program by another path stays as it is, also
// if the command removes servers.
func TestConnectAcceptsAnotherPathOfTheProgram(t *testing.T) {
	dir := t.TempDir()
	program, link, other := filepath.Join(dir, "junction"), filepath.Join(dir, "link"), filepath.Join(dir, "other")
	for _, err := range []error{os.WriteFile(program, nil, 0o700), os.Symlink(program, link), os.WriteFile(other, nil, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o := mustOutfit(t, map[string]string{".config/Claude/claude_desktop_config.json": `{"mcpServers":{"a":{"command":"one"}}}`})
	p := mustPlace(t, o, "claude-desktop")
	target := testTarget
	target.Program = program
	mustConnect(t, o, p, target)
	target.Program = link
	if done := mustConnect(t, o, p, target); done.Changed {
		t.Errorf("another path changed the file: %s", mustRead(t, p.File))
	}
	mustConnect(t, o, p, target, "a")
	if text := mustRead(t, p.File); !strings.Contains(text, program) || strings.Contains(text, "one") {
		t.Errorf("after the removal of a server, the file is %s", text)
	}
	if done := mustConnect(t, o, p, target, "a"); done.Changed {
		t.Errorf("the second removal changed the file: %s", mustRead(t, p.File))
	}
	target.Program = other
	if done := mustConnect(t, o, p, target); !done.Changed || !strings.Contains(mustRead(t, p.File), other) {
		t.Errorf("another program did not change the file: %s", mustRead(t, p.File))
	}
}
