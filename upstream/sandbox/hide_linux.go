package sandbox

import "golang.org/x/sys/unix"

// HideEnvironment prevents other processes of the same user, such as upstreams, from reading the
// environment and memory of this process in /proc. Every program of Junction calls it first. It also
// disables core dumps, and only root can attach a debugger. Programs that this process executes do
// not inherit the setting. The arguments of the process stay visible.
func HideEnvironment() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) } // it cannot fail for 0
