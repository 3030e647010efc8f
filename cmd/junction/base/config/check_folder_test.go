package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mustFolderFile writes a configuration with one entry.
func mustFolderFile(t *testing.T, entry string) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"fs", "npx", "python", "node", "env", "sh", "uv"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	file := filepath.Join(dir, "junction.yaml")
	if err := os.WriteFile(file, []byte("upstreams:\n  s: "+entry+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestFolderWarnings: check warns of a path that means another file in a service, and of a command that would run
// what an agent has put into its folder.
func TestFolderWarnings(t *testing.T) {
	const (
		differs = `begins in the folder in which Junction starts, which differs between a shell and a service`
		lies    = `: an agent that can write there gets a program of its own started outside of its sandbox`
	)
	for _, test := range []struct{ entry, want string }{
		{`{ command: [node, server.js] }`, `the relative path "server.js" ` + differs},
		{`{ command: [fs, .] }`, `the relative path "." ` + differs},
		{`{ command: [node, server.js], dir: /tmp }`, ""},
		{`{ command: [fs, .], enabled: false }`, ""},
		{`{ command: [npx, -y, some-package] }`, ""},
		{`{ command: [fs, "${folder}"], isolation: folder }`, ""},
		{`{ command: [fs], dir: "${folder}", isolation: folder }`, ""},
		{`{ command: [npx, -y, notes@1.2.3], dir: "${folder}", isolation: folder }`, `npx runs a package that lies in that folder` + lies},
		{`{ command: [python, -m, notes], dir: "${folder}", isolation: folder }`, `python -m runs a module that lies in that folder` + lies},
		{`{ command: [python, -P, -m, notes], dir: "${folder}", isolation: folder }`, ""},
		{`{ command: [python, -c, "import notes"], dir: "${folder}", isolation: folder }`, `python -c imports modules that lie in that folder` + lies},
		{`{ command: [env, -i, A=b, npx, -y, notes@1.2.3], dir: "${folder}", isolation: folder }`, `npx runs a package that lies in that folder` + lies},
		{`{ command: [sh, -c, "A=b exec npx -y notes"], dir: "${folder}", isolation: folder }`, `npx runs a package that lies in that folder` + lies},
		{`{ command: [sh, -c, "exec /usr/bin/fs ."], dir: "${folder}", isolation: folder }`, ""},
		{`{ command: [uv, run, notes], dir: "${folder}", isolation: folder }`, `uv reads what to run from that folder` + lies},
		{`{ command: [./notes], dir: "${folder}", isolation: folder }`, `./notes is a program in that folder` + lies},
		{`{ command: [node, notes.js], dir: "${folder}", isolation: folder }`, `notes.js is a program in that folder` + lies},
	} {
		file := mustFolderFile(t, test.entry)
		_, warnings, err := Load(file, os.LookupEnv)
		if err != nil {
			t.Errorf("%s: %v", test.entry, err)
			continue
		}
		var got []string
		for _, w := range warnings {
			got = append(got, w.Text)
		}
		if text := strings.Join(got, "\n"); (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s has the warnings %q, want %q", test.entry, text, test.want)
		}
		lasting, _ := Lasting(warnings)
		if len(lasting) != len(warnings) {
			t.Errorf("status shows %v of %v", lasting, warnings)
		}
	}
}

// TestRelativePathBlocksInAService: in a service, the path would begin in the home folder or in /. Only that
// upstream is blocked, also while Junction runs, and there is no warning beside the mistake.
func TestRelativePathBlocksInAService(t *testing.T) {
	file := mustFolderFile(t, "{ command: [node, server.js] }\n  t: { command: [node, /srv/server.js] }")
	for _, service := range []string{"", "/etc/junction.yaml.environment"} {
		for _, running := range []bool{false, true} {
			c, warnings, err := LoadServing(file, func(name string) (string, bool) {
				if name == ServiceVariables {
					return service, service != ""
				}
				return os.LookupEnv(name)
			}, running)
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 != (service == "") {
				t.Errorf("in the service %q, running %v: the warnings are %v", service, running, warnings)
			}
			blocked := strings.Contains(c.Upstreams["s"].Blocked, `"server.js" begins in the folder in which Junction starts, `+
				`which is the home folder or / for a service; set dir`)
			if blocked != (service != "") || c.Upstreams["t"].Blocked != "" {
				t.Errorf("in the service %q, running %v: s is blocked by %q, and t by %q", service, running,
					c.Upstreams["s"].Blocked, c.Upstreams["t"].Blocked)
			}
		}
	}
}

// TestFolderOfTheStartIsNoReference: no entry gets the folder of the shell in which Junction was started.
func TestFolderOfTheStartIsNoReference(t *testing.T) {
	getenv := func(string) (string, bool) { return "/of/junction", true }
	for _, reference := range []string{"${PWD}", "${env:PWD}", "env:PWD", "${PWD:-/srv}", "${CLAUDE_PROJECT_DIR}", "x=${OLDPWD}"} {
		file := mustFolderFile(t, `{ command: [fs, "`+reference+`"] }`)
		c, _, err := LoadServing(file, getenv, false)
		if err != nil {
			t.Fatal(err)
		}
		if why := c.Upstreams["s"].Blocked; !strings.Contains(why, "would be the folder in which Junction was started") {
			t.Errorf("%s is blocked by %q", reference, why)
		}
	}
}

// TestFolderOfTheClientStays: the word is no variable, and reaches the upstream as it stands.
func TestFolderOfTheClientStays(t *testing.T) {
	file := mustFolderFile(t, `{ command: [fs, "--root=${folder}"], dir: "${folder}", isolation: folder, env: { R: "${folder}" } }`)
	c, _, err := Load(file, func(name string) (string, bool) { return "/wrong", name == "folder" })
	if err != nil {
		t.Fatal(err)
	}
	if u := c.Upstreams["s"]; u.Command[1] != "--root=${folder}" || u.Dir != "${folder}" || u.Env["R"] != "${folder}" {
		t.Errorf("the entry is %+v", u)
	}
}
