package auth

import (
	"net/http"
	"net/netip"
	"strings"
)

// address returns where a request comes from: its peer, unless that is a trusted proxy. Then it is
// the last entry of X-Forwarded-For that is none, since each proxy appends whom it was asked by,
// and what stands before that entry is the word of somebody we do not trust. Where all are trusted,
// it is the first of them. The zero value means that it cannot be found out.
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
			// A trusted proxy that does not say who asked it leaves us without an answer; its own
			// address would be the wrong one.
			if from = forwarded(strings.Trim(entry, " \t")); !within(from, trusted) {
				return from
			}
		}
	}
	return from
}

// forwarded reads one entry of X-Forwarded-For: an address, which some proxies give a port, and
// IPv6 brackets.
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

// within reports whether one of the networks holds the address. No network holds the zero value.
func within(a netip.Addr, networks []netip.Prefix) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}
