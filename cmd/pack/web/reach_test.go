package web

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/cmd/pack/manifest"
)

// site is an API on loopback that counts connections.
func site(t *testing.T) (port string, connections *atomic.Int32) {
	t.Helper()
	connections = &atomic.Int32{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, connections
}

func send(t *testing.T, c *Client, at string) error {
	t.Helper()
	_, err := c.Send(t.Context(), "x", &Request{Method: http.MethodGet, URL: at, Header: http.Header{}},
		manifest.Limits{Timeout: 10 * time.Second, MaxOutput: 1 << 10})
	return err
}

// special are addresses that a document of another machine may not name.
var special = []string{"127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "100.64.0.1", "169.254.169.254", "172.16.0.1",
	"192.168.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
	"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1", "2001::1"}

// TestAFetchedDocumentReachesOnlyPublicAddresses: neither an address, nor a name that resolves to
// one, nor a name that resolves to another one later, is connected to.
func TestAFetchedDocumentReachesOnlyPublicAddresses(t *testing.T) {
	port, connections := site(t)
	for _, address := range special {
		ip := netip.MustParseAddr(address)
		lookups := atomic.Int32{}
		resolver := authtest.Resolver(func(name string) []netip.Addr {
			switch {
			case name == "named.example.":
				return []netip.Addr{ip}
			case lookups.Add(1) <= 2: // one for each kind of address
				return []netip.Addr{netip.MustParseAddr("93.184.215.14")}
			}
			return []netip.Addr{ip}
		})
		if _, err := resolver.LookupHost(t.Context(), "rebound.example"); err != nil {
			t.Fatal(err)
		}
		c := guarded(Reach{}, resolver)
		for _, host := range []string{net.JoinHostPort(address, port), "named.example:" + port, "rebound.example:" + port} {
			if ip.Is4In6() && !strings.HasPrefix(host, "[") {
				continue // no DNS record has such an address
			}
			if err := send(t, c, "http://"+host+"/"); err == nil || !strings.Contains(err.Error(), "its address is not public") {
				t.Errorf("http://%s/ (%s): %v", host, address, err)
			}
		}
		u := &url.URL{Scheme: "https", Host: net.JoinHostPort(address, port)}
		if (Reach{}).Names(u) {
			t.Errorf("a fetched document may name %s", u)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST.", "a.localhost"} {
		if (Reach{}).Names(&url.URL{Scheme: "https", Host: host}) {
			t.Errorf("a fetched document may name %s", host)
		}
	}
	if err := send(t, NewGuarded(Reach{}), "http://localhost:"+port+"/"); err == nil {
		t.Error("localhost is reached")
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
	for _, host := range []string{"93.184.215.14", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8443", "api.example.com"} {
		if !(Reach{}).Names(&url.URL{Scheme: "https", Host: host}) {
			t.Errorf("a fetched document may not name %s", host)
		}
	}
}

// TestADocumentReachesTheServerThatItCameFrom: that address under the name of the document, and
// loopback only if the manifest names this machine as well.
func TestADocumentReachesTheServerThatItCameFrom(t *testing.T) {
	port, connections := site(t)
	resolver := authtest.Resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	at := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	local, near, private := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("10.0.0.1")
	for _, test := range []struct {
		document string
		from     netip.Addr
		to       string
		want     bool
	}{
		{"http://127.0.0.1:1/doc", local, "http://127.0.0.1:PORT/", true},
		{"http://localhost:1/doc", local, "http://localhost:PORT/", true},
		{"http://localhost:1/doc", local, "http://a.example:PORT/", true}, // it resolves to loopback
		{"https://docs.example:PORT/doc", local, "http://docs.example:PORT/", true},
		{"https://docs.example:PORT/doc", local, "http://DOCS.example:PORT/away", true}, // a redirect
		{"https://docs.example/doc", local, "http://docs.example:PORT/", false},         // another port
		{"https://docs.example:PORT/doc", local, "http://other.example:PORT/", false},
		{"https://docs.example:PORT/doc", local, "http://127.0.0.1:PORT/", false},
		{"https://docs.example:PORT/doc", near, "http://docs.example:PORT/", false},    // its name moved
		{"https://docs.example:PORT/doc", private, "http://docs.example:PORT/", false}, // its name moved
		{"http://localhost:1/doc", private, "http://localhost:PORT/", false},
		{"https://docs.example:PORT/doc", netip.MustParseAddr("93.184.215.14"), "http://docs.example:PORT/", false},
		{"https://docs.example:PORT/doc", netip.Addr{}, "http://docs.example:PORT/", false}, // through a proxy
	} {
		before := connections.Load()
		r := ReachOf(at(strings.ReplaceAll(test.document, "PORT", port)), test.from)
		err := send(t, guarded(r, resolver), strings.ReplaceAll(test.to, "PORT", port))
		if reached := connections.Load() > before; reached != test.want || (err == nil) != test.want {
			t.Errorf("a document at %s from %v sends to %s: reached %v, %v", test.document, test.from, test.to, reached, err)
		}
	}
}

// TestAGuardedClientUsesNoProxy: a proxy would connect to an address that nothing has checked.
func TestAGuardedClientUsesNoProxy(t *testing.T) {
	c := NewGuarded(Reach{})
	transport, _ := c.http.Transport.(*http.Transport)
	if transport == nil || transport.Proxy != nil {
		t.Error(fmt.Sprintf("%T", c.http.Transport), "has a proxy")
	}
}
