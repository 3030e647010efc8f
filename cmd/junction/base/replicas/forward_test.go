package replicas

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/proxy/members"
	"junction/upstream/http1"
)

// pair is a member that has everything, and another one that forwards to it. front is where clients
// connect to the latter.
type pair struct {
	*world
	owner, other *running
	front        string
	errors       chan error // results of Forward
}

func mustPair(t *testing.T, handler http.HandlerFunc) *pair {
	t.Helper()
	p := &pair{world: mustWorld(t), errors: make(chan error, 100)}
	p.ttl = time.Minute
	p.owner, p.other = p.mustJoin(handler), p.mustJoin(nil)
	id := p.owner.Self()
	p.until("they know each other", func() bool { return p.other.Alive(id) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http1.Server{HTTP: &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "of the other")
		var body []byte
		if r.ContentLength < 0 { // as the proxy does, within its budget
			body, _ = io.ReadAll(r.Body)
		}
		err := p.other.Forward(w, r, body, id)
		if p.errors <- err; err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	})}}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	p.front = l.Addr().String()
	return p
}

// mustAsk sends a request as it is, and returns the response and its body.
func (p *pair) mustAsk(request string) (*http.Response, string) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.front)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(body)
}

// TestForwarded: the owner gets the request as the client has sent it, with the client's address,
// and the client gets the owner's answer, with its headers alone. A client's own value in
// the header of forwarded requests does not count.
func TestForwarded(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	p := mustPair(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if got := r.Header["X-Forwarded-For"]; r.URL.Path == "/several" && len(got) != 2 {
			t.Errorf("X-Forwarded-For = %q", got)
		}
		heard <- fmt.Sprintf("%s %s %s auth=%q te=%q secret=%q body=%q hop=%v local=%v", r.Method, r.RequestURI, r.Host,
			r.Header.Get("Authorization"), r.Header.Get("Te"), r.Header.Get("X-Secret"), body, members.Forwarded(r.Context()),
			strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"))
		w.Header().Set("X-Request-Id", "of the owner")
		w.Header().Set("Retry-After", "7")
		w.Header().Add("WWW-Authenticate", "Bearer a")
		w.Header().Add("WWW-Authenticate", "Bearer b")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "answer ", len(body))
	})
	large := strings.Repeat("x", 300<<10)
	for name, c := range map[string]struct{ request, want, answer string }{
		"post": {"POST /mcp HTTP/1.1\r\nHost: mcp.example.com\r\nAuthorization: Bearer k\r\nJunction-Hop: x 203.0.113.9:1\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
			`POST /mcp mcp.example.com auth="Bearer k" te="" secret="" body="{\"a\":1}" hop=true local=true`, "answer 7"},
		"odd path": {"GET /mcp/%66iles?a=%2f%20&b HTTP/1.1\r\nHost: h\r\nJunction-Hop: x 203.0.113.9:1\r\nJunction-Hop: y 203.0.113.9:1\r\n\r\n",
			`GET /mcp/%66iles?a=%2f%20&b h auth="" te="" secret="" body="" hop=true local=true`, "answer 0"},
		"of the connection": {"DELETE /mcp HTTP/1.1\r\nHost: h\r\nConnection: te\r\nX-Secret: s\r\nTE: trailers\r\n\r\n",
			`DELETE /mcp h auth="" te="" secret="s" body="" hop=true local=true`, "answer 0"},
		"several values": {"GET /several HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n\r\n",
			`GET /several h auth="" te="" secret="" body="" hop=true local=true`, "answer 0"},
		"chunked": {"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
			`POST /mcp h auth="" te="" secret="" body="abcde" hop=true local=true`, "answer 5"},
		"large": {fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(large), large),
			fmt.Sprintf(`POST /mcp h auth="" te="" secret="" body=%q hop=true local=true`, large), fmt.Sprint("answer ", len(large))},
		"empty": {"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
			`POST /mcp h auth="" te="" secret="" body="" hop=true local=true`, "answer 0"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := p.mustAsk(c.request)
			if got := <-heard; got != c.want {
				t.Errorf("the owner got\n%.300s\nwant\n%.300s", got, c.want)
			}
			if err := <-p.errors; err != nil {
				t.Errorf("Forward = %v", err)
			}
			h := resp.Header
			if resp.StatusCode != http.StatusTeapot || body != c.answer || h.Get("Retry-After") != "7" || h.Get("X-Request-Id") != "of the owner" ||
				len(h["Www-Authenticate"]) != 2 || len(h["X-Request-Id"]) != 1 || h.Get(headerGone) != "" {
				t.Errorf("the client got %d %q %v", resp.StatusCode, body, h)
			}
		})
	}
}

