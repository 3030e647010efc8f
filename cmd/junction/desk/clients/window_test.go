package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolderOfACommand: after an import, a command works in the folder in which it worked before: in that of each
// window, in that of its project, or in the one that its client has.
func TestFolderOfACommand(t *testing.T) {
	const (
		claude  = ".claude.json"
		cursor  = ".cursor/mcp.json"
		desktop = ".config/Claude/claude_desktop_config.json"
		project = "work/.mcp.json"
		named   = "team/servers.json"
	)
	for _, test := range []struct {
		name, file, entry string
		want              string // the command, the folder and the isolation; or the error
		note              string // a part of a note; "" for any
	}{
		// Each window has its own folder.
		{"a dot of the user", claude, `"command": "fs", "args": ["."]`, `[fs, "${folder}"] isolation: folder`, ""},
		{"a dot behind =", claude, `"command": "fs", "args": ["--root=./"]`, `[fs, "--root=${folder}"] isolation: folder`, ""},
		{"PWD", claude, `"command": "fs", "args": ["${PWD}"]`, `[fs, "${folder}"] isolation: folder`, ""},
		{"PWD with a default", claude, `"command": "fs", "args": ["${PWD:-/srv}"]`, `[fs, "${folder}"] isolation: folder`, ""},
		{"PWD behind a colon", claude, `"command": "fs", "args": ["rw:${PWD}"]`, `[fs, "rw:${folder}"] isolation: folder`, ""},
		{"CLAUDE_PROJECT_DIR in env", claude, `"command": "fs", "env": {"ROOT": "${CLAUDE_PROJECT_DIR}"}`,
			`[fs] env: ROOT: "${folder}" isolation: folder`, ""},
		{"the workspace of Cursor", cursor, `"command": "fs", "args": ["--project", "${workspaceFolder}"]`,
			`[fs, --project, "${folder}"] isolation: folder`, ""},
		{"PWD of Cursor", cursor, `"command": "fs", "args": ["${env:PWD}"]`, `[fs, "${folder}"] isolation: folder`, ""},
		{"cwd", claude, `"command": "fs", "cwd": "${PWD}"`, `[fs] dir: "${folder}" isolation: folder`, ""},
		{"a script beside each project", claude, `"command": "node", "args": ["server.js"]`,
			`[node, server.js] dir: "${folder}" isolation: folder`, ""},
		// So has the entry of a project that names its folder; its own program stays.
		{"a dot of a project", project, `"command": "fs", "args": ["."]`, `[fs, "${folder}"] isolation: folder`, ""},
		{"the path of a project", project, `"command": "fs", "args": ["--repo", "HOME/work"]`,
			`[fs, --repo, "${folder}"] isolation: folder`, ""},
		{"a script of a project", project, `"command": "node", "args": ["server.js", "."]`,
			`[node, server.js, "${folder}"] dir: HOME/work isolation: folder`, ""},
		// Others have one folder.
		{"no folder", project, `"command": "fs"`, `[fs] dir: HOME/work`, ""},
		{"the parent", project, `"command": "fs", "args": [".."]`, `[fs, ..] dir: HOME/work`, ""},
		{"a folder below", project, `"command": "fs", "args": ["${PWD}/src"]`, `[fs, HOME/work/src] dir: HOME/work`, ""},
		{"a program of the project", project, `"command": "${CLAUDE_PROJECT_DIR}/run"`, `[HOME/work/run] dir: HOME/work`, ""},
		{"a dot of a client at home", cursor, `"command": "fs", "args": ["."]`, `[fs, .] dir: HOME`, ""},
		{"a script at home", cursor, `"command": "node", "args": ["mine.js"]`, `[node, mine.js] dir: HOME`, ""},
		{"a script in a named file", named, `"command": "node", "args": ["tool.js"]`, `[node, tool.js] dir: HOME/team`, ""},
		{"a module in a named file", named, `"command": "python", "args": ["-m", "tool"]`,
			`[python, -m, tool] dir: HOME/team`, ""},
		{"an argument that exists", named, `"command": "fs", "args": ["--config=tool.js"]`,
			`[fs, --config=tool.js] dir: HOME/team`, ""},
		{"a package that has the name of a file", named, `"command": "npx", "args": ["-y", "tool.js"]`, `[npx, -y, tool.js]`, ""},
		{"a container", named, `"command": "docker", "args": ["run", "tool.js"]`, `[docker, run, tool.js]`, ""},
		{"a file that is absent", named, `"command": "fs", "args": ["none.js"]`, `[fs, none.js]`, ""},
		{"nothing relative", claude, `"command": "npx", "args": ["-y", "notes"]`, `[npx, -y, notes]`, ""},
		// What has no folder is said.
		{"cwd of the user", claude, `"command": "fs", "cwd": "sub"`, `[fs]`, "not imported: cwd"},
		{"cwd below each window", claude, `"command": "fs", "cwd": "${PWD}/sub"`, `[fs]`, "not imported: cwd"},
		{"cwd at home", cursor, `"command": "fs", "cwd": "sub"`, `[fs] dir: HOME/sub`, ""},
		{"below each window", claude, `"command": "fs", "args": ["${PWD}/src"]`, "", "is another folder in each window"},
		{"a program in each window", cursor, `"command": "${workspaceFolder}/run"`, "", "is another folder in each window"},
		{"a URL", cursor, `"url": "https://a.example.com/${workspaceFolder}"`, "", "is another folder in each window"},
		{"a client that starts anywhere", desktop, `"command": "./fs"`, `[./fs]`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := mustHome(t, "linux", map[string]string{test.file: `{"mcpServers": {"s": {` + test.entry + `}}}`,
				"work/server.js": "", "mine.js": "", "team/tool.js": "", "team/tool.py": ""})
			h.Getenv = func(name string) (string, bool) {
				return map[string]string{"PWD": "/of/junction"}[name], name == "PWD"
			}
			h.Project = filepath.Join(h.Dir, "work")
			file := filepath.Join(h.Dir, test.file)
			text := strings.ReplaceAll(mustRead(t, file), "HOME", h.Dir)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			places, err := h.PlacesOf(file)
			if err != nil {
				t.Fatal(err)
			}
			servers, errs := h.Read(places)
			if len(errs) > 0 || len(servers) != 1 {
				t.Fatalf("Read = %v, %v", servers, errs)
			}
			if e := servers[0].Entry; test.want == "" {
				if e != nil || !strings.Contains(servers[0].Err.Error(), test.note) {
					t.Errorf("the server is %+v, %v, want the error %q", e, servers[0].Err, test.note)
				}
				return
			} else if e == nil {
				t.Fatal(servers[0].Err)
			}
			got := strings.Join(strings.Fields(mustRender(t, h, "s", servers[0].Entry)), " ")
			if want := "s: command: " + test.want; got != want {
				t.Errorf("the entry is %s\nwant %s", got, want)
			}
			if notes := strings.Join(servers[0].Entry.Notes, "\n"); !strings.Contains(notes, test.note) {
				t.Errorf("the notes are %q, want %q", notes, test.note)
			}
		})
	}
}

// TestTypedCommandWorksWhereItWasTyped: relative paths of junction add begin in the folder of the shell, and "." is
// the folder of each client.
func TestTypedCommandWorksWhereItWasTyped(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "server.js"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		command, cwd, want string
	}{
		{"node server.js", "", "dir: FOLDER"},
		{"node other.js", "", ""},
		{"fs .", "", "isolation: folder"},
		{"fs ..", "", "dir: FOLDER"},
		{"fs ${PWD}", "", "isolation: folder"},
		{"fs", "sub", "dir: FOLDER/sub"},
		{"fs", "/srv", "dir: /srv"},
	} {
		h := Home{OS: "linux", Dir: "/home/ann", Getenv: func(string) (string, bool) { return "", false }}
		e, err := Given{Command: strings.Fields(test.command), Dir: test.cwd, Folder: folder}.Entry(h, "config.yaml")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.ReplaceAll(mustRender(t, h, "s", e), folder, "FOLDER"), "\n")[2:]
		if got := strings.TrimSpace(strings.Join(lines, "\n")); got != test.want {
			t.Errorf("%s in %q has %s, want %s", test.command, test.cwd, got, test.want)
		}
	}
}
