package listeners

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/http1"
)

// mustCertify returns a certificate for localhost, and who trusts it.
func mustCertify(t testing.TB) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// security returns settings with a certificate for localhost.
func security(t testing.TB, limit time.Duration) (Security, *tls.Config) {
	certificate, pool := mustCertify(t)
	return Security{Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
		URL: func() string { return "https://mcp.example.com" }, Limit: limit,
		Log: authtest.Log(t)}, &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// mustListen listens on loopback.
func mustListen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustServe serves h at a plain and at a secure address.
func mustServe(t testing.TB, h http.Handler) (plain, secure string, trusts *tls.Config) {
	t.Helper()
	p, s := mustListen(t), mustListen(t)
	settings, trusts := security(t, time.Minute)
	l := Secured(Bound(Join(p, s), 4096, 48, 1<<20, func() []netip.Prefix { return nil }, authtest.Log(t)), settings)
	server := &http1.Server{HTTP: &http.Server{Handler: h, ReadTimeout: time.Minute}}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return "http://" + p.Addr().String(), s.Addr().String(), trusts
}

// TestBothAddressesServe: the same server answers http at one address and https at the other one, over TLS 1.2
// and 1.3, in HTTP/1.1 even for a client that prefers h2, for plain requests and for those that net/http reads.
func TestBothAddressesServe(t *testing.T) {
	plain, secure, trusts := mustServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(w, strings.Repeat("x", int(n)))
	}))
	resp, err := http.Get(plain + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		config := trusts.Clone()
		config.MinVersion, config.MaxVersion = version, version
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, size := range []int{0, 100, 1 << 20} {
			for how, body := range map[string]io.Reader{"length": strings.NewReader(strings.Repeat("y", size)),
				"chunked": io.MultiReader(strings.NewReader(strings.Repeat("y", size)))} {
				resp, err := client.Post("https://"+secure+"/mcp", "text/plain", body)
				if err != nil {
					t.Errorf("%s, %d bytes, %s: %v", name, size, how, err)
					continue
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if len(got) != size || err != nil || resp.ProtoMajor != 1 || resp.TLS.Version != version {
					t.Errorf("%s, %d bytes, %s: %d bytes, %v, %s", name, size, how, len(got), err, resp.Proto)
				}
			}
		}
	}
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.1": func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 },
		"only h2": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
	} {
		config := trusts.Clone()
		change(config)
		if c, err := tls.Dial("tcp", secure, config); err == nil {
			c.Close()
			t.Errorf("%s: the handshake did not fail", name)
		}
	}
}

// TestPlainRequestAtTheSecureAddress: http at the port of https is answered with the URL, also to a client that
// sends a body; a path with other characters, and bytes that are no request, are not repeated.
func TestPlainRequestAtTheSecureAddress(t *testing.T) {
	_, secure, _ := mustServe(t, http.NotFoundHandler())
	for request, want := range map[string]string{
		"GET /web/mcp HTTP/1.1\r\nHost: x\r\n\r\n": "Use the URL https://mcp.example.com/web/mcp\n",
		"POST /mcp?key=canary-query HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" +
			strings.Repeat("b", 100000): "Use the URL https://mcp.example.com/mcp\n",
		"GET /<b> HTTP/1.1\r\n\r\n": "Use the URL https://mcp.example.com/mcp\n",
	} {
		c, err := net.Dial("tcp", secure)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Error(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.30q: %v", request, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest || !strings.HasSuffix(string(text), want) || err != nil ||
			strings.Contains(string(text), "canary-query") {
			t.Errorf("%.30q: %d %q, %v; want 400 %q", request, resp.StatusCode, text, err, want)
		}
		c.Close()
	}
	c, err := net.Dial("tcp", secure)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
	if text, _ := io.ReadAll(c); strings.Contains(string(text), "HTTP") {
		t.Errorf("bytes that are no request get %q", text)
	}
}

// piped is a listener of connections within the process, with an address for each.
type piped struct {
	conns chan net.Conn
	ended chan struct{}
	end   func()
}

func newPiped() *piped {
	p := &piped{conns: make(chan net.Conn), ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	return p
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}
func (p *piped) Close() error   { p.end(); return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

// pipe is the end of a connection of an address.
type pipe struct {
	net.Conn
	address string
}

func (p pipe) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.address))
}

