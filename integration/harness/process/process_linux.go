package process

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ChildAttr puts a child into a process group of its own, so that what it leaves behind can be
// killed, and has it ended with us.
func ChildAttr(end syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: end}
}

// KillGroup kills what is left of the process group that pid leads or led.
func KillGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// YieldCPU leaves the CPU to every other process that wants it.
func YieldCPU() { unix.Setpriority(unix.PRIO_PROCESS, 0, 19) }

// CPUTime returns the CPU time that the processes have used, to the nanosecond where /proc/PID/stat
// knows hundredths of a second.
func CPUTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		// The id of another process's CPU clock, as clock_getcpuclockid makes it: CPUCLOCK_SCHED
		// below the complement of the pid.
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
			return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// Resident returns how many bytes of memory a process has: all of them, and those that are its own
// and no pages of a file, such as its program, which the system shares and can drop.
func Resident(pid int) (all, own int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for name, n := range map[string]*int64{"VmRSS": &all, "RssAnon": &own} {
		_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
		line, _, _ := bytes.Cut(rest, []byte(" kB\n"))
		kb, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read %s of process %d: %w", name, pid, err)
		}
		*n = kb << 10
	}
	return all, own, nil
}

// PeakMemory returns the most memory that a process has ever had, in bytes.
func PeakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB\n"))
	kb, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return kb << 10, err
}

// everyPID returns the processes of the machine. Package filepath would read the folder of each process.
func everyPID() (pids []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // those that were read before an error count
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children returns the processes by their parents.
func children() map[int][]int {
	all := map[int][]int{}
	for _, child := range everyPID() {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// The fields after the name, which is in parentheses and may contain anything: state,
		// parent, ….
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			all[parent] = append(all[parent], child)
		}
	}
	return all
}

// ownedBy returns the living processes with a variable in their environment, except this one.
func ownedBy(variable string) (pids []int) {
	return slices.DeleteFunc(everyPID(), func(pid int) bool { return pid == os.Getpid() || !isOwned(pid, variable) })
}

// isOwned reports whether a process lives and has the variable in its environment. The environment of
// other users cannot be read, and a process that has ended has none.
func isOwned(pid int, variable string) bool {
	environment, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if !bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00")) {
		return false
	}
	_, lives := Living(pid)
	return lives
}
