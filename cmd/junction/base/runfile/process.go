package runfile

import (
	"os"
	"strconv"
	"strings"
)

// Process is a process of this machine. Systems use PIDs again: together with its start, a PID names one
// process only.
type Process struct {
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"` // when it started, in the words of the system; "" if unknown
}

// This returns this process.
func This() Process { return ProcessOf(os.Getpid()) }

// ProcessOf returns the process that has a PID now.
func ProcessOf(pid int) Process {
	start, _ := lookUp(pid)
	return Process{pid, start}
}

// Alive reports whether a process has not ended, also a process of another user. A process that has ended
// is not alive although its parent has not noticed.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, exists := lookUp(p.PID)
	return exists && (start == p.Start || start == "" || p.Start == "")
}

// Is reports whether both are the same process.
func (p Process) Is(other Process) bool {
	return p.PID == other.PID && (p.Start == other.Start || p.Start == "" || other.Start == "")
}

// age orders the processes of one machine: the larger one has started later, as far as that is known.
func (p Process) age() int64 {
	ticks, _, _ := strings.Cut(p.Start, " ")
	n, _ := strconv.ParseInt(ticks, 10, 64) // 0 is the oldest
	return n
}
