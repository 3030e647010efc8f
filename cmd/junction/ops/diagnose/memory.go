package diagnose

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// MemoryOf returns the resident memory in bytes of some processes and their children, by the ids of
// the processes. Each of them leads a session (on systems without /proc: a process group). If the
// memory of a process is unknown, its id is missing.
func MemoryOf(pids []int) map[int]int64 {
	sums := map[int]int64{}
	if len(pids) == 0 {
		return nil
	}
	wanted := map[int]bool{}
	for _, pid := range pids {
		wanted[pid] = true
	}
	add := func(leader int, bytes int64) {
		if wanted[leader] {
			sums[leader] += bytes
		}
	}
	if runtime.GOOS == "linux" {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
		for _, file := range stats {
			if text, err := os.ReadFile(file); err == nil { // otherwise the process has ended
				add(sessionIn(text))
			}
		}
		return sums
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "ps", "-A", "-o", "pgid=,rss=").Output() // Windows has no ps
	for line := range bytes.Lines(out) {
		if f := bytes.Fields(line); len(f) == 2 {
			add(int(number(f[0])), number(f[1])<<10)
		}
	}
	return sums
}

// sessionIn returns the session and the resident memory in a /proc/PID/stat (proc_pid_stat(5)). The
// name of the program is in parentheses and may have any characters.
func sessionIn(stat []byte) (leader int, memory int64) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 22 {
		return 0, 0
	}
	return int(number(f[3])), number(f[21]) * int64(os.Getpagesize())
}

// number returns 0 for text that is no number.
func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}
