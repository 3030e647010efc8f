package script

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
)

// pathWith returns a folder for PATH in which a shell finds the program as junction, and nothing else.
func pathWith(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "junction")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTerminalSetupLinksTheProgram: a person whose shell does not find junction gets command lines that work,
// and a link if there is room for it and the person agrees. No other file is touched, and the undo removes
// what was made.
func TestTerminalSetupLinksTheProgram(t *testing.T) {
	program := harness.JunctionBinary(t)
	const question = "Link it into ~/.local/bin? [Y/n]"
	for name, test := range map[string]struct {
		theirs  string // is ~/.local/bin/junction already
		inPath  bool   // ~/.local/bin is in PATH
		elsePro bool   // PATH has another program of this name
		yes     bool
		answers dialogue
		linked  bool
		want    []string // HOME and PROGRAM stand for their paths
		last    string   // how to call the program: it stands once, at the end
	}{
		"agreed": {answers: dialogue{{question, ""}}, linked: true, want: []string{"Linked junction into ~/.local/bin.",
			"  HOME/.local/bin/junction search WORD"},
			last: "PATH of this shell lacks ~/.local/bin. Many systems add it at the next login; until then, run HOME/.local/bin/junction."},
		"agreed, in PATH": {inPath: true, answers: dialogue{{question, "y"}}, linked: true, want: []string{"Linked junction into ~/.local/bin.\n", "  junction search WORD"}},
		"refused": {answers: dialogue{{question, "n"}}, want: []string{"  PROGRAM search WORD"},
			last: "This shell does not find junction. Run it as PROGRAM."},
		"another file":       {theirs: "mine", last: "~/.local/bin/junction is another file, which stays; run Junction as PROGRAM."},
		"another in PATH":    {elsePro: true, want: []string{"The command junction is another program here: "}, last: "Run this one as PROGRAM."},
		"yes without PATH":   {yes: true, last: "This shell does not find junction. Run it as PROGRAM."},
		"yes with PATH":      {yes: true, inPath: true, linked: true, want: []string{"Linked junction into ~/.local/bin.\n", "  junction search WORD"}},
		"yes, another file":  {yes: true, theirs: "mine", last: "Run it as PROGRAM."},
		"found by its name":  {inPath: true, theirs: "link", want: []string{"  junction search WORD"}},
		"linked, not a PATH": {theirs: "link", last: "PATH of this shell lacks ~/.local/bin. Many systems add it at the next login; until then, run HOME/.local/bin/junction."},
	} {
		t.Run(name, func(t *testing.T) {
			home, path := t.TempDir(), t.TempDir()
			bin := filepath.Join(home, ".local", "bin")
			file := filepath.Join(bin, "junction")
			var err error
			switch test.theirs {
			case "mine":
				err = errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600))
			case "link":
				err = errors.Join(os.MkdirAll(bin, 0o755), os.Symlink(program, file))
			}
			if test.elsePro {
				err = os.WriteFile(filepath.Join(path, "junction"), []byte("#!/bin/sh\n"), 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.inPath {
				path = bin
			}
			env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + path, "TERM=xterm", "NO_COLOR=1"}
			before := treeOf(t, home)
			args := []string{"setup"}
			if test.yes {
				args = append(args, "--yes")
			}
			flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
			text := mustTalk(t, env, test.answers, args...)
			last := strings.NewReplacer("HOME", home, "PROGRAM", program).Replace(test.last)
			if !strings.HasSuffix(flat(text), flat(last)) || last != "" && strings.Count(flat(text), flat(last)) != 1 ||
				strings.Contains(strings.TrimSuffix(flat(text), flat(last)), "PATH of this shell") {
				t.Errorf("%q does not stand once, at the end:\n%s", last, text)
			}
			for _, want := range test.want {
				want = strings.NewReplacer("HOME", home, "PROGRAM", program).Replace(want)
				if !strings.Contains(flat(text), flat(want)) {
					t.Errorf("it does not show %q:\n%s", want, text)
				}
			}
			if to, err := os.Readlink(file); test.theirs == "" && test.linked != (err == nil && to == program) {
				t.Errorf("the link names %q, %v", to, err)
			}
			if test.linked {
				if again := mustTalk(t, env, nil, args...); strings.Contains(again, "Link it") {
					t.Errorf("a second setup asks again:\n%s", again)
				}
			}
			undo := exec.Command(program, "setup", "--undo", "--yes")
			undo.Env = env
			out, err := undo.CombinedOutput()
			if err != nil || strings.Contains(string(out), "Removed the links") != test.linked {
				t.Errorf("the undo gave %v: %s", err, out)
			}
			after := treeOf(t, home)
			for name, content := range after {
				if before[name] != content {
					t.Errorf("after the undo, %s is %q, want %q", name, content, before[name])
				}
			}
			if len(after) != len(before) {
				t.Errorf("after the undo, there are %d files, want %d", len(after), len(before))
			}
		})
	}
}

// TestTerminalSetupUndoKeepsALinkOfOthers: a link that a person has changed since the setup stays.
func TestTerminalSetupUndoKeepsALinkOfOthers(t *testing.T) {
	home, program := t.TempDir(), harness.JunctionBinary(t)
	file := filepath.Join(home, ".local", "bin", "junction")
	env := []string{"HOME=" + home, "XDG_STATE_HOME=" + t.TempDir(), "PATH=" + t.TempDir(), "TERM=xterm", "NO_COLOR=1"}
	mustTalk(t, env, dialogue{{"Link it into ~/.local/bin? [Y/n]", ""}}, "setup")
	if err := errors.Join(os.Remove(file), os.Symlink("/bin/true", file)); err != nil {
		t.Fatal(err)
	}
	undo := exec.Command(program, "setup", "--undo", "--yes")
	undo.Env = env
	if out, err := undo.CombinedOutput(); err != nil || strings.Contains(string(out), "Removed the links") {
		t.Errorf("the undo gave %v: %s", err, out)
	}
	if to, err := os.Readlink(file); to != "/bin/true" {
		t.Errorf("the link of the person names %q, %v", to, err)
	}
}
