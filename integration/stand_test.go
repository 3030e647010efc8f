package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
)

// stand is the proxy in this process, wired as the program wires it, so that a test can see its
// goroutines, its memory and the states of its upstreams.
type stand struct {
	Set    upstream.Set
	Server *proxy.Server
	URL    string // of the merged endpoint

	options upstream.Options
	names   proxy.WorldConfig

	mu      sync.Mutex
	events  []stateEvent
	closed  map[string]bool // connections of clients, by their own address
	changed chan struct{}   // closed and replaced at every event
}

// stateEvent is a change of the state of an upstream's main link.
type stateEvent struct {
	Name  string
	State upstream.State
	Err   error
}

// soon bounds what must happen, and does not happen at once only because machines are slow.
const soon = patience

// mustStand starts a proxy over the upstreams, which ends with the test, and is then expected to
// leave no goroutine and no process behind. It returns when all upstreams that can be ready are,
// which are those not named in unready.
func mustStand(t testing.TB, limits proxy.Limits, configs map[string]upstream.Config, unready ...string) *stand {
	t.Helper()
	children := childPIDs(os.Getpid())
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t)
	s := &stand{closed: map[string]bool{}, changed: make(chan struct{}), names: proxy.WorldConfig{Guard: &auth.Guard{}, Policy: policy.Open()}}
	if s.Server, err = proxy.New(proxy.Options{Limits: limits, Key: key, Log: log}); err != nil {
		t.Fatal(err)
	}
	refresh := make(chan struct{}, 1)
	s.options.Log, s.options.MessageLimit = log, limits.Message
	s.options.Hooks = upstream.Hooks{
		StateChanged: s.record,
		CatalogChanged: func(string) {
			select {
			case refresh <- struct{}{}:
			default:
			}
		},
	}
	over := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-refresh:
				s.Server.Refresh()
			case <-over:
				return
			}
		}
	})
	s.Apply(configs)
	ts := httptest.NewUnstartedServer(s.Server)
	ts.Config.ReadTimeout = limits.WithDefaults().ReadTimeout
	ts.Config.ConnState = s.connState
	ts.Start()
	s.URL = ts.URL + "/mcp"
	t.Cleanup(func() {
		s.Server.Shutdown()
		s.Server.Kill()
		ts.CloseClientConnections()
		ts.Close()
		s.Set.Close()
		close(over)
		loop.Wait()
		mustLeaveNothing(t, children)
	})
	for name := range configs {
		if !slices.Contains(unready, name) {
			s.mustReach(t, name, upstream.StateReady)
		}
	}
	s.Server.Refresh()
	return s
}

// Apply is a reload, as the program makes one.
func (s *stand) Apply(configs map[string]upstream.Config) {
	s.Set.Apply(configs, s.options, func(us []*upstream.Upstream) { s.Server.Apply(s.names, us) })
}

func (s *stand) record(name string, state upstream.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, stateEvent{name, state, err})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stand) connState(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed[c.RemoteAddr().String()] = true
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// mustClose waits until the proxy has closed the connection of a client.
func (s *stand) mustClose(t testing.TB, client net.Conn) {
	t.Helper()
	for enough := time.After(soon); ; {
		s.mu.Lock()
		closed, changed := s.closed[client.LocalAddr().String()], s.changed
		s.mu.Unlock()
		if closed {
			return
		}
		select {
		case <-changed:
		case <-enough:
			t.Fatalf("the proxy has not closed the connection from %v within %v", client.LocalAddr(), soon)
		}
	}
}

func (s *stand) upstream(t testing.TB, name string) *upstream.Upstream {
	t.Helper()
	for _, u := range s.Set.All() {
		if u.Name() == name {
			return u
		}
	}
	t.Fatalf("there is no upstream %s", name)
	return nil
}

// mustReach waits until the upstream is in the state, and returns its status then.
func (s *stand) mustReach(t testing.TB, name string, want upstream.State) upstream.Status {
	t.Helper()
	u, enough := s.upstream(t, name), time.After(soon)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		status := u.Status()
		if status.State == want {
			return status
		}
		select {
		case <-changed:
		case <-enough:
			t.Fatalf("upstream %s is %v (%s), want %v within %v", name, status.State, status.Err, want, soon)
		}
	}
}

// mustOffer waits until clients see so many tools.
func (s *stand) mustOffer(t testing.TB, want int) {
	t.Helper()
	again, enough := time.NewTicker(5*time.Millisecond), time.After(soon)
	defer again.Stop()
	for s.Server.Tools() != want {
		select {
		case <-again.C:
		case <-enough:
			t.Fatalf("%d tools are offered, want %d within %v", s.Server.Tools(), want, soon)
		}
	}
}

// mustSay expects that some change of the upstream's state gave a reason that contains the words.
func (s *stand) mustSay(t testing.TB, name, words string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var said []string
	for _, e := range s.events {
		if e.Name == name && e.Err != nil {
			said = append(said, e.Err.Error())
		}
	}
	if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, words) }) {
		t.Errorf("the reasons for changes of %s are %q; want one with %q", name, said, words)
	}
}

