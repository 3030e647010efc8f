//go:build !linux && !darwin && !windows

package runfile

// lookUp reports whether a process has a PID. When it started is unknown on this system.
func lookUp(pid int) (start string, exists bool) { return "", signals(pid) }
