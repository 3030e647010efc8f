package transport

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestDialError: what is wrong comes before a table cuts it off, and what it is made of can still
// be asked for.
func TestDialError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	c, err := dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	_, err = dial(t.Context(), "tcp", address)
	if want := address + ": connection refused"; err == nil || err.Error() != want || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("no listener: %v, want %s", err, want)
	}
	if _, err = dial(t.Context(), "tcp", "nobody.invalid:443"); err == nil || !strings.HasPrefix(err.Error(), "lookup nobody.invalid") {
		t.Errorf("no such host: %v, want the look-up", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = dial(over, "tcp", address); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}
