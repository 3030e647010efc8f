//go:build !unix

package transport

import (
	"os"
	"syscall"
)

// ownGroup does nothing: here a process has no group, and what the child starts is left alone.
func ownGroup() *syscall.SysProcAttr { return nil }

// signal kills the child; there is no way to ask it.
func (p *process) signal(bool) { p.cmd.Process.Kill() }

func (p *process) left() bool { return false }

// Watchdog does nothing: on this system a process has no group that another process could end.
type Watchdog struct{}

func (*Watchdog) keep(*process) error { return nil }
func (*Watchdog) forget(*process)     {}

// pipeWriter leaves all the writing to the goroutine that may wait, because here every write to a
// pipe may.
type pipeWriter struct{}

func (pipeWriter) open(*os.File)           {}
func (pipeWriter) try([]byte) (int, error) { return 0, nil }

// outputPair returns the two ends of what the child's standard output goes through.
func outputPair() (ours, theirs *os.File, err error) { return os.Pipe() }
