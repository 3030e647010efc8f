package runfile

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lookUp returns when the process with a PID has started.
func lookUp(pid int) (start string, exists bool) {
	const zombie = 5 // SZOMB of sys/proc.h
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || p.Proc.P_pid != int32(pid) || p.Proc.P_stat == zombie {
		return "", false
	}
	return fmt.Sprintf("%d%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec), true
}
