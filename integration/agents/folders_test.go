//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/upstream/client"
)

// This file has two windows of each agent, in two folders, behind one Junction with three servers: two that others
// wrote, and one that returns its folder.

// folderVariable makes the test binary the server that returns its folder.
const folderVariable = "JUNCTION_AGENTS_FOLDER"

// serveFolder is the main function of that server.
func serveFolder() error {
	s := server.NewMCPServer("agents-folder", "1")
	s.AddTool(mcp.NewTool("where", mcp.WithDescription("Returns the folder of the process.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			dir, err := os.Getwd()
			return mcp.NewToolResultText("the process works in " + dir), err
		})
	return server.ServeStdio(s)
}

// A way is how a client says in which folder it is.
type way struct {
	name      string
	parent    string // the name of the folder around the homes and the projects
	connected bool   // see machine
	stdio     bool   // the entry starts junction stdio
	pwd       bool   // the agent is started by a shell, which sets PWD
	roots     bool   // an agent without roots names no folder
}

func ways() []way {
	return []way{
		{name: "header", parent: "src", connected: true, pwd: true},
		{name: "roots", parent: "src", roots: true},
		{name: "junction stdio", parent: "日本", connected: true, stdio: true},
	}
}

// places are two projects, each with a repository of git, and the Junction that permits them.
type places struct {
	dir     string
	program *program
}

// project returns the folder of a project.
func (p *places) project(name string) string { return filepath.Join(p.dir, name) }

// mustPlace makes the projects and starts Junction.
func mustPlace(t *testing.T, w way) *places {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &places{dir: filepath.Join(root, w.parent)}
	for _, name := range []string{"shop", "blog"} {
		if err := os.MkdirAll(p.project(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("git", "init", "-q", "-b", "branch-of-"+name, p.project(name)).CombinedOutput(); err != nil {
			t.Fatalf("git init: %v\n%s", err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(npm.MustFolder(t), "node_modules", "@modelcontextprotocol", "server-filesystem", "dist", "index.js")
	p.program = newProgram(t, fmt.Sprintf(`upstreams:
  files: { command: [node, %q], isolation: folder }
  git: { command: [uvx, "mcp-server-git==2026.10.19", --repository, "${folder}"], isolation: folder }
  print: { command: [%q], env: { %s: "yes" }, dir: "${folder}", isolation: folder }
folders: { within: [%q] }
audit: { file: audit.jsonl }
`, files, self, folderVariable, p.dir))
	p.program.mustServe()
	return p
}

// bring calls the server that can list nothing in an empty folder, so that its tools are listed for every window.
func (p *places) bring(t *testing.T) {
	t.Helper()
	c := harness.TalkAs(t, "http://"+p.program.address+"/mcp", client.EraModern, "2026-07-28", `{}`)
	q := harness.Called("git__git_status", fmt.Sprintf(`{"repo_path":%q}`, p.project("shop")))
	q.Header = http.Header{"Junction-Folder": {(&url.URL{Scheme: "file", Path: p.project("shop")}).String()}}
	m := c.Begin(t, q).Answer(t)
	for n := 0; m.Error != nil && n < 9; n++ { // an attempt in an empty folder may be in progress
		m = c.Begin(t, q).Answer(t)
	}
	if m.Error != nil {
		t.Fatal(m.Error)
	}
	p.program.mustBeReady()
}

// window is an agent in a project.
type window struct {
	*run
	places  *places
	project string
	last    *turn
}

// open starts an agent in a project, in a home of its own.
func (p *places) open(t *testing.T, a agent, w way, project string) *window {
	t.Helper()
	m := startModel(t, a.wire)
	where := newMachine(t, filepath.Join(p.dir, "homes", a.client+"-"+project), m, p.program)
	where.folder, where.connected = p.project(project), w.connected
	if w.stdio { // an entry that reads the key from a file starts junction stdio
		key := auth.NewKey()
		authtest.Secret("an API key", key)
		where.keyFile = where.write("key", key)
	}
	var env []string
	if w.pwd {
		env = append(env, "PWD="+where.folder)
	}
	return &window{run: startOn(a, m, where, env), places: p, project: project}
}

// call has the model of the window call a tool, and expects texts in the result.
func (w *window) call(tool, arguments string, want ...string) {
	w.t.Helper()
	if w.last == nil {
		w.last = w.next()
	}
	w.last.callWith(tool, arguments)
	w.last = w.next()
	w.last.expect(want...)
}

// TestForeignAgentsFolders has two windows of each agent work in two projects at the same time, with one Junction.
// Each window reads its own files, its own repository, and its own folder.
func TestForeignAgentsFolders(t *testing.T) {
	mustOptIn(t)
	needs.UV.Require(t)
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			p := mustPlace(t, w)
			p.bring(t)
			calls := 1
			for _, a := range agents() {
				if a.client == "" {
					continue
				}
				t.Run(a.name, func(t *testing.T) {
					both := []*window{p.open(t, a, w, "shop"), p.open(t, a, w, "blog")}
					if w.roots && !a.roots {
						for _, one := range both {
							one.call("print__where", `{}`, "the client declares no roots")
							one.finish(one.last)
						}
						return
					}
					for _, tool := range []string{"files", "git", "print"} {
						for _, one := range both {
							folder := p.project(one.project)
							switch tool {
							case "files":
								one.call("files__list_allowed_directories", `{}`, "Allowed directories:", folder)
							case "git":
								one.call("git__git_status", fmt.Sprintf(`{"repo_path":%q}`, folder), "On branch branch-of-"+one.project)
							case "print":
								one.call("print__where", `{}`, "the process works in "+folder)
							}
							calls++
						}
					}
					for _, one := range both {
						one.finish(one.last)
					}
				})
			}
			p.mustAudit(t, calls)
		})
	}
}

// TestForeignAgentsFirstList has the first window of each agent read the list before the server that ends in an empty
// folder was started in a folder. An agent that reads the list again after a change has its tools then.
func TestForeignAgentsFirstList(t *testing.T) {
	mustOptIn(t)
	needs.UV.Require(t)
	w := ways()[0]
	for _, a := range agents() {
		if a.client == "" {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			p := mustPlace(t, w)
			p.program.mustReport("git waits for a folder, and the others are ready", func(all []upstreamState) bool {
				return !slices.ContainsFunc(all, func(u upstreamState) bool { return u.State != "ready" && u.State != "waits for a folder" })
			})
			one := p.open(t, a, w, "shop")
			last := one.next()
			has := func() bool { return last.offers("git__git_status") }
			t.Logf("first request: %d tools, git: %t, files: %t", len(last.tools), has(), last.offers("files__list_directory"))
			p.program.mustBeReady()
			for n := 0; n < 20 && !has(); n++ {
				last.pass()
				last = one.next()
			}
			t.Logf("last request: %d tools, git: %t", len(last.tools), has())
			if !has() && !a.ignoresChanges {
				t.Error("the agent never has the tools of git")
			}
			one.finish(last)
		})
	}
}

// mustAudit expects a number of calls in the audit, half of them in each project.
func (p *places) mustAudit(t *testing.T, calls int) {
	t.Helper()
	p.program.stop(15)
	text, err := os.ReadFile(filepath.Join(p.program.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var l struct{ Outcome, Folder string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Outcome == "ok" {
			counts[l.Folder]++
		}
	}
	for _, name := range []string{"shop", "blog"} {
		want := calls / 2
		if name == "shop" {
			want += calls % 2
		}
		if got := counts[p.project(name)]; got != want {
			t.Errorf("the audit has %d calls in %s, want %d: %v", got, name, want, counts)
		}
	}
}
