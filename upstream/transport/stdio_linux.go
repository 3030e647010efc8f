package transport

import (
	"os"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends, which is with
// us, however we end. The kernel drops the wish when the child executes a set-uid program, and does
// not pass it on to what the child starts.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// outputPair returns the two ends of what the child's standard output goes through: a pair of
// sockets, which takes a large answer for two thirds of the CPU time of a pipe, on both sides, and
// a small one for no more. It is what clients on Node give to servers: a program that opens
// /dev/stdout by its name, which sockets do not allow, fails under those, too. Nothing is written
// to our end, and that is not said either: a program that watches its output for a closed reader,
// as asyncio does, would mistake a shutdown of our end for that.
func outputPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.SetNonblock(fds[0], true) // which makes os.NewFile wait without a thread
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
