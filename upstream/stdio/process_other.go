//go:build !unix

package stdio

import (
	"os"
	"runtime"
	"syscall"
)

// ownGroup does nothing: there are no process groups here, so descendants of the child are not
// ended.
func ownGroup() *syscall.SysProcAttr { return nil }

// signal kills the child; there is no signal for a graceful end.
func (p *process) signal(bool) { p.cmd.Process.Kill() }

func (p *process) left() bool { return false }

// Unwatched returns why child processes may remain if Junction dies without cleaning up.
func Unwatched() string { return runtime.GOOS + " has no process groups" }

// Watchdog does nothing: this system has no process groups that another process could end.
type Watchdog struct{}

func (*Watchdog) keep(*process) error { return nil }
func (*Watchdog) forget(*process)     {}

// pipeWriter writes nothing, because every write to a pipe may block here. A separate goroutine
// writes everything.
type pipeWriter struct{}

func (pipeWriter) open(*os.File)           {}
func (pipeWriter) try([]byte) (int, error) { return 0, nil }

// outputPair returns the two ends of the child's standard output.
func outputPair() (ours, theirs *os.File, err error) { return os.Pipe() }

// killed reports whether SIGKILL has ended a process; there is no such signal here.
func killed(*os.ProcessState) bool { return false }

// byDescriptor is "": no path names an open folder. The start is by its path, right after the folder was
// opened and compared.
const byDescriptor = ""
