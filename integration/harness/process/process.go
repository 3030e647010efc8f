// Package process starts the processes of tests, reads what they write, and ends them with all that
// they have started. It measures their CPU time and memory where the system tells these, and gives
// them free ports. It finds what a test leaves behind (OwnerOf).
package process

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a test waits for something of a process that should happen at once, on a
// machine that has much else to do.
const Patience = 2 * time.Minute

// MustStartServer starts a server that ends with the test, and returns what of its output matches.
func MustStartServer(t testing.TB, cmd *exec.Cmd, ready *regexp.Regexp) []string {
	t.Helper()
	out := NewOutput()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ChildAttr(syscall.SIGKILL)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = OwnerOf(t).EnvironOfOthers(cmd.Environ())
	if _, err := cmd.StdinPipe(); err != nil { // serve.mjs ends when this is closed
		t.Fatal(err)
	}
	ended, err := Start(cmd)
	if err != nil {
		t.Fatalf("start %s: %v", cmd, err)
	}
	t.Cleanup(func() {
		KillGroup(cmd.Process.Pid)
		<-ended
	})
	return out.MustMatch(t, ready, Patience, ended)
}

// Start starts a process. The channel is closed when the process has ended; how is then in
// cmd.ProcessState. One thread starts the process and waits for it, because Linux takes the end of
// that thread for the end of the parent (ChildAttr).
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(done)
		}
	}()
	return done, <-started
}

// Kill ends a process. It does nothing if the process has ended.
func Kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill() // one that has ended needs none
	}
}

// Terminate asks a process to end. It does nothing if the process has ended.
func Terminate(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Signal(syscall.SIGTERM) // one that has ended needs none
	}
}

// ChildPIDs returns the processes whose parent is pid; none where the system cannot tell.
func ChildPIDs(pid int) []int { return children()[pid] }

// Descendants returns the children of a process, and theirs; none where the system cannot tell.
func Descendants(pid int) []int {
	of := children()
	all := slices.Clone(of[pid])
	for i := 0; i < len(all); i++ {
		all = append(all, of[all[i]]...)
	}
	return all
}

// Living reports whether a process has not ended yet, and its name. A zombie has ended: whether
// its parent reaps it is not ours. So has a process that is ending: it has closed its output, by which
// the proxy notices, and is no zombie until it is scheduled again.
func Living(pid int) (name string, lives bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndex(stat, []byte(") "))
	if open < 0 || end < open || end+2 >= len(stat) {
		return "", false
	}
	fields := bytes.Fields(stat[end+2:]) // from the third on, see proc_pid_stat(5)
	if len(fields) < 7 {
		return "", false
	}
	flags, _ := strconv.ParseUint(string(fields[6]), 10, 64)
	const ending = 4 // PF_EXITING of Linux
	return string(stat[open+1 : end]), fields[0][0] != 'Z' && flags&ending == 0
}
