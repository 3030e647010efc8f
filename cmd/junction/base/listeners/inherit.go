package listeners

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// inheritedName is the name of the socket among several (FileDescriptorName=tls of a unit).
const inheritedName = "tls"

// firstInherited is the first descriptor that systemd passes on (SD_LISTEN_FDS_START).
const firstInherited = 3

// Inherited returns the listener that systemd has opened for tls.listen (sd_listen_fds(3)); nil if it has opened
// none. A process calls it once. The port must be that of the address.
func Inherited(getenv func(string) (string, bool), address string) (net.Listener, error) {
	pid, _ := getenv("LISTEN_PID")
	count, _ := getenv("LISTEN_FDS")
	n, err := strconv.Atoi(count)
	if pid != strconv.Itoa(os.Getpid()) || err != nil || n < 1 {
		return nil, nil
	}
	at := 0
	if n > 1 {
		names, _ := getenv("LISTEN_FDNAMES")
		list := strings.Split(names, ":")
		if at = slices.Index(list, inheritedName); at < 0 || at >= n {
			return nil, fmt.Errorf("systemd has opened %d sockets, and none of them has the name of tls.listen; add "+
				"FileDescriptorName=%s to its unit", n, inheritedName)
		}
	}
	f := os.NewFile(uintptr(firstInherited+at), "the socket of systemd")
	l, err := net.FileListener(f)
	f.Close() // l has a copy that commands do not get
	if err != nil {
		return nil, fmt.Errorf("cannot use the socket that systemd has opened for tls.listen: %w; write "+
			"ListenStream=PORT in its unit", err)
	}
	_, port, _ := net.SplitHostPort(address)
	if _, own, err := net.SplitHostPort(l.Addr().String()); err != nil || own != port {
		l.Close()
		return nil, fmt.Errorf("systemd has opened %s, and tls.listen is %s; set both to one port", l.Addr(), address)
	}
	return l, nil
}
