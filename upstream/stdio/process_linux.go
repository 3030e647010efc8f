package stdio

import (
	"os"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends, which is the
// case when Junction ends in any way. The setting is lost when the child executes a set-uid
// program, and descendants do not inherit it.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// outputPair returns the two ends of the child's standard output: a pair of sockets. For large
// responses, sockets take two thirds of the CPU time of a pipe, and no more for small ones. Node
// clients also use sockets, so a program that opens /dev/stdout by name, which fails for sockets,
// fails there, too. Junction writes nothing to its end, but does not shut down that direction
// either: asyncio and other programs would take the shutdown for a closed reader.
func outputPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.SetNonblock(fds[0], true) // so that os.NewFile blocks without a thread
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// byDescriptor is the folder with a path for each open file of the process that reads it.
const byDescriptor = "/proc/self/fd"
