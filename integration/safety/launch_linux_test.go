package safety

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Roles of the test binary that become the program of their arguments, in a process that is less
// than ours: with another user, on a kernel without Landlock, or where no further filter of system
// calls can be installed.
const (
	asNobody        = "as-nobody"
	withoutLandlock = "without-landlock"
	withoutFilters  = "without-filters"
)

// nobody is the user id of asNobody.
const nobody = 65534

// launched returns the command that starts a program in one of the roles.
func launched(role, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{program}, args...)...)
	cmd.Env = append(os.Environ(), "JUNCTION_ROLE="+role)
	return cmd
}

// launchRoles returns the roles of this package.
func launchRoles() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		asNobody:        func(args []string) error { return launch(asNobody, args) },
		withoutLandlock: func(args []string) error { return launch(withoutLandlock, args) },
		withoutFilters:  func(args []string) error { return launch(withoutFilters, args) },
	}
}

// launch plays one of the roles. It returns only on a failure.
func launch(role string, args []string) (err error) {
	switch role {
	case asNobody:
		if os.Getuid() == 0 {
			if err = syscall.Setgroups(nil); err == nil {
				err = syscall.Setgid(nobody)
			}
			if err == nil {
				err = syscall.Setuid(nobody)
			}
		}
	case withoutLandlock:
		err = refuse(unix.SYS_LANDLOCK_CREATE_RULESET, unix.ENOSYS) // as a kernel that has none
	case withoutFilters:
		err = refuse(unix.SYS_SECCOMP, unix.EPERM)
	}
	if err != nil {
		return err
	}
	os.Unsetenv("JUNCTION_ROLE")
	return fmt.Errorf("exec %s: %w", args[0], syscall.Exec(args[0], args, os.Environ()))
}

// refuse has the kernel answer a system call with an error. All threads and what they start keep
// that.
func refuse(call uint32, errno unix.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return fmt.Errorf("seccomp: %w", failed)
	}
	return nil
}
