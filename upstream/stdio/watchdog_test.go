//go:build unix

package stdio

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness/needs"
)

// TestWatchdogLivesWithChildren: all children share one watchdog. It runs as long as a child runs,
// and ends after the last child, also if that child was killed.
func TestWatchdogLivesWithChildren(t *testing.T) {
	k := new(Watchdog)
	shared := func(o *Options) { o.Watchdog = k }
	pid := func() int {
		t.Helper()
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.cmd == nil {
			return 0
		}
		if err := k.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the watchdog: %v", err)
		}
		return k.cmd.Process.Pid
	}
	if _, err := Open(Options{Command: []string{"no-such-program"}, Watchdog: k}, nil); err == nil || pid() != 0 {
		t.Errorf("the watchdog of a process that could not be started is %d, after %v; want none", pid(), err)
	}
	one := mustOpen(t, "server", shared)
	first := pid()
	two := mustOpen(t, "server", shared)
	if first == 0 || pid() != first {
		t.Errorf("the watchdog is %d with one child and %d with two, want the same", first, pid())
	}
	one.Close()
	if pid() != first {
		t.Errorf("with a child left the watchdog is %d, want %d still", pid(), first)
	}
	two.start(t.Context(), "1", "die", "{}")
	two.Wait()
	two.Close()
	if pid() != 0 {
		t.Errorf("with no child left the watchdog is %d, want none", pid())
	}
	if err := syscall.Kill(first, 0); err != syscall.ESRCH {
		t.Errorf("the watchdog that was is still there: %v", err)
	}
	three := mustOpen(t, "server", shared)
	if pid() == 0 {
		t.Error("a child that came later has no watchdog")
	}
	three.Close()
	if pid() != 0 || len(k.groups) != 0 {
		t.Errorf("in the end the watchdog is %d, with %d groups; want none", pid(), len(k.groups))
	}
}

// TestWatchdogParentKilled: kill -9 of us takes every process with it that has stayed in the group
// of its child, whatever it ignores, and whatever has become of the watchdog before the last child
// was started.
func TestWatchdogParentKilled(t *testing.T) {
	t.Parallel()
	for _, roles := range [][]string{
		{"stubborn"},
		{"wrapper"},
		{"family"}, // of whom one outlives the end of its input, and SIGTERM
		{"family", "watchdog dies", "family", "watchdog hangs", "family"},
	} {
		t.Run(strings.Join(roles, ", "), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			fifo, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer fifo.Close()
			cmd := exec.Command(os.Args[0], roles...)
			cmd.Env = append(os.Environ(), roleEnv+"=proxy", fifoEnv+"="+path, "GORACE=atexit_sleep_ms=0")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.LimitReader(out, 5))
			cmd.Process.Kill()
			cmd.Wait()
			if err != nil || string(got) != "ready" {
				t.Fatalf("the proxy says %q, %v", got, err)
			}
			fifo.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadAll(fifo); err != nil {
				t.Fatalf("a process is left: %v", err)
			}
		})
	}
}

// TestWatchdogInEveryShell: what the watchdog is given to run means the same to the shells that are
// /bin/sh somewhere. Groups that are kept get the whole ladder, others nothing, and a signal to
// everybody is not for the watchdog.
func TestWatchdogInEveryShell(t *testing.T) {
	t.Parallel()
	for _, shell := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		t.Run(shell[0], func(t *testing.T) {
			t.Parallel()
			_, err := exec.LookPath(shell[0])
			needs.Skip(t, err)
			child := func(role string) *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), roleEnv+"="+role, fifoEnv+"="+os.DevNull, "GORACE=atexit_sleep_ms=0")
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
					t.Fatal(err)
				}
				return cmd
			}
			asked, forced, forgotten, ended := child("eof-deaf"), child("stubborn"), child("eof-deaf"), child("deaf")
			ended.Process.Kill()
			ended.Wait()
			id := func(cmd *exec.Cmd) string { return strconv.Itoa(cmd.Process.Pid) }
			watchdog := exec.Command(shell[0], append(shell[1:], "-c", watchdogScript, "junction", id(forgotten), id(asked))...)
			watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			in, err := watchdog.StdinPipe()
			if err == nil {
				err = watchdog.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			// So many lines that it must have read some of them when they are written.
			io.WriteString(in, "forget "+id(forgotten)+"\nkeep "+id(ended)+"\nkeep "+id(forced)+"\n"+strings.Repeat("\n", 100_000)+"kee")
			for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
				syscall.Kill(-watchdog.Process.Pid, s)
			}
			start := time.Now()
			in.Close()
			late := time.AfterFunc(time.Minute, func() { asked.Process.Kill(); forced.Process.Kill() })
			defer late.Stop()
			for _, step := range []struct {
				name  string
				cmd   *exec.Cmd
				state string
				after time.Duration // at least
			}{{"the one that is asked to go", asked, "exit status 7", 2 * time.Second}, {"the one that is forced to", forced, "signal: killed", 4 * time.Second}, {"the watchdog", watchdog, "exit status 0", 4 * time.Second}} {
				step.cmd.Wait()
				if got, took := step.cmd.ProcessState.String(), time.Since(start); got != step.state || took < step.after-100*time.Millisecond {
					t.Errorf("%s: %s after %v, want %s after %v", step.name, got, took, step.state, step.after)
				}
			}
			forgotten.Process.Kill()
			forgotten.Wait()
			if got := forgotten.ProcessState.String(); got != "signal: killed" { // by us
				t.Errorf("the one that was forgotten ended with %s", got)
			}
		})
	}
}
