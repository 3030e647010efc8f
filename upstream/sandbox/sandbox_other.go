//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
)

// Kernel returns a Support without any enforcement.
func Kernel() Support {
	return Support{Why: "only Linux has Landlock, and this is " + runtime.GOOS}
}

// Handover exists only on Linux.
type Handover struct{}

// Wrap always fails. Callers must check Support.Enforces, which is false here.
func Wrap(*exec.Cmd, Rules, Support) (*Handover, error) { return nil, errors.ErrUnsupported }

// Grant does nothing.
func (*Handover) Grant(*exec.Cmd, Granted, ...*os.File) {}

// Started does nothing.
func (*Handover) Started() error { return nil }

// Close does nothing.
func (*Handover) Close() {}

// Main exits with an error: the wrapper exists only on Linux.
func Main() int { return 2 }
