package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
)

// site is a server on loopback that counts connections.
type site struct {
	*httptest.Server
	port        uint16
	connections atomic.Int32
}

func mustServe(t *testing.T, secure bool, handler http.HandlerFunc) *site {
	t.Helper()
	s := &site{Server: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		handler(w, r)
	}))}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	port, err := strconv.ParseUint(s.URL[strings.LastIndexByte(s.URL, ':')+1:], 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	s.port = uint16(port)
	return s
}

// fetcher trusts the site's certificate, and may connect to loopback.
func (s *site) fetcher() *Fetcher {
	roots := x509.NewCertPool()
	if s.Certificate() != nil {
		roots.AddCert(s.Certificate())
	}
	return &Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots}
}

func wantClass(t *testing.T, err error, class Class) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Class != class {
		t.Errorf("error = %v (%v), want the class %q", err, errors.Unwrap(err), class)
	}
}

func TestDocument(t *testing.T) {
	s := mustServe(t, true, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding: %s, want identity", got)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "max-age=60")
		io.WriteString(w, `{"a":1}`)
	})
	d, err := s.fetcher().GetJSON(t.Context(), s.URL+"/client.json", 7)
	if err != nil || string(d.Body) != `{"a":1}` || d.Header.Get("Cache-Control") != "max-age=60" {
		t.Fatalf("GetJSON = %q, %v, %v; want the document", d.Body, d.Header, err)
	}
	if _, err := s.fetcher().GetJSON(t.Context(), s.URL, 6); err == nil {
		t.Error("a document of 7 bytes was taken where 6 are the most")
	} else {
		wantClass(t, err, TooLarge)
	}
	response, err := s.fetcher().Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || len(body) != 7 {
		t.Errorf("Client: %q, %v; want the document", body, err)
	}
}

