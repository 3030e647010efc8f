package runfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// lookUp returns when the process with a PID has started: the ticks since the boot, and the boot, so that
// neither a change of the clock nor a reboot matters (proc_pid_stat(5)).
func lookUp(pid int) (start string, exists bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// The second field, the name of the program, is in parentheses and may contain some.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, startTime = 0, 19 // the fields 3 and 22
	switch {
	case errors.Is(err, fs.ErrPermission) || err == nil && len(fields) <= startTime:
		return "", signals(pid)
	case err != nil:
		if _, err := os.Stat("/proc/self/stat"); err != nil { // there is no /proc
			return "", signals(pid)
		}
		return "", false
	case fields[state] == "Z" || fields[state] == "X":
		return "", false
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, the ticks alone
	return strings.TrimSpace(fields[startTime] + " " + strings.TrimSpace(string(boot))), true
}
