//go:build linux

package health

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestSupervisorHearsTheLife of a process: systemd gets each state, and no sign of life from a process
// whose check hangs.
func TestSupervisorHearsTheLife(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	want := func(text string) {
		t.Helper()
		b := make([]byte, 1000)
		socket.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := socket.Read(b); err != nil || string(b[:n]) != text {
			t.Errorf("systemd reads %q, %v, want %q", b[:n], err, text)
		}
	}
	environment := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000"}
	getenv := func(key string) (string, bool) { v, ok := environment[key]; return v, ok }
	s := NewSupervisor(getenv, authtest.Log(t))
	s.Ready("serving")
	want("READY=1\nSTATUS=serving")
	s.Reloading()
	want("RELOADING=1")
	ctx, cancel := context.WithCancel(t.Context())
	turns, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func() { turns <- struct{}{} }) // hangs until the test receives
	}()
	<-turns
	want("WATCHDOG=1")
	s.Waiting(time.Minute)
	want("STATUS=waiting until another process has ended\nEXTEND_TIMEOUT_USEC=60000000")
	s.Stopping(20 * time.Second) // the next sign of life waits for its check
	want("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=20000000")
	cancel()
	for open := true; open; {
		select {
		case <-turns:
		case <-done:
			open = false
		}
	}
	for _, other := range []map[string]string{{}, {"NOTIFY_SOCKET": "vsock:2:1"},
		{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000", "WATCHDOG_PID": "1"}} {
		environment = other
		s := NewSupervisor(getenv, authtest.Log(t))
		s.Watch(t.Context(), func() { t.Error("a process that systemd does not watch sends signs of life") })
		if len(other) < 3 {
			s.Ready("") // to no one
		}
	}
}
