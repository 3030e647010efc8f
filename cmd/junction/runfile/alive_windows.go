package runfile

import (
	"errors"

	"golang.org/x/sys/windows"
)

// alive reports whether a process runs, also that of another user. Windows also finds a process that
// has ended, as long as any other process has a handle of it.
func alive(pid int) bool {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer windows.CloseHandle(h) //nolint:errcheck // of a handle that we have opened
	event, err := windows.WaitForSingleObject(h, 0)
	return err == nil && event == uint32(windows.WAIT_TIMEOUT)
}
