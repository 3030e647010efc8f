package foreign

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// gitServer is a server from PyPI that ends in a folder without a repository.
const gitServer = "mcp-server-git==2026.10.19"

// mustStandIn makes a folder with a repository of git for each name, and starts Junction with three servers that work
// in the folders of their clients. Their tools are listed then.
func mustStandIn(t *testing.T, names ...string) (p *harness.Program, dir string) {
	t.Helper()
	needs.UV.Require(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if out, err := exec.Command("git", "init", "-q", "-b", "branch-of-"+name, filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("git init: %v\n%s", err, out)
		}
	}
	child := upstreamtest.Command(t, upstreamtest.Script{})
	env, err := json.Marshal(child.Env)
	if err != nil {
		t.Fatal(err)
	}
	p = harness.MustProgram(t, fmt.Sprintf("upstreams:\n  files: { %s, isolation: folder }\n"+
		"  git: { command: [uvx, %q, --repository, \"${folder}\"], isolation: folder }\n"+
		"  print: { command: [%q], env: %s, dir: \"${folder}\", isolation: folder }\nfolders: { within: [%q] }\n",
		node(t, "server-filesystem"), gitServer, child.Command[0], env, dir))
	first := harness.Called("git__git_status", fmt.Sprintf(`{"repo_path":%q}`, filepath.Join(dir, names[0])))
	first.Header = http.Header{"Junction-Folder": {filepath.Join(dir, names[0])}}
	c := harness.TalkAs(t, p.URL, client.EraModern, "2026-07-28", `{}`)
	m := c.Begin(t, first).Answer(t)
	for n := 0; m.Error != nil && n < 9; n++ { // an attempt in an empty folder may be in progress
		m = c.Begin(t, first).Answer(t)
	}
	if m.Error != nil {
		t.Fatal(m.Error)
	}
	p.MustReady(t, harness.Patience)
	return p, dir
}

// TestForeignFolders has two windows of each SDK client, in both eras, work in two folders: by the header, by their
// roots alone, and by the folder in which they start junction stdio. Each window reads its own folder from servers that
// others wrote, and from one that returns its folder. A change is tried with each way, and with roots in both eras;
// .ci/whole has each client by each way.
func TestForeignFolders(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	harness.InMemory(t, "the folders are those of one process")
	p, dir := mustStandIn(t, "shop", "blog")
	for way, row := range map[string]struct {
		variable string
		clients  []string
	}{
		"header": {"FOLDER_HEADER", []string{"sdk1"}},
		"roots":  {"FOLDER_ROOT", []string{"sdk1", "sdk2-modern"}},
		"stdio":  {"FOLDER_STDIO", []string{"sdk2-modern"}},
	} {
		for _, c := range npm.Clients() {
			if !c.Sdk || c.Name == "sdk2-auto" { // which speaks the modern era here, as another one does
				continue
			}
			if !harness.IsLong() && !slices.Contains(row.clients, c.Name) {
				continue
			}
			for _, name := range []string{"shop", "blog"} {
				c, folder := c, filepath.Join(dir, name)
				c.Stdio, c.Env = way == "stdio", []string{row.variable + "=" + folder}
				t.Run(way+"/"+c.Name+"/"+name, func(t *testing.T) {
					defer harness.Computes(t)()
					got := mustAskEach(t, c, p.URL, folder, way == "roots")
					for tool, want := range map[string]string{
						"files__list_allowed_directories": "Allowed directories:\n" + folder,
						"git__git_status":                 "On branch branch-of-" + name + "\n",
						"print__whoami":                   `"dir":"` + folder + `"`,
					} {
						if !strings.Contains(got[tool], want) {
							t.Errorf("%s returns %q, want %q", tool, got[tool], want)
						}
					}
				})
			}
		}
	}
}

// TestForeignPythonFolders is TestForeignFolders for the client of the Python SDK, with both windows at the same time.
func TestForeignPythonFolders(t *testing.T) {
	defer harness.Computes(t)()
	harness.InMemory(t, "the folders are those of one process")
	python, packages := mustPython(t)
	script, err := filepath.Abs("testdata/folder_client.py")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"shop", "blog"}
	p, dir := mustStandIn(t, names...)
	const calls = `[["files__list_allowed_directories",{}],["git__git_status",{"repo_path":"FOLDER"}],["print__whoami",{}]]`
	for _, mode := range []string{"legacy", "2026-07-28"} {
		for _, way := range []string{"header", "roots", "stdio"} {
			cmd := exec.CommandContext(harness.Patient(t), python, script, mode, way, p.URL, harness.JunctionBinary(t), calls,
				filepath.Join(dir, names[0]), filepath.Join(dir, names[1]))
			cmd.Env = append(process.OwnerOf(t).EnvironOfOthers(cmd.Environ()), "PYTHONPATH="+packages)
			var errors strings.Builder
			cmd.Stderr = &errors
			out, err := cmd.Output()
			var windows [][]npm.ToolResult
			if err != nil || json.Unmarshal(out, &windows) != nil || len(windows) != len(names) {
				t.Errorf("%s, %s: %v\n%s%s", mode, way, err, out, &errors)
				continue
			}
			for i, results := range windows {
				folder := filepath.Join(dir, names[i])
				for k, want := range []string{"Allowed directories:\n" + folder, "On branch branch-of-" + names[i] + "\n",
					`"dir":"` + folder + `"`} {
					if got := results[k].Text() + string(results[k].StructuredContent); !strings.Contains(strings.ReplaceAll(got, `": "`, `":"`), want) {
						t.Errorf("%s, %s: the window in %s reads %q, want %q", mode, way, names[i], got, want)
					}
				}
			}
		}
	}
}

// mustAskEach calls a tool of each server in one session, and returns what they return. Only a client that uses its
// roots declares some.
func mustAskEach(t *testing.T, c npm.Client, url, folder string, roots bool) map[string]string {
	t.Helper()
	type call struct {
		Name      string         `json:"name"`
		Arguments map[string]any `json:"arguments"`
	}
	calls := []call{{"files__list_allowed_directories", map[string]any{}},
		{"git__git_status", map[string]any{"repo_path": folder}}, {"print__whoami", map[string]any{}}}
	text, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Result npm.ToolResult
		Error  json.RawMessage
	}
	var list []outcome
	if roots {
		var used struct{ Results []outcome }
		err = c.Run(t, &used, url, "use", string(text))
		list = used.Results
	} else {
		err = c.Run(t, &list, url, "calls", string(text))
	}
	if err != nil || len(list) != len(calls) {
		t.Fatalf("%d of %d calls have an outcome: %v", len(list), len(calls), err)
	}
	got := map[string]string{}
	for i, o := range list {
		got[calls[i].Name] = o.Result.Text() + string(o.Result.StructuredContent) + string(o.Error)
	}
	return got
}
