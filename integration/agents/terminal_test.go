//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// terminal is a tmux server with one window, in which an agent talks to a person.
type terminal struct {
	t      *testing.T
	socket string
}

// startTerminal runs an agent in a terminal until the test ends.
func startTerminal(t *testing.T, a agent, where machine) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed, so there is no terminal for a person")
	}
	where.person = true
	command, env := a.prepare(where)
	short, err := os.MkdirTemp("", "agents") // the path of a socket has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, socket: filepath.Join(short, "tmux")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%s", term.screen())
		}
		term.tmux("kill-server")
		os.RemoveAll(short)
	})
	args := []string{"new-session", "-d", "-x", "150", "-y", "50", "-c", where.work(), "env", "-i"}
	args = append(append(args, where.environment()...), env...)
	term.tmux(append(append(args, "TERM=tmux-256color"), command...)...)
	return term
}

// tmux runs a command of tmux.
func (term *terminal) tmux(args ...string) string {
	cmd := exec.Command("tmux", append([]string{"-S", term.socket, "-f", "/dev/null"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil && args[0] != "kill-server" && args[0] != "capture-pane" {
		term.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// screen returns the text on the screen.
func (term *terminal) screen() string { return term.tmux("capture-pane", "-p") }

// mustShow waits until the screen has a text.
func (term *terminal) mustShow(text string) {
	term.t.Helper()
	term.mustWait("the screen does not show "+text, func() bool { return strings.Contains(term.screen(), text) })
}

// mustAnswer waits for a question and presses Enter until the question is gone. An agent ignores
// keys in the moment in which its question appears.
func (term *terminal) mustAnswer(question string) {
	term.t.Helper()
	term.mustShow(question)
	pressed := time.Time{}
	term.mustWait("Enter does not answer "+question, func() bool {
		if !strings.Contains(term.screen(), question) {
			return true
		}
		if time.Since(pressed) > time.Second {
			term.tmux("send-keys", "Enter")
			pressed = time.Now()
		}
		return false
	})
}

// mustWait looks at the screen until enough returns true.
func (term *terminal) mustWait(problem string, enough func() bool) {
	term.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for !enough() {
		select {
		case <-again.C:
		case <-limit:
			term.t.Fatalf("%s within %v", problem, patience)
		}
	}
}
