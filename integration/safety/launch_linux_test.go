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
// than ours: with another user, or on a kernel without Landlock.
const (
	asNobody        = "as-nobody"
	withoutLandlock = "without-landlock"
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
		err = hideLandlock()
	}
	if err != nil {
		return err
	}
	os.Unsetenv("JUNCTION_ROLE")
	return fmt.Errorf("exec %s: %w", args[0], syscall.Exec(args[0], args, os.Environ()))
}

// hideLandlock has the kernel answer the first call of Landlock as one does that has none. All
// threads and what they start keep that.
func hideLandlock() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
