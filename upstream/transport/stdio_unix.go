//go:build unix

package transport

import (
	"os"
	"syscall"
)

// ownGroup makes the child the leader of a session, and so of a process group whose id is its own.
func ownGroup() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	dieWithParent(a)
	return a
}

// signal asks everybody in the child's group to end, or kills them. The group may outlive the
// child; until then its id is not reused.
func (p *process) signal(kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	syscall.Kill(-p.cmd.Process.Pid, sig)
}

// left reports whether the child's group has a process.
func (p *process) left() bool { return syscall.Kill(-p.cmd.Process.Pid, 0) == nil }

// pipeWriter writes to a pipe without waiting for room in it. Its methods are called by one
// goroutine at a time.
type pipeWriter struct {
	conn  syscall.RawConn
	write func(fd uintptr) bool // one for all frames, so that a frame needs no closure of its own

	b   []byte // of the call of try that is under way, with what becomes of it
	n   int
	err error
}

func (p *pipeWriter) open(f *os.File) {
	p.conn, _ = f.SyscallConn() // fails only for a closed file, which try finds too
	p.write = func(fd uintptr) bool {
		for {
			n, err := syscall.Write(int(fd), p.b)
			switch err {
			case nil:
				p.n, p.err = n, nil
			case syscall.EINTR:
				continue
			case syscall.EAGAIN:
				p.n, p.err = 0, nil
			default:
				p.n, p.err = 0, err
			}
			return true
		}
	}
}

// try writes as much of b as there is room for, which may be nothing. A full pipe is no error.
func (p *pipeWriter) try(b []byte) (int, error) {
	p.b, p.n, p.err = b, 0, nil
	err := p.conn.Write(p.write)
	p.b = nil
	if err == nil {
		err = p.err
	}
	return p.n, err
}
