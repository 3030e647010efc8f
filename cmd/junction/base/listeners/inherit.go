package listeners

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The names of the sockets among several (FileDescriptorName of a unit), by the keys of the file.
var inheritedNames = map[string]string{"tls.listen": "tls", "listen": "listen"}

// firstInherited is the first descriptor that systemd passes on (SD_LISTEN_FDS_START).
const firstInherited = 3

// Inherited returns the listener that systemd has opened for a key, tls.listen or listen (sd_listen_fds(3)); nil if it
// has opened none. A socket with the name of neither key is for the one with first: tls.listen, or listen without tls.
// A process calls it once for each key. The port must be that of the address.
func Inherited(getenv func(string) (string, bool), key, address string, first bool) (net.Listener, error) {
	pid, _ := getenv("LISTEN_PID")
	count, _ := getenv("LISTEN_FDS")
	n, err := strconv.Atoi(count)
	if pid != strconv.Itoa(os.Getpid()) || err != nil || n < 1 {
		return nil, nil
	}
	names, _ := getenv("LISTEN_FDNAMES")
	list := strings.Split(names, ":")
	at := slices.Index(list, inheritedNames[key])
	if named := slices.ContainsFunc(list, func(name string) bool { return name == "tls" || name == "listen" }); at < 0 {
		switch {
		case !first || named:
			return nil, nil
		case n > 1:
			return nil, fmt.Errorf("systemd has opened %d sockets, and none of them has the name of %s; add "+
				"FileDescriptorName=%s to its unit", n, key, inheritedNames[key])
		}
		at = 0
	}
	if at >= n {
		return nil, nil
	}
	f := os.NewFile(uintptr(firstInherited+at), "the socket of systemd")
	l, err := net.FileListener(f)
	f.Close() // l has a copy that commands do not get
	if err != nil {
		return nil, fmt.Errorf("cannot use the socket that systemd has opened for %s: %w; write "+
			"ListenStream=PORT in its unit", key, err)
	}
	_, port, _ := net.SplitHostPort(address)
	if _, own, err := net.SplitHostPort(l.Addr().String()); err != nil || own != port {
		l.Close()
		return nil, fmt.Errorf("systemd has opened %s, and %s is %s; set both to one port", l.Addr(), key, address)
	}
	return l, nil
}