// TestPrivateAddressesAreRefused tries every kind of non-public address, in URLs and as resolved addresses.
func TestPrivateAddressesAreRefused(t *testing.T) {
	s := mustServe(t, true, func(http.ResponseWriter, *http.Request) {})
	for _, address := range []string{
		"127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
		"100.127.255.254", "169.254.169.254",
		"192.0.0.192", "198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "255.255.255.255", "::1",
		"::", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "fe80::1", "fec0::1",
		"fd00::1", "fc00::1", "ff02::1", "2001:db8::1", "2002:7f00:1::",
		"2001::1", "::7f00:1", "100::1",
	} {
		t.Run(address, func(t *testing.T) {
			ip := netip.MustParseAddr(address)
			literal := net.JoinHostPort(address, strconv.Itoa(int(s.port)))
			for _, host := range []string{literal, fmt.Sprintf("rebound.example:%d", s.port)} {
				f := &Fetcher{ports: []uint16{s.port},
					resolver: resolver(map[string][]netip.Addr{"rebound.example.": {ip}}), Timeout: 5 * time.Second}
				_, err := f.GetJSON(t.Context(), "https://"+host+"/", 100)
				wantClass(t, err, Private)
				_, err = f.Client().Get("https://" + host + "/")
				wantClass(t, err, Private)
				if strings.Contains(strings.ReplaceAll(fmt.Sprint(errorOf(err)), host, ""), address) {
					t.Errorf("the text %q tells what a name resolves to", err)
				}
			}
		})
	}
	if n := s.connections.Load(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

func errorOf(err error) *Error {
	var e *Error
	errors.As(err, &e)
	return e
}

// TestReboundNamesAreRefused resolves a name first to a public address, and then to loopback.
func TestReboundNamesAreRefused(t *testing.T) {
	s := mustServe(t, true, func(http.ResponseWriter, *http.Request) {})
	var lookups atomic.Int32
	f := &Fetcher{ports: []uint16{s.port}, resolver: authtest.Resolver(func(string) []netip.Addr {
		if lookups.Add(1) <= 2 { // one for each kind of address
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})}
	if found, err := f.resolver.LookupHost(t.Context(), "rebound.example"); err != nil || len(found) != 1 ||
		found[0] != "93.184.215.14" {
		t.Fatalf("LookupHost = %v, %v; want the public address", found, err)
	}
	_, err := f.GetJSON(t.Context(), fmt.Sprintf("https://rebound.example:%d/", s.port), 100)
	wantClass(t, err, Private)
	// One allowed address does not allow the others.
	f.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	_, err = f.GetJSON(t.Context(), fmt.Sprintf("https://rebound.example:%d/", s.port), 100)
	wantClass(t, err, Private)
	if n := s.connections.Load(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

func TestPublicAddresses(t *testing.T) {
	f := &Fetcher{}
	for address, allowed := range map[string]bool{
		"93.184.215.14:443": true, "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443": true, "100.128.0.1:443": true,
		"172.32.0.1:443":   true,
		"93.184.215.14:80": false, "93.184.215.14:22": false, "nonsense": false,
	} {
		if err := f.control("tcp4", address, nil); (err == nil) != allowed {
			t.Errorf("control(%s) = %v, want allowed %v", address, err, allowed)
		}
	}
}

// TestRedirectsAreNotFollowed redirects the fetch to an internal address.
func TestRedirectsAreNotFollowed(t *testing.T) {
	inside := mustServe(t, true, func(http.ResponseWriter, *http.Request) {})
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := mustServe(t, true, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside.URL, code) })
		_, err := s.fetcher().GetJSON(t.Context(), s.URL, 1000)
		wantClass(t, err, Status)
		if e := errorOf(err); e.Code != code {
			t.Errorf("Code = %d, want %d", e.Code, code)
		}
		response, err := s.fetcher().Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("Client: %d, want %d and no more", response.StatusCode, code)
		}
	}
	if n := inside.connections.Load(); n != 0 {
		t.Errorf("%d connections followed a redirect, want none", n)
	}
}

// TestHostileDocumentsAreRefused serves hostile documents.
func TestHostileDocumentsAreRefused(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 10<<20))
	z.Close()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		class   Class
	}{
		"one byte too many, with its length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write(make([]byte, 5<<10+1))
		}, TooLarge},
		"without an end": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		}, TooLarge},
		"slow drip": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				w.Write([]byte(" "))
				w.(http.Flusher).Flush()
				select {
				case <-tick.C:
				case <-r.Context().Done():
					return
				}
			}
		}, Timeout},
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Timeout},
		"gzip bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes()[:4000])
		}, Type},
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, `{}`)
		}, Type},
		"no type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, `{}`)
		}, Type},
		"missing":       {func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, Status},
		"empty success": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }, Status},
		"broken off": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{`)
		}, Unreachable},
		"large header": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 100<<10))
		}, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustServe(t, true, test.handler)
			f := s.fetcher()
			if test.class == Timeout {
				f.Timeout = 200 * time.Millisecond
			}
			began := time.Now()
			_, err := f.GetJSON(t.Context(), s.URL, 5<<10)
			wantClass(t, err, test.class)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if patience := (&Fetcher{}).timeout(); patience != 5*time.Second {
		t.Errorf("unless told otherwise a fetch has %v, want 5 s", patience)
	}
}

// TestClientBody: reading a body beyond the limit fails instead of ending.
func TestClientBody(t *testing.T) {
	s := mustServe(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // no Content-Length
		w.Write(make([]byte, maxBody+1))
	})
	response, err := s.fetcher().Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if !errors.Is(err, errTooLarge) || len(body) > maxBody {
		t.Errorf("%d bytes, %v; want %v after at most %d", len(body), err, errTooLarge, maxBody)
	}
}

func TestURLs(t *testing.T) {
	plain := mustServe(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })
	if _, err := plain.fetcher().GetJSON(t.Context(), plain.URL, 10); err != nil {
		t.Errorf("http within an allowed network: %v", err)
	}
	for _, address := range []string{
		plain.URL, "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///x",
		"https:example.com", "example.com", "", "https://user@example.com/",
		"https://user:secret@example.com/", "https://example.com/#x", "gopher://127.0.0.1/", "https://exa mple.com/",
		"https://[::1", "unix:///run/x.sock",
	} {
		_, err := (&Fetcher{}).GetJSON(t.Context(), address, 10)
		want := BadURL
		if strings.HasPrefix(address, "http://") { // its text names the setting that helps
			want = Plain
		}
		wantClass(t, err, want)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the text %q holds the URL's password", err)
		}
	}
	// http is allowed only within those networks, on any port.
	public := plain.fetcher()
	public.resolver = resolver(map[string][]netip.Addr{"public.example.": {netip.MustParseAddr("93.184.215.14")}})
	public.ports = []uint16{80, 443}
	_, err := public.GetJSON(t.Context(), "http://public.example/", 10)
	wantClass(t, err, Private)
	public.resolver = resolver(nil)
	_, err = public.GetJSON(t.Context(), "https://nowhere.example/", 10)
	wantClass(t, err, DNS)
	_, err = public.GetJSON(t.Context(), "https://2130706433/", 10)
	if err == nil || errorOf(err).Class == Unreachable {
		t.Errorf("a number as the host: %v", err)
	}
	secure := mustServe(t, true, func(http.ResponseWriter, *http.Request) {})
	f := secure.fetcher()
	f.RootCAs = x509.NewCertPool()
	_, err = f.GetJSON(t.Context(), secure.URL, 10)
	wantClass(t, err, Certificate)
	gone := mustServe(t, true, func(http.ResponseWriter, *http.Request) {})
	f = gone.fetcher()
	gone.Close()
	_, err = f.GetJSON(t.Context(), gone.URL, 10)
	wantClass(t, err, Unreachable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = secure.fetcher().GetJSON(ctx, secure.URL, 10)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a fetch that was given up: %v, want %v", err, context.Canceled)
	}
}

// TestProxyOfTheEnvironment: a proxy of the environment is not used.
func TestProxyOfTheEnvironment(t *testing.T) {
	client := (&Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}).Client()
	g := client.Transport.(*guarded)
	for _, transport := range []*http.Transport{g.secure, g.plain} {
		if transport.Proxy != nil {
			to, err := transport.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "example.com"}})
			t.Errorf("a transport has a proxy: %v, %v", to, err)
		}
	}
}

// resolver resolves names to fixed addresses.
func resolver(names map[string][]netip.Addr) *net.Resolver {
	return authtest.Resolver(func(name string) []netip.Addr { return names[name] })
}