// dial connects from an address.
func (p *piped) dial(address string) net.Conn {
	here, there := net.Pipe()
	p.conns <- pipe{there, address}
	return here
}

// station is a secure listener within the process.
type station struct {
	dial   func(address string) net.Conn
	l      *secured
	bound  *Bounded
	trusts *tls.Config
}

// newStation returns a station whose handshakes may take ten seconds, and have one place. Each connection
// reads and answers one byte after the other.
func newStation(t *testing.T) *station {
	settings, trusts := security(t, 10*time.Second)
	plain, secure := newPiped(), newPiped()
	bound := Bound(Join(plain, secure), 4096, 48, 64<<10, func() []netip.Prefix { return nil },
		authtest.Log(t))
	l := Secured(bound, settings).(*secured)
	l.turns.free = 1
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return &station{secure.dial, l, bound, trusts}
}

// TestSlowHandshakesEnd: a handshake that does not go on ends at the limit, whatever it has sent, and keeps no
// turn meanwhile: with one place, others are served beside a hundred of them.
func TestSlowHandshakesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t)
		var slow []net.Conn
		for i := range 100 {
			c := s.dial("198.51.100.7:1000")
			slow = append(slow, c)
			if _, err := c.Write(hello(t, s.trusts)[:i*2]); err != nil {
				t.Fatal(err)
			}
		}
		c := tls.Client(s.dial("198.51.100.8:1000"), s.trusts)
		if err := c.Handshake(); err != nil {
			t.Fatalf("beside slow handshakes: %v", err)
		}
		c.NetConn().Close()
		begin := time.Now()
		for _, c := range slow {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a slow handshake is answered")
			}
		}
		if after := time.Since(begin); after > 11*time.Second {
			t.Errorf("slow handshakes ended after %v, want the limit of 10s", after)
		}
		synctest.Wait()
		if s.bound.all.now != (share{}) {
			t.Errorf("connections and bytes are left: %+v", s.bound.all.now)
		}
		if s.l.turns.free != 1 {
			t.Errorf("%d turns are free at the end, want 1", s.l.turns.free)
		}
	})
}

// hello returns the first record of a client.
func hello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go tls.Client(here, config).HandshakeContext(ctx)
	record := make([]byte, 4096)
	n, err := there.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	there.Close()
	return record[:n]
}

// TestHandshakesTakeTurnsByNetwork: a network with many handshakes gets no more turns than one with few, and a
// handshake that ended while it waited takes none.
func TestHandshakesTakeTurnsByNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		turns.free = 0
		var mu sync.Mutex
		var order []string
		ended := make(chan struct{})
		wait := func(address string, ended chan struct{}) {
			go func() {
				if turns.take(netip.MustParseAddr(address), ended) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, address)
				}
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("127.0.0.1", nil)
		}
		wait("2001:db8::", ended)
		for range 2 {
			wait("198.51.100.7", nil)
		}
		wait("198.51.100.8", nil)
		close(ended)
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("a handshake that ended passed a turn on that it did not have, to %s", order)
		}
		for range 7 {
			turns.give()
			synctest.Wait()
		}
		want := "127.0.0.1 198.51.100.7 198.51.100.8 127.0.0.1 198.51.100.7 127.0.0.1"
		if got := strings.Join(order, " "); got != want || turns.free != 1 || len(turns.waiting)+len(turns.order) > 0 {
			t.Errorf("turns: %s, want %s; %d free, want 1; waiting %v", got, want, turns.free, turns.waiting)
		}
	})
}

