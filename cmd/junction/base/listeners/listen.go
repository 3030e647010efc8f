// Package listeners opens the addresses of Junction (listen.go), bounds their connections so that the
// process keeps file descriptors for other things (connections.go), bounds the memory of unfinished
// requests (heads.go), and answers a request whose handler has a fault (panics.go).
//
// join.go makes one listener of the plain address and of the one for TLS. secure.go speaks TLS there, above
// the bounds of connections; wire.go bounds what a handshake costs, and turns.go shares the processors among
// handshakes.
package listeners

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/loopback"
	"junction/upstream/prose"
)

// Listen listens on the address of a key of the file. The error for an address in use is
// syscall.EADDRINUSE.
func Listen(address, key string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		by, _ := runfile.At(address)
		return nil, takenError{address, key, by}
	}
	if err != nil {
		var reason error = err
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			reason = errno
		}
		return nil, fmt.Errorf("cannot listen on %s: %w; set %s to %s", address, reason, key, hintOfListen(reason, key))
	}
	return l, nil
}

// Taken returns the error of Listen for an address at which a program answers, and nil for another one. It
// does not take the address for a moment, in which another start would fail.
func Taken(address, key string) error {
	c, err := net.DialTimeout("tcp", address, takenLimit)
	if err != nil {
		return nil
	}
	c.Close()
	by, _ := runfile.At(address)
	return takenError{address, key, by}
}

// takenLimit is how long Taken waits for a program that answers.
const takenLimit = time.Second

// Holder returns the junction of this user that has the address that an error of Listen is about.
func Holder(err error) (runfile.Place, bool) {
	e, ok := errors.AsType[takenError](err)
	return e.by, ok && e.by.PID != 0
}

// Unknown reports whether an error of Listen is about an address that no known junction of this user has.
func Unknown(err error) bool {
	e, taken := errors.AsType[takenError](err)
	return taken && e.by.PID == 0
}

// Held returns who has the address, or both addresses, that an error of Taken is about, without a remedy. It returns
// the text of another error.
func Held(err error) string {
	if e, ok := err.(takenError); ok { // not within the error of two programs, which has two remedies
		return e.held()
	}
	return err.Error()
}

// Both returns the error of two addresses that cannot be listened on: one sentence if one program has
// both.
func Both(first, second error) error {
	a, ok := errors.AsType[takenError](first)
	if b, taken := errors.AsType[takenError](second); ok && taken && a.holder() == b.holder() {
		return takenError{a.address + " and " + b.address, a.key + " and " + b.key, a.by}
	}
	return fmt.Errorf("%w; %w", first, second)
}

// hintOfListen returns the address to suggest instead.
func hintOfListen(err error, key string) string {
	switch {
	case errors.Is(err, syscall.EACCES) && key == "tls.listen":
		return "a port of 1024 or higher, or let systemd open it (junction.socket)"
	case errors.Is(err, syscall.EACCES):
		return "a port of 1024 or higher"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "an address that this machine has"
	}
	return "another address"
}

// takenError means that another program listens on the address, or on both addresses.
type takenError struct {
	address, key string
	by           runfile.Place // zero if it is not a junction of this user
}

func (e takenError) Error() string {
	stop, port := "stop that process", "another port"
	if e.by.PID == 0 {
		stop = "stop that"
	}
	if e.both() {
		port = "other ports"
	}
	return fmt.Sprintf("%s; %s, or set %s to %s (port 0 takes a free one)", e.held(), stop, e.key, port)
}

// both reports whether the error is about two addresses.
func (e takenError) both() bool { return strings.Contains(e.address, " and ") }

// held says who has the address.
func (e takenError) held() string {
	is := "is"
	if e.both() {
		is = "are"
	}
	return fmt.Sprintf("%s %s taken by %s", e.address, is, e.holder())
}

// holder names the program.
func (e takenError) holder() string {
	switch {
	case e.by.PID == 0:
		return "another program, perhaps another junction"
	case e.by.File == "":
		return fmt.Sprintf("the demo of another junction (process %d)", e.by.PID)
	}
	return fmt.Sprintf("the junction that serves %s (process %d)", short(e.by.File), e.by.PID)
}

// short returns a path for display, with ~ for the home folder.
func short(file string) string {
	home, _ := os.UserHomeDir() // without one, nothing is shorter
	return prose.OneLine(revision.Short(file, home))
}

func (e takenError) Unwrap() error { return syscall.EADDRINUSE }

// Origins returns the origins of pages on the listener's own address, as browsers write them:
// one for each loopback name of this machine, without the default port.
func Origins(listener net.Addr) []string {
	host, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		return nil
	}
	var list []string
	for _, name := range []string{"localhost", "127.0.0.1", "::1", host} {
		origin := "http://" + strings.TrimSuffix(net.JoinHostPort(name, port), ":80")
		if !slices.Contains(list, origin) && loopback.Host(name) {
			list = append(list, origin)
		}
	}
	return list
}
