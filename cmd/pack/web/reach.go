package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"junction/auth/fetch"
	"junction/cmd/pack/manifest"
	"junction/upstream/loopback"
)

// Reach is the addresses that the requests of one document may reach. The zero value reaches public
// addresses only. Reach is checked when an address is dialled, after its name was resolved, so that
// neither a name nor a redirect leads elsewhere.
type Reach struct {
	// Any means every address: the manifest, or a file of this machine, names the hosts.
	Any bool
	// Local adds the loopback addresses of this machine.
	Local bool
	// Own is the host and port of a document that came from the address At, which is not public.
	// The requests to Own may also go to At.
	Own string
	At  netip.Addr
	// Hosts are further hosts and ports, at any address. If Closed is set, the requests go to no other
	// host.
	Hosts  []string
	Closed bool
}

// ReachOf returns the reach of a document that was fetched from a URL of the manifest. from is the
// address of the server that answered. It is invalid if a proxy fetched the document; then the
// document reaches public addresses only.
func ReachOf(document *url.URL, from netip.Addr) Reach {
	from = from.Unmap()
	if !from.IsValid() || fetch.Public(from) == nil {
		return Reach{}
	}
	return Reach{Own: hostPort(document), At: from, Local: from.IsLoopback() && OnThisMachine(document)}
}

// OnThisMachine reports whether a URL names this machine: localhost, or a loopback address. A name
// that only resolves to such an address does not count.
func OnThisMachine(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return loopback.Host(host) || strings.HasSuffix(host, ".localhost")
}

// Names reports whether a document may name a URL, as far as its text shows the address. The
// addresses of names are checked when they are dialled.
func (r Reach) Names(u *url.URL) bool {
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		return r.allows(hostPort(u), ip)
	}
	return r.Any || r.Local || !OnThisMachine(u) || hostPort(u) == r.Own
}

// allows reports whether a connection to host and port may have an address.
func (r Reach) allows(hostPort string, address netip.Addr) bool {
	address = address.Unmap()
	if slices.Contains(r.Hosts, hostPort) || r.Closed {
		return slices.Contains(r.Hosts, hostPort)
	}
	return r.Any || r.Local && address.IsLoopback() || address == r.At && hostPort == r.Own ||
		fetch.Public(address) == nil
}

// hostPort returns host and port of a URL, as a transport dials them.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// errSpecial means that an address must not be dialled. Models and operators see the text.
var errSpecial = errors.New("its address is not public, or it is no host that the manifest names: by base_url of a " +
	"document, or by hosts of a tool")

// Dialer returns a dialer for connections to host and port. A nil resolver
// is the system's.
func (r Reach) Dialer(hostPort string, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Resolver: resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !r.allows(hostPort, to.Addr()) {
				return errSpecial
			}
			return nil
		}}
}

// NewChosen returns a client for URLs that are arguments. It reaches the hosts of an http tool. It
// follows redirects to other hosts, within the same reach, since the requests have no secrets.
func NewChosen(h *manifest.HTTP) *Client {
	r := Reach{Closed: !slices.Contains(h.Hosts, manifest.PublicHosts)}
	for _, host := range h.Hosts {
		if host != manifest.PublicHosts {
			r.Hosts = append(r.Hosts, strings.ToLower(host))
		}
	}
	c := NewGuarded(r)
	c.http.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("the page redirects more than %d times", maxRedirects)
		}
		if problem := manifest.AddressProblem(to.URL.String(), h.AllowHTTP); problem != "" {
			return fmt.Errorf("the page redirects to a URL that %s", problem)
		}
		return nil
	}
	return c
}

// NewGuarded returns a client whose requests stay within a reach. It uses no proxy of the
// environment, which would connect unchecked. Idle connections are kept for later calls.
func NewGuarded(r Reach) *Client { return guarded(r, nil) }

func guarded(r Reach, resolver *net.Resolver) *Client {
	t := transport()
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, network, hostPort string) (net.Conn, error) {
		return r.Dialer(strings.ToLower(hostPort), resolver).DialContext(ctx, network, hostPort)
	}
	return newClient(t)
}
