package auth

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// address returns the client address of a request: its peer, or, if the peer is a trusted proxy,
// the last entry of X-Forwarded-For that is not a trusted proxy. Each proxy appends its peer, so
// earlier entries are not trustworthy. If all entries are trusted, it returns the first. The zero
// value means unknown.
func address(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := plain(peer.Addr())
	if !within(from, trusted) {
		return from
	}
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var entry string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				entry, more = rest, false
			}
			// If a trusted proxy sends no valid address, the client is unknown; the proxy's own
			// address would be wrong.
			if from = forwarded(strings.Trim(entry, " \t")); !within(from, trusted) {
				return from
			}
		}
	}
	return from
}

// forwarded parses an entry of X-Forwarded-For: an address, possibly with a port or brackets.
func forwarded(entry string) netip.Addr {
	if a, err := netip.ParseAddr(entry); err == nil {
		return plain(a)
	}
	if a, err := netip.ParseAddrPort(entry); err == nil {
		return plain(a.Addr())
	}
	if inner, ok := strings.CutPrefix(entry, "["); ok {
		if a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil && strings.HasSuffix(inner, "]") &&
			a.Is6() {
			return plain(a)
		}
	}
	return netip.Addr{}
}

// plain returns an address in the form that prefixes are compared with.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// within reports whether one of the networks contains the address. No network contains the zero
// value.
func within(a netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}
