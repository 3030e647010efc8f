package process

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// FreePort returns an address of the loopback interface with a free port, which is the test's own until
// the test ends. Each process of tests has ports of its own, and gives the one first that it has not
// given for the longest time.
func FreePort(t testing.TB) string {
	t.Helper()
	l := Listen(t)
	defer l.Close()
	return l.Addr().String()
}

// Listen listens at a port that FreePort could give. Unlike a port of the system's choice, nothing else
// takes it when it was closed, so that the test can listen there again.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	p := ports()
	p.mu.Lock()
	defer p.mu.Unlock()
	for range portsEach {
		p.next = (p.next + 1) % portsEach
		port := p.first + p.next
		if p.given[port] {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			p.given[port] = true
			t.Cleanup(func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.given, port)
			})
			return l
		}
	}
	t.Fatal("no port is free")
	return nil
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
