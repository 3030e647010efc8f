package foreign

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// An importedEntry is an entry of a client, as it is written in the client's file.
type importedEntry struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// before returns what a tool of the entry tells about its folder, if a client starts the server in a folder and
// replaces the names of the folder of its window.
func (e importedEntry) before(t *testing.T, in, window, tool, arguments string) string {
	t.Helper()
	put := strings.NewReplacer("${PWD}", window, "${workspaceFolder}", window)
	var args []string
	for _, arg := range e.Args {
		args = append(args, put.Replace(arg))
	}
	cmd := exec.CommandContext(harness.Patient(t), e.Command, args...)
	cmd.Dir = in
	cmd.Env = process.OwnerOf(t).EnvironOfOthers(cmd.Environ())
	for name, value := range e.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lines := bufio.NewReaderSize(stdout, 1<<20)
	ask := func(id int, method, params string) (result json.RawMessage) {
		fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s in %s answers nothing: %v", e.Command, in, err)
			}
			var m struct {
				ID     int             `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			if json.Unmarshal(line, &m) == nil && m.ID == id {
				return m.Result
			}
		}
	}
	ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"before","version":"1"}}`)
	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return placeOf(t, ask(2, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)))
}

// placeOf returns what the result of a tool tells about its folder.
func placeOf(t *testing.T, result []byte) string {
	t.Helper()
	var r struct {
		npm.ToolResult
		StructuredContent struct{ Dir string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	if r.StructuredContent.Dir != "" {
		return r.StructuredContent.Dir
	}
	return r.Text()
}

// TestForeignImportedFolders imports the files of two clients and two projects, with equal and with different names,
// and with ., ${PWD} and ${workspaceFolder}. After it, each tool answers a window in either project as it answered
// without Junction, when the client started the server.
func TestForeignImportedFolders(t *testing.T) {
	harness.Long(t)
	harness.WithoutShort(t)
	needs.UV.Require(t)
	defer harness.Computes(t)()
	harness.InMemory(t, "the folders are those of one process")
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	projects := map[string]string{"shop": filepath.Join(home, "shop"), "blog": filepath.Join(home, "blog")}
	for name, dir := range projects {
		if out, err := exec.Command("git", "init", "-q", "-b", "branch-of-"+name, dir).CombinedOutput(); err != nil {
			t.Fatalf("git init: %v\n%s", err, out)
		}
	}
	child := upstreamtest.Command(t, upstreamtest.Script{})
	files := func(of string, args ...string) importedEntry {
		index := filepath.Join(npm.MustFolder(t), "node_modules", "@modelcontextprotocol", "server-filesystem", "dist", "index.js")
		return importedEntry{"node", append([]string{index}, args...), map[string]string{"OF": of}}
	}
	prints := func(args ...string) importedEntry { return importedEntry{child.Command[0], args, child.Env} }
	git := importedEntry{"uvx", []string{gitServer, "--repository", "."}, nil}
	clients := map[string]map[string]importedEntry{
		".claude.json":     {"pwd": files("pwd", "${PWD}"), "git": git},
		".cursor/mcp.json": {"editor": files("editor", "${workspaceFolder}"), "home": prints("./notes.json")},
		"shop/.mcp.json":   {"files": files("both", "."), "notes": prints("./notes.json"), "shop": files("shop", ".")},
		"blog/.mcp.json":   {"files": files("both", "."), "notes": prints("./notes.json"), "blog": files("blog", ".")},
	}
	for name, entries := range clients {
		text, err := json.Marshal(map[string]any{"mcpServers": entries})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{home, projects["shop"], projects["blog"]} {
		if err := os.WriteFile(filepath.Join(dir, "notes.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	p := harness.NewProgram(t)
	p.MustConfigure(t, "")
	for _, name := range []string{"shop", "blog"} {
		cmd := exec.CommandContext(harness.Patient(t), harness.JunctionBinary(t), "import", "--config", p.File(), "--project", ".",
			"--write", "--yes")
		cmd.Dir = projects[name]
		cmd.Env = process.OwnerOf(t).EnvironOfOthers(append(cmd.Environ(), "HOME="+home, "XDG_STATE_HOME="+p.Dir, "XDG_CONFIG_HOME=",
			"UV_CACHE_DIR="+filepath.Join(cache, "uv")))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("import in %s: %v\n%s", name, err, out)
		}
	}
	p.MustServe(t)
	const list = "list_allowed_directories"
	before := map[string]string{} // by tool and folder
	for _, row := range []struct {
		tool, file, entry string
		in                string // where its client started it; "" for the folder of the window
	}{
		{"pwd__" + list, ".claude.json", "pwd", ""},
		{"git__git_status", ".claude.json", "git", ""},
		{"editor__" + list, ".cursor/mcp.json", "editor", ""},
		{"home__whoami", ".cursor/mcp.json", "home", home},
		{"files__" + list, "shop/.mcp.json", "files", ""},
		{"notes__whoami", "shop/.mcp.json", "notes", projects["shop"]},
		{"notes-2__whoami", "blog/.mcp.json", "notes", projects["blog"]},
		{"shop__" + list, "shop/.mcp.json", "shop", ""},
		{"blog__" + list, "blog/.mcp.json", "blog", ""},
	} {
		_, own, _ := strings.Cut(row.tool, "__")
		for name, window := range projects {
			in, arguments := row.in, "{}"
			if in == "" {
				in = window
			}
			if own == "git_status" {
				arguments = fmt.Sprintf(`{"repo_path":%q}`, window)
			}
			asked := row.tool + " " + in
			if before[asked] == "" {
				before[asked] = clients[row.file][row.entry].before(t, in, window, own, arguments)
			}
			want := before[asked]
			if !strings.Contains(want, in) && !strings.Contains(want, "branch-of-"+name) {
				t.Errorf("%s does not tell its folder: %s", row.tool, want)
			}
			for _, era := range harness.Eras {
				q := harness.Called(row.tool, arguments)
				q.Header = http.Header{"Junction-Folder": {window}}
				m := harness.TalkAs(t, p.URL, era, "2025-11-25", `{}`).Begin(t, q).Answer(t)
				if m.Error != nil {
					t.Errorf("%s, %s in %s: %v", era, row.tool, name, m.Error)
				} else if got := placeOf(t, m.Result); got != want {
					t.Errorf("%s, %s in %s: %q, want %q", era, row.tool, name, got, want)
				}
			}
		}
	}
}
