//go:build unix

package http1

import (
	"net"
	"syscall"
)

// livenessOf returns a function that reports, without blocking, whether an idle connection is still
// open. The server may have closed it, and a request on it would be lost.
func livenessOf(c net.Conn) func() bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return func() bool { return true }
	}
	var n int
	var peekErr error
	var one [1]byte
	peek := func(fd uintptr) bool {
		n, _, peekErr = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	}
	return func() bool {
		return rc.Read(peek) == nil && n <= 0 && (peekErr == syscall.EAGAIN || peekErr == syscall.EWOULDBLOCK ||
			peekErr == syscall.EINTR)
	}
}
