package stdio

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/sandbox"
)

const linkedSecret = "the text of another folder"

// A linked row is an entry that a link leads astray: a path of it lies in the folder w, where a
// confined command replaces a part by a link into the folder secret.
type linkedRow struct {
	laid  string // a script that makes the files; they do no harm
	links string // a script that makes the link
	dir   string
	env   map[string]string
	read  []string
	write []string // besides w
	// the command; "" is a shell that shows the secret
	program string
}

// linkedRows are scripts and paths below a folder $T.
var linkedRows = map[string]linkedRow{
	"installation": {program: "w/venv/bin/server",
		laid: `mkdir -p w/venv/bin w/venv/lib; touch w/venv/pyvenv.cfg
			printf '#!/bin/sh\ncat %s/secret/lib/key >&2; exit 3\n' "$PWD" >w/venv/bin/server; chmod +x w/venv/bin/server`,
		links: `rm -r "$T/w/venv/lib"; ln -s "$T/secret/lib" "$T/w/venv/lib"`},
	"first line": {program: "w/server",
		laid:  `printf '#!/bin/sh\nexit 3\n' >w/server; chmod +x w/server`,
		links: `printf '#!%s/secret/bin/sh\ncat %s/secret/lib/key >&2; exit 3\n' "$T" "$T" >"$T/w/server"`},
	"interpreter": {program: "bin/server",
		laid: `mkdir -p bin w/venv/bin w/venv/lib; touch w/venv/pyvenv.cfg; ln -s /bin/sh w/venv/bin/sh
			printf '#!%s/w/venv/bin/sh\ncat %s/secret/lib/key >&2; exit 3\n' "$PWD" "$PWD" >bin/server; chmod +x bin/server`,
		links: `rm -r "$T/w/venv/lib"; ln -s "$T/secret/lib" "$T/w/venv/lib"`},
	"dir": {dir: "w/dir", laid: `mkdir w/dir`, links: `rmdir "$T/w/dir"; ln -s "$T/secret/lib" "$T/w/dir"`},
	"inner path of write": {write: []string{"w/in"}, laid: `mkdir w/in`,
		links: `rmdir "$T/w/in"; ln -s "$T/secret/lib" "$T/w/in"`},
	"inner path of read": {read: []string{"w/in"}, laid: `mkdir w/in`,
		links: `rmdir "$T/w/in"; ln -s "$T/secret/lib" "$T/w/in"`},
	"certificate": {env: map[string]string{"SSL_CERT_FILE": "w/ca.pem"}, laid: `touch w/ca.pem`,
		links: `ln -sf "$T/secret/lib/key" "$T/w/ca.pem"`},
	"PATH": {env: map[string]string{"PATH": "w/bin"}, laid: `mkdir w/bin`,
		links: `rmdir "$T/w/bin"; ln -s "$T/secret/lib" "$T/w/bin"`},
}

// TestSandboxLinksOfCommandsDecideNothing tries links that exist at the first start, that the command
// itself has made, and that the command of another entry has made.
func TestSandboxLinksOfCommandsDecideNothing(t *testing.T) {
	mustEnforce(t)
	for name, row := range linkedRows {
		for _, by := range []string{"nobody", "itself", "another entry"} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				row.try(t, by)
			})
		}
	}
}