// TestStream: events of the owner arrive while its answer goes on, and a client that disconnects
// ends the request at the owner.
func TestStream(t *testing.T) {
	t.Parallel()
	ended, next := make(chan struct{}), make(chan string)
	p := mustPair(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-next:
				fmt.Fprintf(w, "data: %s\n\n", text)
				http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				close(ended)
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.front+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		next <- fmt.Sprint(i)
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		_, _ = lines.ReadString('\n')
	}
	cancel()
	<-ended
}

// TestOwnerDies: a call whose owner ends before it answers fails, one whose answer has begun is cut
// off, and a later one learns that nothing was sent.
func TestOwnerDies(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 2)
	p := mustPair(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		if r.URL.Path == "/stream" {
			http.NewResponseController(w).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
	})
	call := make(chan int, 1)
	go func() {
		resp, _ := p.mustAsk("POST /call HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
		call <- resp.StatusCode
	}()
	<-began
	resp, err := http.Get("http://" + p.front + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-began
	if _, err := p.store.Database().Exec(`DELETE FROM members WHERE id = $1`, p.owner.Self()); err != nil {
		t.Fatal(err)
	}
	p.mustAnnounce()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the end of a stream that was cut off is a proper one")
	}
	if code := <-call; code != http.StatusBadGateway {
		t.Errorf("the call got %d", code)
	}
	if err := <-p.errors; errors.Is(err, members.ErrGone) || !errors.Is(err, errLost) {
		t.Errorf("Forward of a call that was sent = %v", err)
	}
	if _, _ = p.mustAsk("POST /call HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"); !errors.Is(<-p.errors, members.ErrGone) {
		t.Error("a later call is not reported as not sent")
	}
}

