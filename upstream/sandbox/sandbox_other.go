//go:build !linux

package sandbox

import (
	"errors"
	"os/exec"
	"runtime"
)

// Kernel reports that nothing can be enforced.
func Kernel() Support {
	return Support{Why: "only Linux has Landlock, and this is " + runtime.GOOS}
}

// Handover is that of Linux.
type Handover struct{}

// Wrap always fails. Support.Enforces is false here, so that nobody calls it.
func Wrap(*exec.Cmd, Rules, Support) (*Handover, error) { return nil, errors.ErrUnsupported }

// Started does nothing.
func (*Handover) Started() error { return nil }

// Close does nothing.
func (*Handover) Close() {}

// Main is the wrapper, which only Linux has.
func Main() int { return 2 }