func (row linkedRow) try(t *testing.T, by string) {
	dir := t.TempDir()
	at := func(list ...string) (paths []string) {
		for _, name := range list {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	w := at("w")
	// run starts a command, and returns what it writes, or why it did not start.
	run := func(command []string, c *Confinement, env map[string]string, cwd string) string {
		t.Helper()
		all := map[string]string{"T": dir, "PATH": "/usr/bin:/bin"}
		for key, value := range env {
			if all[key] = filepath.Join(dir, value); key == "PATH" {
				all[key] += ":/usr/bin:/bin"
			}
		}
		c.Name, c.Support, c.Require = "up", sandbox.Kernel(), true
		o := Options{Command: command, Env: Environment{Own: all}, Dir: cwd, Log: authtest.Log(t), Confine: c,
			LastWords: time.Minute} // a busy machine may need long to read the last line
		x, err := Open(o, nil)
		if err != nil {
			return err.Error()
		}
		defer x.Close()
		if exit, ok := errors.AsType[*ExitError](x.Wait()); ok {
			return exit.How + "\n" + exit.Stderr
		}
		return ""
	}
	script := func(text string) []string { return []string{"/bin/sh", "-c", text} }
	free := func(text string) {
		t.Helper()
		cmd := script("cd '" + dir + "' && T=$PWD && { " + text + "\n}")
		if out, err := runFree(cmd); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	free(`mkdir -p w secret/bin secret/lib; touch secret/pyvenv.cfg; ln -s /bin/sh secret/bin/sh
		echo '` + linkedSecret + `' >secret/lib/key; ` + row.laid)
	command, cwd := script(fmt.Sprintf("cat '%s' >&2; exit 3", at("secret/lib/key")[0])), ""
	if row.program != "" {
		command = at(row.program)
	}
	if row.dir != "" {
		cwd = at(row.dir)[0]
	}
	victim := &Confinement{Rules: sandbox.Rules{Read: at(row.read...), Write: append(w, at(row.write...)...)}}
	if by == "another entry" {
		victim.Write, victim.Others = at(row.write...), func() []string { return w }
	}
	switch by {
	case "nobody":
		free(row.links)
	case "itself":
		if got := run(command, victim, row.env, cwd); strings.Contains(got, linkedSecret) {
			t.Fatalf("before there are links, the command reads %q", got)
		}
		fallthrough
	default:
		got := run(script(row.links+"; exit 3"), &Confinement{Rules: sandbox.Rules{Write: w}}, nil, "")
		if !strings.HasPrefix(got, "exited with status 3") || strings.Contains(got, ":") {
			t.Fatalf("the command that makes the links ended so: %s", got)
		}
	}
	got := run(command, victim, row.env, cwd)
	if strings.Contains(got, linkedSecret) {
		t.Errorf("the command reads %q", got)
	}
	for _, part := range []string{"Permission denied", "permission denied", "which confined commands may change"} {
		if strings.Contains(got, part) {
			return
		}
	}
	t.Errorf("the command ends so: %s", got)
}

// TestSandboxEnvironmentInWriteStarts: a virtual environment in write starts, and another entry names
// the line that it needs.
func TestSandboxEnvironmentInWriteStarts(t *testing.T) {
	mustEnforce(t)
	dir := t.TempDir()
	if out, err := runFree([]string{"python3", "-m", "venv", "--without-pip", filepath.Join(dir, "venv")}); err != nil {
		t.Skipf("NOT TESTED: no virtual environment: %v: %s", err, out)
	}
	python := filepath.Join(dir, "venv", "bin", "python")
	for name, row := range map[string]struct {
		rules  sandbox.Rules
		others []string
		want   string
	}{
		"in write":                     {sandbox.Rules{Write: []string{dir}}, nil, "exited with status 3"},
		"in read, and others write it": {sandbox.Rules{Read: []string{filepath.Join(dir, "venv")}}, []string{dir}, "exited with status 3"},
		"others write it": {sandbox.Rules{}, []string{dir}, "the program " + python + " is in " + dir +
			", which confined commands may change, so it is not readable by default; add it to sandbox: { read: [" + python + "] }"},
	} {
		c := &Confinement{Name: "up", Rules: row.rules, Require: true, Support: sandbox.Kernel(),
			Others: func() []string { return row.others }}
		o := Options{Command: []string{python, "-c", "import json, sys; sys.exit(3 if sys.prefix.endswith('venv') else 1)"},
			Env: Environment{}, Log: authtest.Log(t), Confine: c}
		got := ""
		x, err := Open(o, nil)
		if err != nil {
			got = err.Error()
		} else {
			if exit, ok := errors.AsType[*ExitError](x.Wait()); ok {
				got = exit.How
			}
			x.Close()
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// runFree runs a command without a sandbox.
func runFree(command []string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	return string(out), err
}
