//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// names is a DNS server that answers 127.0.0.1 for every name.
type names struct {
	address string
	fault   atomic.Int32 // noFault, silent or failing
}

const (
	noFault = iota
	silent  // it does not answer
	failing // it answers SERVFAIL
)

// mustNames starts a server on port 53, since resolv.conf has no other, of an address that no other test has.
func mustNames(t *testing.T) *names {
	t.Helper()
	n := &names{}
	var socket net.PacketConn
	for last := 1; socket == nil; last++ {
		var err error
		n.address = fmt.Sprintf("127.0.53.%d", last)
		if socket, err = net.ListenPacket("udp", n.address+":53"); err != nil && last == 254 {
			t.Fatal(err)
		}
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		query := make([]byte, 1500)
		for {
			size, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			if answer := n.answer(query[:size]); answer != nil {
				socket.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { socket.Close(); <-served })
	return n
}

// answer returns the answer to a query with one question (RFC 1035, section 4).
func (n *names) answer(query []byte) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	if end += 5; end > len(query) || n.fault.Load() == silent {
		return nil
	}
	answer := append([]byte{}, query[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	copy(answer[6:12], make([]byte, 6)) // no records but the question
	switch kind := query[end-3]; {
	case n.fault.Load() == failing:
		answer[3] |= 2
	case kind == 1: // an address of IPv4, for no time
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return answer
}

// TestFaultNames breaks DNS. Open connections continue, and callers that come now share them.
// Connections that end are opened again when DNS works again.
func TestFaultNames(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	for _, test := range []struct {
		name  string
		fault int32
	}{{"does not answer", silent}, {"fails", failing}} {
		t.Run(test.name, func(t *testing.T) {
			dns := mustNames(t)
			resolv := filepath.Join(t.TempDir(), "resolv.conf")
			// long enough for a busy machine to hand a connection to the caller that waits for a name, too
			text := "nameserver " + dns.address + "\noptions timeout:5 attempts:1\n"
			if err := os.WriteFile(resolv, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			kept, ended := mustNamed(t, "kept.test"), mustNamed(t, "ended.test")
			secure, authority := mustSecure(t, "example.com")
			p := harness.NewProgram(t)
			p.MustConfigure(t, fmt.Sprintf("upstreams: { kept: { url: %q }, secure: { url: %q }, ended: { url: %q } }\n",
				kept.url, secure.url, ended.url))
			cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount --bind "+resolv+` /etc/resolv.conf && exec "$@"`, "sh",
				harness.JunctionBinary(t), "--config", p.File())
			cmd.Env = append(os.Environ(), "GODEBUG=netdns=go", "NO_PROXY=*", "SSL_CERT_FILE="+authority)
			p.MustStart(t, cmd)
			p.MustReady(t, harness.Patience)
			calling := func(tool string, list []*harness.Caller) *load.Load {
				return load.Start(t, len(list), func(ctx context.Context, i, n int) error {
					return load.Call(ctx, list[i], tool, `{"a":1}`)
				})
			}
			kept.load = calling("kept__echo", callers(t, p, 2))
			secure.load = calling("secure__echo", callers(t, p, 2))
			ended.load = calling("ended__echo", callers(t, p, 2))
			more := callers(t, p, 12)
			for _, server := range []*named{kept, secure, ended} {
				server.load.AwaitCalls(50)
			}
			dns.fault.Store(test.fault)
			ended.cut()
			ended.load.AwaitFailures(3)
			more1, more2 := calling("kept__echo", more[:6]), calling("secure__echo", more[6:])
			for _, l := range []*load.Load{kept.load, secure.load, more1, more2} {
				l.AwaitCalls(50)
			}
			dns.fault.Store(noFault)
			over := time.Now()
			ended.load.AwaitCalls(50)
			ended.load.Stop()
			for _, l := range []*load.Load{kept.load, secure.load, more1, more2} {
				mustLoseNothing(t, l)
			}
			report(t, "DNS "+test.name+", and connections end", ended.load.Figures(over))
		})
	}
}

// named is a server behind a name, whose connections can be cut.
type named struct {
	url  string
	cut  func()
	load *load.Load
}

func mustNamed(t *testing.T, name string) *named {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	u, err := url.Parse(config.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := load.MustRelay(t, u.Host)
	_, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(name, port)
	return &named{url: u.String(), cut: r.Cut}
}

// mustSecure starts a server behind TLS, and returns the file with its certificate, which is that of
// net/http/httptest for example.com.
func mustSecure(t *testing.T, name string) (secure *named, authority string) {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	behind, err := url.Parse(config.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind.Host})
	proxy.FlushInterval = -1
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A response that begins before net/http has noticed the end of the body closes the body, and the
		// proxy then aborts the response.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	authority = filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &named{url: "https://" + net.JoinHostPort(name, port) + behind.Path}, authority
}
