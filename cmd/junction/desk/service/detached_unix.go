//go:build !windows

package service

import (
	"os"
	"syscall"
)

// detached returns the attributes of a process that the end of the terminal does not end.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
