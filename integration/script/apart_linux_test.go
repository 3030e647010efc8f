package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
)

// apartVariable is set in the process with a network of its own, and in its children.
const apartVariable = "JUNCTION_TEST_APART"

// apart runs this program again in a network of its own, so that no other program can have the addresses at
// which Junction listens by default. It returns false if it has not: only the superuser may do so, and the
// process may be such a one already.
func apart() (code int, ran bool) {
	if os.Getenv(apartVariable) != "" || os.Getuid() != 0 {
		return 0, false
	}
	if needs.Node.Find() == nil { // there is no registry in the other network
		if _, err := npm.Installed(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true
		}
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), apartVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // its end is the end of the parent for Pdeathsig
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), true
	}
	return 0, err == nil // a container may forbid it
}

// upLoopback makes the loopback interface of a network of its own usable.
func upLoopback() error {
	if os.Getenv(apartVariable) == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
