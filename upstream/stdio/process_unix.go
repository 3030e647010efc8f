//go:build unix

package stdio

import (
	"os"
	"syscall"
)

// ownGroup makes the child the leader of a session, and so of a process group with the child's id.
func ownGroup() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	dieWithParent(a)
	return a
}

// signal sends SIGTERM or SIGKILL to the child's process group. The group may outlive the child;
// its id is not reused before the group has ended.
func (p *process) signal(kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	syscall.Kill(-p.cmd.Process.Pid, sig)
}

// left reports whether the child's group contains a process.
func (p *process) left() bool { return syscall.Kill(-p.cmd.Process.Pid, 0) == nil }

// killed reports whether SIGKILL has ended a process.
func killed(s *os.ProcessState) bool {
	status, ok := s.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// pipeWriter writes to a pipe without blocking. It must not be used concurrently.
type pipeWriter struct {
	conn  syscall.RawConn
	write func(fd uintptr) bool // one closure for all frames, to avoid allocations

	b   []byte // the argument of the current call of try, and its result
	n   int
	err error
}

func (p *pipeWriter) open(f *os.File) {
	p.conn, _ = f.SyscallConn() // fails only for a closed file; try then fails, too
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

// try writes as much of b as fits into the pipe, which may be nothing. A full pipe is no error.
func (p *pipeWriter) try(b []byte) (int, error) {
	p.b, p.n, p.err = b, 0, nil
	err := p.conn.Write(p.write)
	p.b = nil
	if err == nil {
		err = p.err
	}
	return p.n, err
}
