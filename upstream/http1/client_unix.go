//go:build unix

package http1

import (
	"net"
	"syscall"
	"time"
)

// livenessOf returns a function that reports, without blocking, whether an idle connection is still
// open. The server may have closed it, and a request on it would be lost.
func livenessOf(c net.Conn) func(time.Duration) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return livenessByReading(c)
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return livenessByReading(c)
	}
	var n int
	var peekErr error
	var one [1]byte
	peek := func(fd uintptr) bool {
		n, _, peekErr = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	}
	return func(time.Duration) bool {
		return rc.Read(peek) == nil && n <= 0 && (peekErr == syscall.EAGAIN || peekErr == syscall.EWOULDBLOCK ||
			peekErr == syscall.EINTR)
	}
}
