package upstream

import (
	"os"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that started it ends, which is with us, however we end. The kernel drops the wish
// when the child executes a set-uid program, and does not pass it on to what the child starts.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// widen lets more stand in a pipe than the usual 64 KiB, so that we and the server take turns less often over a large answer. It takes no memory before that is
// used. Where it is not allowed the pipe stays as it is.
func widen(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { syscall.Syscall(syscall.SYS_FCNTL, fd, fSetPipeSize, pipeSize) })
	}
}

const (
	fSetPipeSize = 1031      // F_SETPIPE_SZ of fcntl(2)
	pipeSize     = 256 << 10 // all pipes of a user may have 64 MiB (pipe-user-pages-soft), after which new ones are tiny
)
