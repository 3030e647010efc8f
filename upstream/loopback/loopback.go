// Package loopback tells what is on this machine. Loopback addresses are those that no other machine
// can reach, so that plain http is safe there.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Host reports whether a host, as in a URL without its port, is localhost or a loopback address. It
// does not resolve names, because their owners could point them anywhere. So it returns false for
// other names of this machine, such as a.localhost.
func Host(name string) bool {
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// Name returns the name or address of a Host header without its port; false if the port is no number.
func Name(host string) (name string, ok bool) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return host, true // without a port
	}
	return name, strings.Trim(port, "0123456789") == ""
}

// Address reports whether an address with a port, such as that of a listener or of a connection, is
// a loopback address.
func Address(addrPort string) bool {
	at, err := netip.ParseAddrPort(addrPort)
	return err == nil && at.Addr().Unmap().IsLoopback()
}
