package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"junction/cmd/junction/clients"
	"junction/cmd/junction/runfile"
	"junction/upstream/loopback"
	"junction/upstream/prose"
)

// listen listens on an address of the file. The error for an address in use is a takenError.
func listen(address, key string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, takenError{address, key}
	}
	if err != nil {
		var reason error = err
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			reason = errno
		}
		return nil, fmt.Errorf("cannot listen on %s: %w; set %s to %s", address, reason, key, hintOfListen(reason))
	}
	return l, nil
}

// listenAdmin opens the admin listener, unless the address is "" or the program is an inner one.
func (p *program) listenAdmin(address string) (err error) {
	if address == "" || p.inner {
		return nil
	}
	p.admin, err = listen(address, "admin")
	if errors.Is(err, syscall.EADDRINUSE) && p.file == "" {
		// The admin address is the default here, and cannot be changed without a file. A second
		// junction started for a test must work anyway.
		p.log.Warn("/healthz and /readyz are not served: their address is taken", "admin", address)
		return nil
	}
	return err
}

// hintOfListen returns the address to suggest instead.
func hintOfListen(err error) string {
	switch {
	case errors.Is(err, syscall.EACCES):
		return "a port of 1024 or higher"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "an address that this machine has"
	}
	return "another address"
}

// takenError means that another program listens on the address.
type takenError struct{ address, key string }

func (e takenError) Error() string {
	if p, ok := runfile.At(e.address); ok {
		what := "the demo of another junction"
		if p.File != "" {
			what = "the junction that serves " + short(p.File)
		}
		return fmt.Sprintf("%s is taken by %s (process %d); stop that process, or set %s to another port (port 0 "+
			"takes a free one)", e.address, what, p.PID, e.key)
	}
	return fmt.Sprintf("%s is taken by another program, perhaps another junction; stop that, or set %s to another "+
		"port (port 0 takes a free one)", e.address, e.key)
}

// short returns a path for display, with ~ for the home folder.
func short(file string) string {
	home, err := clients.HomeOf("")
	if err != nil {
		return prose.OneLine(file)
	}
	return prose.OneLine(home.Short(file))
}

func (e takenError) Unwrap() error { return syscall.EADDRINUSE }

// ownOrigins returns the origins of pages on the listener's own address, as browsers write them:
// one for each loopback name of this machine, without the default port.
func ownOrigins(listener net.Addr) []string {
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
