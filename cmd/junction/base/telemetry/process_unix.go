//go:build unix

package telemetry

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime returns the CPU time of the process; 0 if the system does not tell it.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // after an error, usage is zero
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// FileLimit returns how many files the process may have open; 0 if the system does not tell it.
func FileLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(uint64(limit.Cur), 1<<62))
}

// readSystem returns what the system tells; Linux tells all of it.
func readSystem() map[string]int64 {
	values := map[string]int64{}
	if limit := FileLimit(); limit > 0 {
		values[mostFiles] = limit
	}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		values[openFiles] = int64(len(list) - 1) // without that of the folder
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			values[residentMemory] = pages * int64(os.Getpagesize())
		}
	}
	return values
}
