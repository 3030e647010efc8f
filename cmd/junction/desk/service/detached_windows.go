package service

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// detached returns the attributes of a process that the end of the console does not end.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true,
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}

func terminate(p *os.Process) error { return p.Kill() }