// TestUnfinishedRecordsAreBounded: the memory of handshakes and of records that are not complete counts as that
// of unfinished requests does, also beside what the server holds, and a handshake has a limit of bytes.
func TestUnfinishedRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation(t)
		held := func() int {
			synctest.Wait()
			s.bound.mu.Lock()
			defer s.bound.mu.Unlock()
			return s.bound.all.now.held
		}
		c := s.dial("198.51.100.7:1000")
		c.Write(hello(t, s.trusts)[:100])
		if got := held(); got != handshakeMemory+100 {
			t.Errorf("a handshake holds %d bytes, want %d", got, handshakeMemory+100)
		}
		c.Close()

		c = s.dial("127.0.0.1:1000") // without a share of its own
		go io.Copy(io.Discard, c)
		sent := 0
		for sent < 1<<20 { // a message of the largest size, in records that are complete
			n, err := c.Write(append([]byte{22, 3, 1, 16, 0, 1, 0, 255, 255}, make([]byte, 4092)...))
			if sent += n; err != nil {
				break
			}
		}
		if sent > maxHandshake+8192 {
			t.Errorf("a handshake could send %d bytes, want at most %d", sent, maxHandshake)
		}
		c.Close()

		secure := tls.Client(s.dial("198.51.100.7:1000"), s.trusts)
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		if got := held(); got != 0 {
			t.Errorf("after a handshake %d bytes are held", got)
		}
		raw := secure.NetConn()
		raw.Write(append([]byte{23, 3, 3, 64, 0}, make([]byte, 100)...))
		if got := held(); got != 16<<10 {
			t.Errorf("an unfinished record holds %d bytes, want %d", got, 16<<10)
		}
		raw.Close()
		if got := held(); got != 0 {
			t.Errorf("after the end %d bytes are held", got)
		}
	})
}

// TestCloseDoesNotWaitForTheClient: a client that reads nothing delays neither Close nor, with updates of its
// keys, the goroutine that reads. A client that reads learns of the end.
func TestCloseDoesNotWaitForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings, trusts := security(t, 10*time.Second)
		plain, secure := newPiped(), newPiped()
		l := Secured(Bound(Join(plain, secure), 4096, 48, 64<<10, func() []netip.Prefix { return nil },
			authtest.Log(t)), settings)
		defer l.Close()
		for _, kind := range []struct{ reads, writes bool }{{false, true}, {false, false}, {true, false}} {
			reads := kind.reads
			go func() {
				c := tls.Client(secure.dial("198.51.100.7:1000"), trusts)
				c.Write([]byte("x"))
				if reads {
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
						t.Errorf("a client that reads gets %v, want the end", err)
					}
				}
			}()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			stuck := make(chan error)
			c.SetWriteDeadline(time.Now().Add(time.Hour))
			if kind.writes {
				go func() { _, err := c.Write([]byte("y")); stuck <- err }()
				synctest.Wait()
			}
			begin := time.Now()
			c.Close()
			if after := time.Since(begin); after > time.Second {
				t.Errorf("Close took %v", after)
			}
			if kind.writes {
				if err := <-stuck; err == nil {
					t.Error("a write that nobody reads had no error")
				}
			}
		}
	})
}

// TestUpdatedKeysAfterALongPause: a client may update its keys when the deadline of the last answer has passed.
// A client that updates them and reads nothing is given up.
func TestUpdatedKeysAfterALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		b := Bound(make(calls), 4096, 48, 64<<10, func() []netip.Prefix { return nil }, authtest.Log(t))
		counted := &countedConn{in: b, boundConn: boundConn{pipe{there, "198.51.100.7:1000"}, func() {}}}
		w := newWire(counted, newTurns(), 10*time.Second)
		w.shaking = false
		w.SetWriteDeadline(time.Now().Add(time.Second))
		time.Sleep(time.Minute)
		got := make(chan []byte)
		go func() {
			p := make([]byte, 3)
			io.ReadFull(here, p)
			got <- p
		}()
		if _, err := w.Write([]byte("key")); err != nil {
			t.Errorf("an update of keys after the deadline: %v", err)
		}
		if p := <-got; !bytes.Equal(p, []byte("key")) {
			t.Errorf("the client gets %q", p)
		}
		begin := time.Now()
		_, err := w.Write([]byte("key"))
		if after := time.Since(begin); !errors.Is(err, os.ErrDeadlineExceeded) || after != 10*time.Second {
			t.Errorf("an update of keys that nobody reads ends after %v with %v, want 10s", after, err)
		}
		w.writing.Add(1)
		if _, err := w.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the deadline of the server is not in force again: %v", err)
		}
		here.Close()
	})
}
