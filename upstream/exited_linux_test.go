package upstream

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"junction/auth/authtest"
)

// TestStatusHasTheCrashOfAnAttempt: while a command that has crashed is started once more, for the legacy era,
// the status has the reason of the first crash.
func TestStatusHasTheCrashOfAnAttempt(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	const script = "[ -e crashed ] && read line < gate\ntouch crashed; echo no module >&2; exit 1"
	u := Start("up", Config{Command: []string{"sh", "-c", script}, Dir: dir}, Options{Log: authtest.Log(t)})
	t.Cleanup(u.Close)
	open, err := os.OpenFile(gate, os.O_WRONLY, 0) // waits for the second process
	if err != nil {
		t.Fatal(err)
	}
	if s := u.Status(); s.State != StateStarting || s.Exited != "exited with status 1: no module" {
		t.Errorf("the status is %v with %q", s.State, s.Exited)
	}
	open.Close()
	<-u.met // the attempt has failed
	if s := u.Status(); s.State == StateStarting || s.Exited != "" {
		t.Errorf("after the attempt, the status is %v with %q", s.State, s.Exited)
	}
}
