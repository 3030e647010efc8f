package runfile

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestZombieIsNotAlive: a process that has ended counts as ended before its parent has waited for it.
func TestZombieIsNotAlive(t *testing.T) {
	cmd := mustLive(t)
	p := ProcessOf(cmd.Process.Pid)
	if !p.Alive() || p.Start == "" {
		t.Fatalf("a running process is %+v, alive %v", p, p.Alive())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("a process that was killed counts as alive")
	}
}
