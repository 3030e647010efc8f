package upstream

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it ends, which is with us, however we end. The kernel drops the wish
// when the child executes a set-uid program, and does not pass it on to what the child starts.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
