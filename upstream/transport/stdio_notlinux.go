//go:build unix && !linux

package transport

import (
	"os"
	"syscall"
)

// dieWithParent does nothing: here a child learns of our end from its input, and then from the
// Watchdog.
func dieWithParent(*syscall.SysProcAttr) {}

// outputPair returns the two ends of what the child's standard output goes through.
func outputPair() (ours, theirs *os.File, err error) { return os.Pipe() }