// mustLeaveNothing expects that no goroutine of the proxy is left, and no child of this process but
// those given. What was ended may need a moment to be gone.
func mustLeaveNothing(t testing.TB, children []int) {
	t.Helper()
	var left []string
	for end := time.Now().Add(soon); time.Now().Before(end); runtime.Gosched() {
		b := make([]byte, 1<<20)
		left = slices.DeleteFunc(strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n"), func(stack string) bool {
			return !strings.Contains(stack, "junction/upstream.") && !strings.Contains(stack, "junction/proxy.")
		})
		if len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
	}
	for _, pid := range childPIDs(os.Getpid()) {
		if name, lives := living(pid); lives && !slices.Contains(children, pid) {
			t.Errorf("process %d (%s) is left", pid, name)
		}
	}
}

// caller is a client of one era that writes its messages as the test gives them, and shows the
// answers as they came.
type caller struct {
	url     string
	era     string
	session string
	http    *http.Client
	ids     atomic.Int64
}

func mustCaller(t testing.TB, url, era string) *caller {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	c := &caller{url: url, era: era, http: &http.Client{Transport: transport}}
	if era == modernEra {
		return c
	}
	resp, err := c.post(t.Context(), "initialize", "",
		`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"`+legacyVersion+`","capabilities":`+allCapabilities+`,"clientInfo":{"name":"caller","version":"1"}}}`)
	if err != nil {
		t.Fatalf("initialize: %v", err)
	}
	defer resp.Body.Close()
	if c.session = resp.Header.Get("Mcp-Session-Id"); c.session == "" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("initialize: %s without a session: %s", resp.Status, body)
	}
	return c
}

func (c *caller) post(ctx context.Context, method, name, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch {
	case c.era == modernEra:
		req.Header.Set("Mcp-Protocol-Version", modernVersion)
		req.Header.Set("Mcp-Method", method)
		if name != "" {
			req.Header.Set("Mcp-Name", name)
		}
	case c.session != "":
		req.Header.Set("Mcp-Protocol-Version", legacyVersion)
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	return c.http.Do(req)
}

// exchanged is a response: its messages as they came, the answer apart from what came before it.
type exchanged struct {
	ID       string
	Streamed bool
	Before   []string
	Answer   string
}

// do posts a request whose params have these members, with a _meta of these further members.
func (c *caller) do(ctx context.Context, method, name, members, meta string) (exchanged, error) {
	if c.era == modernEra {
		if meta != "" {
			meta = "," + meta
		}
		own := strings.Replace(modernMeta, `clientCapabilities":{}`, `clientCapabilities":`+allCapabilities, 1)
		meta = strings.TrimSuffix(strings.TrimPrefix(own, `"_meta":{`), "}") + meta
	}
	if meta != "" {
		if members != "" {
			members += ","
		}
		members += `"_meta":{` + meta + `}`
	}
	x := exchanged{ID: fmt.Sprint(c.ids.Add(1))}
	resp, err := c.post(ctx, method, name, `{"jsonrpc":"2.0","id":`+x.ID+`,"method":"`+method+`","params":{`+members+`}}`)
	if err != nil {
		return x, err
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, err := io.ReadAll(resp.Body)
		x.Answer = string(body)
		return x, err
	}
	x.Streamed = true
	for events := jsonrpc.NewEventReader(resp.Body, 64<<20); ; {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF) && len(x.Before) > 0:
			last := len(x.Before) - 1
			x.Before, x.Answer = x.Before[:last], x.Before[last]
			return x, nil
		case err != nil:
			return x, fmt.Errorf("read the stream after %d events: %w", len(x.Before), err)
		}
		if len(e.Data) > 0 {
			x.Before = append(x.Before, string(e.Data))
		}
	}
}

// call calls a tool.
func (c *caller) call(ctx context.Context, tool, arguments string) (exchanged, error) {
	return c.do(ctx, "tools/call", tool, `"name":"`+tool+`","arguments":`+arguments, "")
}

// mustCall expects the call to succeed with a result that contains the words, soon.
func (c *caller) mustCall(t testing.TB, tool, arguments, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer cancel()
	x, err := c.call(ctx, tool, arguments)
	if err != nil || !strings.Contains(x.Answer, `"result":`) || !strings.Contains(x.Answer, words) {
		t.Errorf("%s of %s = %.500s, %v; want a result with %q", tool, c.era, x.Answer, err, words)
	}
}

// mustFail expects the call to fail with the given kind of error of the proxy's own, soon, and
// returns the answer.
func (c *caller) mustFail(t testing.TB, tool, arguments, kind string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
	defer cancel()
	x, err := c.call(ctx, tool, arguments)
	if err != nil || !strings.Contains(x.Answer, `"kind":"`+kind+`"`) {
		t.Errorf("%s of %s = %.500s, %v; want an error of kind %s", tool, c.era, x.Answer, err, kind)
	}
	return x.Answer
}

// oneLine is the only change that is allowed to what somebody wrote: where a message is one line, a
// line break between tokens becomes a space.
func oneLine(text string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(text) }
