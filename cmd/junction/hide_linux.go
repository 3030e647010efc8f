package main

import "golang.org/x/sys/unix"

// hideEnvironment prevents other processes of the same user, such as upstreams, from reading our
// environment and memory in /proc. It also disables core dumps, and only root can attach a
// debugger.
func hideEnvironment() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) } // it cannot fail for 0
