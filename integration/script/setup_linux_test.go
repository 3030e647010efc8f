package script

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/integration/harness"
)

// a dialogue is a command at a terminal: each question that it shows, and the answer.
type dialogue [][2]string

// interrupt is the answer of a person who types Ctrl-C.
const interrupt = "\x03"

// mustTalk runs junction with the answers of a dialogue at a terminal of 60 columns, and returns everything
// that the terminal got.
func mustTalk(t *testing.T, env []string, d dialogue, args ...string) string {
	t.Helper()
	return mustTalkAt(t, 60, env, d, args...)
}

// mustTalkAt is mustTalk at a terminal of some columns.
func mustTalkAt(t *testing.T, columns uint16, env []string, d dialogue, args ...string) string {
	t.Helper()
	text, err := talk(t, env, columns, d, args...)
	if err != nil {
		t.Errorf("%v; the terminal got:\n%s", err, text)
	}
	return text
}

// talk is mustTalkAt for a command that may fail.
func talk(t *testing.T, env []string, columns uint16, d dialogue, args ...string) (string, error) {
	t.Helper()
	ours, theirs := mustTerminal(t, 40, columns)
	cmd := exec.CommandContext(t.Context(), harness.JunctionBinary(t), args...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ours.SetReadDeadline(time.Now().Add(harness.Patience))
	var output bytes.Buffer
	part, from := make([]byte, 4096), 0
	wait := func(what string) {
		t.Helper()
		for {
			flat := strings.Join(strings.Fields(output.String()[from:]), " ")
			if strings.Contains(flat, what) {
				from = output.Len()
				return
			}
			n, err := ours.Read(part)
			output.Write(part[:n])
			if err != nil {
				t.Fatalf("waiting for %q: %v; the terminal got:\n%s", what, err, output.String())
			}
		}
	}
	for _, step := range d {
		wait(step[0])
		var err error
		if step[1] == interrupt {
			err = cmd.Process.Signal(os.Interrupt)
		} else {
			_, err = ours.WriteString(step[1] + "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	theirs.Close()
	for {
		n, err := ours.Read(part)
		output.Write(part[:n])
		if err != nil {
			break // the command has closed the terminal
		}
	}
	err := cmd.Wait()
	return strings.ReplaceAll(output.String(), "\r\n", "\n"), err
}

// treeOf returns the files below a folder with their modes and contents.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := []byte("a folder")
		if info.Mode().IsRegular() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		name, err := filepath.Rel(dir, path)
		all[name] = info.Mode().String() + " " + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTerminalSetup: setup offers a free port in place of a taken one, finds the servers of two clients, asks which,
// keeps a value for its owner only, starts Junction, and connects the clients. Its undo makes each file what it was.
func TestTerminalSetup(t *testing.T) {
	home, state := t.TempDir(), t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	program := harness.JunctionBinary(t)
	for name, text := range map[string]string{
		".config/junction/config.yaml": "# mine\nlisten: " + taken.Addr().String() + "  # the usual one\nadmin: 127.0.0.1:0\n",
		".cursor/mcp.json": fmt.Sprintf(`{"mcpServers": {
			"notes": {"command": %q, "args": ["demo"]}, "other": {"command": "no-such-program"},
			"evil\u001b[2J\u202e": {"command": "x\u001b[2J"}}}`, program),
		".config/Code/User/mcp.json": fmt.Sprintf(`{"inputs": [{"type": "promptString", "id": "wiki-key", "description": "Key of the wiki"}],
			"servers": {"wiki": {"command": %q, "args": ["demo"], "env": {"WIKI_KEY": "${input:wiki-key}"}}}}`, program),
	} {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := treeOf(t, home)
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + state, "PATH=" + pathWith(t, program), "TERM=xterm", "NO_COLOR=1"}
	undone := false
	defer func() {
		if !undone { // no process of a failed test stays
			cmd := exec.Command(program, "setup", "--undo", "--yes")
			cmd.Env = env
			_ = cmd.Run()
		}
	}()
	text := mustTalk(t, env, dialogue{
		{taken.Addr().String() + " is taken by another program, perhaps another junction. Use 127.0.0.1:", ""},
		{"Names, all, none, or -NAME to omit it [all]:", "nots"},
		{"Names, all, none, or -NAME to omit it [all]:", "notes, wiki"},
		{"wiki needs WIKI_KEY (Key of the wiki); Enter leaves it for later:", "canary-of-the-wiki"},
		{"Start Junction in the background, until the machine ends? [Y/n]", "maybe"},
		{"\"maybe\" is no answer; answer y (yes) or n (no). Start Junction in the background, until the machine ends? [Y/n]", ""},
		{"Names, all, none, or -NAME to omit it [all]:", ""},
		{"Remove from their files the servers that work in Junction? [Y/n]", ""},
	}, "setup")
	flat := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"There is no \"nots\" here; answer all, none, names of the list, or -NAME to omit it.",
		"Added 2 servers to ~/.config/junction/config.yaml.", "No service, which would start Junction at each login: systemctl --user show ",
		"Started Junction at http://127.0.0.1:", "notes: ready, 3 tools", "wiki: ready, 3 tools",
		"in ~/.cursor/mcp.json. Removed from it: notes.", "Restart these programs: Cursor, VS Code.",
		"After a reboot, the clients have no servers of Junction until it runs; start it then with: junction service start", "Undo all of it with: junction setup --undo",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("the terminal does not show %q", want)
		}
	}
	if file, err := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml")); err != nil ||
		!regexp.MustCompile(`(?m)^# mine\nlisten: 127\.0\.0\.1:\d+  # the usual one\nadmin: `).Match(file) {
		t.Errorf("the configuration is %s, %v", file, err)
	}
	if n := strings.Count(flat, ", ~/.cursor/mcp.json:"); n != 3 || !strings.Contains(flat, "notes, from Cursor, ~/.cursor/mcp.json:") {
		t.Errorf("the plan has %d lines about the three servers of Cursor", n)
	}
	if strings.Contains(flat, "service install") || strings.Contains(flat, "the value that VS Code asks for") {
		t.Error("the terminal advises a service, which failed, or a variable, whose value was asked for")
	}
	if strings.Contains(text, "canary-of-the-wiki") || strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("the terminal shows the secret, or is controlled by a name")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line) > 60 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("a line is wider than the terminal: %q", line)
		}
	}
	secret := filepath.Join(home, ".config", "junction", "secrets", "wiki.WIKI_KEY")
	info, err := os.Stat(secret)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the value: %v, %v", info, err)
	}
	if t.Failed() {
		t.Fatal(text)
	}
	call := exec.Command(program, "call", "wiki__echo", "text=hello")
	call.Env = env
	if out, err := call.CombinedOutput(); err != nil || !strings.Contains(string(out), "hello") {
		t.Errorf("a call gave %v: %s", err, out)
	}
	text = mustTalk(t, env, dialogue{{"? [Y/n]", "y"}}, "setup", "--undo")
	undone = true
	stops := regexp.MustCompile(`(?s)  - stop Junction \(process (\d+)\)\r?\n.*Undo the setup\?.*Stopped Junction \(process (\d+)\)\.`)
	if m := stops.FindStringSubmatch(text); m == nil || m[1] != m[2] {
		t.Errorf("the undo does not say that it stops Junction: %s", text)
	}
	after := treeOf(t, home)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("after the undo, %s is\n%s\nwant\n%s", name, after[name], content)
		}
	}
	for name := range after {
		if _, there := before[name]; !there {
			t.Errorf("after the undo, there is %s", name)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestTerminalSetupReadsTheVariablesOfTheService: setup asks for no value that the process has which it starts.
func TestTerminalSetupReadsTheVariablesOfTheService(t *testing.T) {
	home, program := t.TempDir(), harness.JunctionBinary(t)
	dir := filepath.Join(home, ".config", "junction")
	config := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams:\n  wiki: { command: [%q, demo], env: { KEY: \"${WIKI_KEY}\" } }\n", program)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(dir, "config.yaml.environment"), []byte("WIKI_KEY=canary-of-the-wiki\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + pathWith(t, program), "TERM=xterm", "NO_COLOR=1"}
	defer func() {
		cmd := exec.Command(program, "service", "uninstall")
		cmd.Env = env
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}()
	text := mustTalk(t, env, dialogue{{"Start Junction in the background, until the machine ends? [Y/n]", "y"}}, "setup")
	if !strings.Contains(text, "wiki: ready, 3 tools") || strings.Contains(text, "WIKI_KEY") {
		t.Errorf("setup shows\n%s", text)
	}
}

// TestTerminalSetupAsksAgain: a value that was left for later is asked for by the next setup, with its description, which keeps
// it for its owner, and unblocks the server. A setup asks about clients that do not have Junction yet. The undo makes the configuration what it was.
func TestTerminalSetupAsksAgain(t *testing.T) {
	home, program := t.TempDir(), harness.JunctionBinary(t)
	const was = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"
	for name, text := range map[string]string{
		".config/junction/config.yaml": was,
		".config/Code/User/mcp.json": fmt.Sprintf(`{"inputs": [{"type": "promptString", "id": "wiki-key", "description": "Key of the wiki"}],
			"servers": {"wiki": {"command": %q, "args": ["demo"], "env": {"WIKI_KEY": "${input:wiki-key}"}}}}`, program),
	} {
		file := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + pathWith(t, program), "TERM=xterm", "NO_COLOR=1"}
	undo := func() error {
		cmd := exec.Command(program, "setup", "--undo", "--yes")
		cmd.Env = env
		return cmd.Run()
	}
	defer undo()
	for n, step := range []struct {
		answers dialogue
		want    []string
	}{
		{dialogue{
			{"Names, all, none, or -NAME to omit it [all]:", ""},
			{"wiki needs WIKI_KEY (Key of the wiki); Enter leaves it for later:", ""},
			{"Start Junction in the background, until the machine ends? [Y/n]", "n"},
			{"Names, all, none, or -NAME to omit it [all]:", "n"},
		}, []string{"Start Junction with: junction", "Left for later: WIKI_KEY of wiki."}},
		{dialogue{
			{"wiki needs WIKI_KEY (Key of the wiki); Enter leaves it for later:", ""},
			{"Start Junction in the background, until the machine ends? [Y/n]", "y"},
			{"Names, all, none, or -NAME to omit it [all]:", "none"},
		}, []string{"wiki: blocked: ", "or run junction setup, which asks for it", "Left for later: WIKI_KEY of wiki. junction setup asks again, and keeps the values in " +
			"~/.config/junction/secrets."}},
		{dialogue{
			{"wiki needs WIKI_KEY (Key of the wiki); Enter leaves it for later:", "canary-of-the-wiki"},
			{"Names, all, none, or -NAME to omit it [all]:", "none"},
		}, []string{"Kept WIKI_KEY of wiki in ~/.config/junction/secrets/wiki.WIKI_KEY.", "wiki: ready, 3 tools"}},
		{dialogue{
			{"Names, all, none, or -NAME to omit it [all]:", "all"},
			{"Remove from their files the servers that work in Junction? [Y/n]", ""},
		}, []string{"wiki: ready, 3 tools", "Connected VS Code"}},
		{dialogue{
			{"All clients that were found use Junction: VS Code. Remove from their files", ""},
		}, []string{"wiki: ready, 3 tools"}},
	} {
		text := mustTalk(t, env, step.answers, "setup")
		for _, want := range step.want {
			if flat := strings.Join(strings.Fields(text), " "); !strings.Contains(flat, want) {
				t.Errorf("setup %d does not show %q:\n%s", n+1, want, text)
			}
		}
		if strings.Contains(text, "canary-of-the-wiki") {
			t.Error("the terminal shows the secret")
		}
		if said := strings.Contains(text, "After a reboot"); said != (n > 0) {
			t.Errorf("setup %d is about a reboot: %v, although Junction runs only after the first\n%s", n+1, said, text)
		}
	}
	err := undo()
	config := filepath.Join(home, ".config", "junction")
	text, readErr := os.ReadFile(filepath.Join(config, "config.yaml"))
	left, dirErr := os.ReadDir(config)
	if err := errors.Join(err, readErr, dirErr); err != nil || string(text) != was || len(left) != 1 {
		t.Errorf("after the undo there are %v and\n%s\n%v", left, text, err)
	}
}

// TestTerminalSetupLeavesWhatStillStarts: a person sees which server is ready, and which one still starts. An
// interrupt, or Enter, ends only the waiting. The client is connected, keeps the server that starts, and one
// last line names the command for later. A terminal with room for the table has it once in the end.
func TestTerminalSetupLeavesWhatStillStarts(t *testing.T) {
	for name, row := range map[string]struct {
		columns         uint16
		waiting, answer string
	}{
		"narrow": {60, "Starting slow …", interrupt},
		"wide":   {100, "fast: ready, 3 tools slow: starting for", ""},
	} {
		t.Run(name, func(t *testing.T) { leaveWhatStillStarts(t, row.columns, row.waiting, row.answer) })
	}
}

func leaveWhatStillStarts(t *testing.T, columns uint16, waiting, answer string) {
	home, program := t.TempDir(), harness.JunctionBinary(t)
	for name, text := range map[string]string{
		".config/junction/config.yaml": "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n",
		".cursor/mcp.json": fmt.Sprintf(`{"mcpServers": {"fast": {"command": %q, "args": ["demo"]},
			"slow": {"command": "/bin/sleep", "args": ["600"]}}}`, program),
		".config/zed/settings.json": "{}",
	} {
		file := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + pathWith(t, program), "TERM=xterm", "NO_COLOR=1"}
	defer func() {
		cmd := exec.Command(program, "setup", "--undo", "--yes")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	text := mustTalkAt(t, columns, env, dialogue{
		{"Names, all, none, or -NAME to omit it [all]:", "yes"},
		{"Start Junction in the background, until the machine ends? [Y/n]", ""},
		{waiting, answer},
		{"Names, all, none, or -NAME to omit it [all]:", ""},
		{"Remove from their files the servers that work in Junction? [Y/n]", ""},
	}, "setup")
	if columns > 60 {
		text = strings.Join(shown(strings.ReplaceAll(text, "\n", "\r\n"), int(columns)), "\n")
	}
	flat := strings.Join(strings.Fields(text), " ")
	const last = "When they work, remove them from the clients with: junction connect --all --replace"
	if strings.Count(flat, "--replace") != 1 || !strings.Contains(flat, last) ||
		!strings.Contains(flat, "Kept, because they do not work in Junction now: slow (starting).") {
		t.Error(text)
	}
	if strings.Count(flat, "fast: ready, 3 tools") != 1 || strings.Count(flat, "Did not wait longer for slow, after ") != 1 ||
		strings.Contains(flat, " at most.") != (columns == 60) {
		t.Errorf("the rows of the servers are not there once:\n%s", text)
	}
	again := exec.Command(program, "connect", "--all", "--replace")
	again.Env = env
	if out, err := again.CombinedOutput(); err != nil || strings.Count(string(out), "--replace") != 1 {
		t.Errorf("the command for later gave %v: %s", err, out)
	}
}

// TestTerminalSetupUndoTakesBackValues: a setup that has only kept a value is undone, too. If the file has
// changed since, the value stays, and the undo names its file.
func TestTerminalSetupUndoTakesBackValues(t *testing.T) {
	for name, edit := range map[string]string{"unchanged": "", "changed": "# mine\n"} {
		t.Run(name, func(t *testing.T) {
			home, program := t.TempDir(), harness.JunctionBinary(t)
			folder := filepath.Join(home, ".config", "junction")
			file, secret := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "secrets", "a.TOKX")
			was := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams:\n  a: { command: [%q, demo], "+
				"env: { TOK: \"${TOKX}\" } }\n", program)
			if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, []byte(was), 0o600)); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + pathWith(t, program), "TERM=xterm", "NO_COLOR=1"}
			undo := func() (string, error) {
				cmd := exec.Command(program, "setup", "--undo", "--yes")
				cmd.Env = env
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			defer undo()
			mustTalk(t, env, dialogue{
				{"a needs TOKX; Enter leaves it for later:", "canary-of-a"},
				{"Start Junction in the background, until the machine ends? [Y/n]", "y"},
			}, "setup")
			now, err := os.ReadFile(file)
			if err := errors.Join(err, os.WriteFile(file, append(now, edit...), 0o600)); err != nil {
				t.Fatal(err)
			}
			out, err := undo()
			is, readErr := os.ReadFile(file)
			if err := errors.Join(err, readErr); err != nil {
				t.Fatal(err, out)
			}
			left, want := treeOf(t, folder), was
			named := strings.Contains(out, "These values stay, because a configuration still uses them: "+
				"~/.config/junction/secrets/a.TOKX\n")
			if edit != "" {
				want = string(now) + edit
			}
			if _, kept := left["secrets/a.TOKX"]; string(is) != want || kept != (edit != "") || named != kept {
				t.Errorf("after the undo, %s is there: %v, and the configuration is\n%s\nwant\n%s\n%s", secret, kept, is, want, out)
			}
			if edit == "" && (len(left) != 2 || strings.Contains(strings.ReplaceAll(out, " rm -r ", ""), " rm ") || !strings.Contains(out, "Restored ~/.config/junction/config.yaml.")) {
				t.Errorf("after the undo there are %d files: %s", len(left), out)
			}
			if again, err := undo(); err != nil || !strings.Contains(again, "There is no setup of ") {
				t.Errorf("a second undo gave %v: %s", err, again)
			}
		})
	}
}
