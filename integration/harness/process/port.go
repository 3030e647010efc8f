package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// FreePort returns an address of the loopback interface with a free port, which is the test's own until
// the test ends. Each process of tests has ports of its own, and gives the one first that it has not
// given for the longest time.
func FreePort(t testing.TB) string {
	t.Helper()
	return ports().take(t, func(address string) bool {
		// No listener, of which a process that is started now would have the descriptor for a moment.
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// Listen listens at a port that FreePort could give. Unlike a port of the system's choice, nothing else
// takes it when it was closed, so that the test can listen there again.
func Listen(t testing.TB) (l net.Listener) {
	t.Helper()
	ports().take(t, func(address string) bool {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	return l
}

// take returns the next address that no test has and that is free, and keeps it for the test.
func (p *portRange) take(t testing.TB, free func(address string) bool) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for range portsEach {
		p.next = (p.next + 1) % portsEach
		port := p.first + p.next
		if address := fmt.Sprintf("127.0.0.1:%d", port); !p.given[port] && free(address) {
			p.given[port] = true
			t.Cleanup(func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.given, port)
			})
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ListenAt listens at an address. If the port is 0, it is Listen. Another test may start a process at
// this moment, which has the descriptor of a listener that was just closed until it runs its program: so
// ListenAt tries again while the address is in use.
func ListenAt(t testing.TB, address string) net.Listener {
	t.Helper()
	if address == "127.0.0.1:0" {
		return Listen(t)
	}
	again, enough := time.NewTicker(10*time.Millisecond), time.After(Patience)
	defer again.Stop()
	for {
		l, err := net.Listen("tcp", address)
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
		select {
		case <-again.C:
		case <-enough:
			t.Fatal(err)
		}
	}
}

// portsEach is how many ports a process of tests has.
const portsEach = 500

// ports returns the ports of this process. They are below those that systems give to outgoing
// connections. The process listens at the first port until it ends, so that no other process of
// tests has the same ports.
var ports = sync.OnceValue(func() *portRange {
	const ranges = 40
	for i := range ranges {
		first := 12000 + (os.Getpid()+i)%ranges*portsEach
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			return &portRange{claim: l, first: first, given: map[int]bool{}}
		}
	}
	return &portRange{first: 12000, given: map[int]bool{}}
})

type portRange struct {
	claim net.Listener // at first; nil if all ranges have been claimed
	mu    sync.Mutex
	first int
	next  int          // what to try next, from first
	given map[int]bool // those of tests that have not ended
}

// Taken reports whether a program listens on the address.
func Taken(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return true
	}
	l.Close()
	return false
}
