//go:build !windows && !darwin

package runfile

import (
	"errors"
	"os"
	"syscall"
)

// signals reports whether a process can be sent a signal, or belongs to another user.
func signals(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
