package runfile

import (
	"errors"
	"strconv"

	"golang.org/x/sys/windows"
)

// lookUp returns when the process with a PID has started. Windows also finds a process that has ended, as
// long as any other process has a handle of it. The start of a process of another user is unknown.
func lookUp(pid int) (start string, exists bool) {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return "", errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer windows.CloseHandle(h) //nolint:errcheck // of a handle that we have opened
	if event, err := windows.WaitForSingleObject(h, 0); err != nil || event != uint32(windows.WAIT_TIMEOUT) {
		return "", false
	}
	var created, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(h, &created, &ended, &kernel, &user) == nil {
		start = strconv.FormatInt(created.Nanoseconds(), 10)
	}
	return start, true
}