// TestLeavingOwnerAnswers: a request that a member gets before others know that it has left is answered,
// although they learn of the end before the answer. So it is not reported as lost.
func TestLeavingOwnerAnswers(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan struct{})
	p := mustPair(t, func(http.ResponseWriter, *http.Request) {
		close(began)
		<-finish
	})
	id := p.owner.Self()
	call := make(chan int, 1)
	go func() {
		resp, _ := p.mustAsk("POST /call HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
		call <- resp.StatusCode
	}()
	<-began
	if _, err := p.store.Database().Exec(`DELETE FROM members WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	p.mustAnnounce()
	p.until("the other one knows", func() bool { return p.other.living(id) == nil })
	close(finish)
	if code := <-call; code != http.StatusOK {
		t.Errorf("the call got %d: %v", code, <-p.errors)
	}
}

// TestNotTheOwner: a process that has the address of a member, but another ID, does not look at the
// request. The body can be sent again.
func TestNotTheOwner(t *testing.T) {
	t.Parallel()
	p := mustPair(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was handled") })
	id := p.owner.Self()
	p.owner.lease.Store(&lease{id: "another", until: time.Now().Add(time.Hour)})
	r, body := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody), []byte("body")
	if err := p.other.Forward(httptest.NewRecorder(), r, body, id); !errors.Is(err, members.ErrGone) {
		t.Errorf("Forward = %v", err)
	}
	p.owner.lease.Store(nil)
	if err := p.other.Forward(httptest.NewRecorder(), r, body, id); !errors.Is(err, members.ErrGone) {
		t.Errorf("to a member that has lost its lease: %v", err)
	}
	p.other.lease.Store(nil)
	if err := p.other.Forward(httptest.NewRecorder(), r, body, id); !errors.Is(err, members.ErrAlone) {
		t.Errorf("by a process that is no member: %v", err)
	}
}

// TestForwardDuringARotation: members forward to each other at each step of a rotation of the key of
// sessions, whichever of the two keys is the first one.
func TestForwardDuringARotation(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	var all []*running
	for _, keys := range [][]byte{{1, 2}, {2, 1}} {
		o := w.options()
		o.Key = w.mustKey(keys...)
		all = append(all, w.mustStart(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "the owner has answered")
		})))
	}
	w.until("they know each other", func() bool { return len(all[0].Members()) == 2 && len(all[1].Members()) == 2 })
	for i, m := range all {
		r := httptest.NewRequest(http.MethodGet, "/mcp", nil)
		got := httptest.NewRecorder()
		if err := m.Forward(got, r, nil, all[1-i].Self()); err != nil || got.Body.String() != "the owner has answered" {
			t.Errorf("from member %d: %q, %v", i, got.Body, err)
		}
	}
}

// TestStrangers: a client without the key gets no answer, with TLS or without, and a server without
// the key gets no request.
func TestStrangers(t *testing.T) {
	t.Parallel()
	p := mustPair(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was handled") })
	address := p.owner.address
	request := []byte("GET /mcp HTTP/1.1\r\nHost: h\r\nJunction-Hop: " + p.owner.Self() + " 127.0.0.1:1\r\n\r\n")
	p.key[0]++
	stranger, err := newIdentity(p.options().Key)
	if err != nil {
		t.Fatal(err)
	}
	blind := stranger.config()
	blind.VerifyConnection = nil
	none := &tls.Config{InsecureSkipVerify: true}
	for name, config := range map[string]*tls.Config{"another key": blind, "no key": none, "no TLS": nil} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if config != nil {
				c = tls.Client(c, config)
			}
			_, _ = c.Write(request)
			if got, _ := io.ReadAll(c); bytes.Contains(got, []byte("HTTP/1.1")) && config != nil || bytes.Contains(got, []byte("Junction")) {
				t.Errorf("the answer is %q", got)
			}
		})
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", blind)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		text, _ := io.ReadAll(c)
		got <- string(text)
	}()
	// The row is in the table, because the process reads the table after a failed request.
	if _, err := p.store.Database().Exec(`INSERT INTO members VALUES ('stranger', $1, '', '', '', 0, `+now+` + 60000000)`,
		l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	p.mustAnnounce()
	p.until("the process knows the stranger", func() bool { return p.other.Alive("stranger") })
	r := httptest.NewRequest(http.MethodGet, "/mcp", nil)
	if err := p.other.Forward(httptest.NewRecorder(), r, nil, "stranger"); !errors.Is(err, members.ErrGone) {
		t.Errorf("Forward to a stranger = %v", err)
	}
	if text := <-got; text != "" {
		t.Errorf("the stranger got %q", text)
	}
	if list := p.other.Members(); len(list) != 3 || list[0].ID != "stranger" || !strings.Contains(list[0].Error, errStranger.Error()) {
		t.Errorf("Members = %+v", list)
	}
}

// frozen is the way to a member that does not run: it accepts connections and bytes, and passes them on when the
// member runs again.
type frozen struct {
	net.Listener
	to   string
	held sync.RWMutex // locked while the member does not run
}

func mustFrozen(t *testing.T, to string) *frozen {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frozen{Listener: l, to: to}
	var all sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		b := make([]byte, 64<<10)
		for n, err := from.Read(b); err == nil; n, err = from.Read(b) {
			f.held.RLock()
			_, _ = to.Write(b[:n])
			f.held.RUnlock()
		}
	}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			all.Go(func() { pass(there, c) })
			all.Go(func() { pass(c, there) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return f
}

// TestFrozenOwner: a request that the owner has not begun is refused, and the owner does not execute it when it
// runs again, although its bytes arrive then. Further requests are not sent meanwhile. A request that the owner has
// begun goes on.
func TestFrozenOwner(t *testing.T) {
	t.Parallel()
	begun, end, two := make(chan string, 10), make(chan struct{}), make(chan struct{})
	p := &pair{world: mustWorld(t), errors: make(chan error, 100)}
	p.ttl = time.Minute
	o := p.options()
	way := mustFrozen(t, o.Listener.Addr().String())
	o.Advertise = way.Addr().String()
	p.owner = p.mustStart(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- r.URL.Path
		switch r.URL.Path {
		case "/long":
			<-end
		case "/two":
			<-two
		}
	}))
	p.until("the owner has joined", func() bool { return p.owner.Self() != "" })
	p.other = p.mustJoin(nil)
	id := p.owner.Self()
	p.until("they know each other", func() bool { return p.other.Alive(id) })
	forward := func(path string) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
		return p.other.Forward(httptest.NewRecorder(), r, []byte("{}"), id)
	}
	// Two connections are open, so that the next requests are sent.
	long, both := make(chan error, 1), make(chan error, 2)
	for range 2 {
		go func() { both <- forward("/two") }()
		<-begun
	}
	close(two)
	if err := errors.Join(<-both, <-both); err != nil {
		t.Fatal(err)
	}
	told := &(*p.other.others.Load())[id].conns.tells
	told.Store(false)
	go func() { long <- forward("/long") }()
	if path := <-begun; path != "/long" {
		t.Fatalf("%s has begun", path)
	}
	p.until("the owner has said that it begins", told.Load)
	way.held.Lock()
	for i := range 3 {
		if err := forward("/refused"); !errors.Is(err, members.ErrUnreachable) {
			t.Errorf("request %d: %v, want %v", i, err, members.ErrUnreachable)
		}
	}
	way.held.Unlock()
	p.until("the owner is asked again", func() bool { return forward("/after") == nil })
	if path := <-begun; path != "/after" {
		t.Errorf("%s was executed after it was refused", path)
	}
	close(end)
	if err := <-long; err != nil {
		t.Errorf("the request that had begun: %v", err)
	}
}
