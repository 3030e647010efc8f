package harness

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/integration/harness/process"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/pace"
)

// Stand is the proxy in this process, wired as the program wires it, so that a test can see its
// goroutines, its memory and the states of its upstreams.
type Stand struct {
	Set    upstream.Set
	Server *front.Server
	URL    string // of the merged endpoint

	owner   *process.Owner
	options upstream.Options
	names   scope.Config

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

// MustStand starts a proxy over the upstreams, which ends with the test, and is then expected to
// leave no goroutine and no process behind. It returns when all upstreams that can be ready are,
// which are those not named in unready.
func MustStand(t testing.TB, limits proxy.Limits, configs map[string]upstream.Config, unready ...string) *Stand {
	t.Helper()
	owner := process.OwnerOf(t)
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t)
	s := &Stand{owner: owner, closed: map[string]bool{}, changed: make(chan struct{}),
		names: scope.Config{Guard: &auth.Guard{}, Policy: policy.Open()}}
	s.Server = front.New(front.Options{Limits: limits, Key: key, Log: log})
	refresh := make(chan struct{}, 1)
	s.options.Log, s.options.MessageLimit = log, limits.Message
	s.options.Hooks = upstream.Hooks{
		StateChanged: s.record,
		CatalogChanged: func(string) {
			pace.Wake(refresh)
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
	})
	for name := range configs {
		if !slices.Contains(unready, name) {
			s.MustReach(t, name, upstream.StateReady)
		}
	}
	s.Server.Refresh()
	return s
}

// Apply is a reload, as the program makes one.
func (s *Stand) Apply(configs map[string]upstream.Config) {
	s.Set.Apply(owned(s.owner, configs), s.options, func(us []*upstream.Upstream) { s.Server.Apply(s.names, us) })
}

func (s *Stand) record(c upstream.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, stateEvent{c.Name, c.State, c.Err})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Stand) connState(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed[c.RemoteAddr().String()] = true
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// MustClose waits until the proxy has closed the connection of a client.
func (s *Stand) MustClose(t testing.TB, client net.Conn) {
	t.Helper()
	for enough := time.After(Patience); ; {
		s.mu.Lock()
		closed, changed := s.closed[client.LocalAddr().String()], s.changed
		s.mu.Unlock()
		if closed {
			return
		}
		select {
		case <-changed:
		case <-enough:
			t.Fatalf("the proxy has not closed the connection from %v within %v", client.LocalAddr(), Patience)
		}
	}
}

func (s *Stand) upstream(t testing.TB, name string) *upstream.Upstream {
	t.Helper()
	for _, u := range s.Set.All() {
		if u.Name() == name {
			return u
		}
	}
	t.Fatalf("there is no upstream %s", name)
	return nil
}

// MustReach waits until the upstream is in the state, and returns its status then.
func (s *Stand) MustReach(t testing.TB, name string, want upstream.State) upstream.Status {
	t.Helper()
	u, enough := s.upstream(t, name), time.After(Patience)
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
			t.Fatalf("upstream %s is %v (%s), want %v within %v", name, status.State, status.Err, want, Patience)
		}
	}
}

// MustOffer waits until clients see so many tools.
func (s *Stand) MustOffer(t testing.TB, want int) {
	t.Helper()
	again, enough := time.NewTicker(5*time.Millisecond), time.After(Patience)
	defer again.Stop()
	for s.Server.Snapshot().Tools() != want {
		select {
		case <-again.C:
		case <-enough:
			t.Fatalf("%d tools are offered, want %d within %v", s.Server.Snapshot().Tools(), want, Patience)
		}
	}
}

// Reasons returns the reasons for the changes of the upstream's state so far.
func (s *Stand) Reasons(name string) (reasons []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Name == name && e.Err != nil {
			reasons = append(reasons, e.Err.Error())
		}
	}
	return reasons
}

// MustSay expects that some change of the upstream's state gave a reason that contains the words.
func (s *Stand) MustSay(t testing.TB, name, words string) {
	t.Helper()
	reasons := s.Reasons(name)
	if !slices.ContainsFunc(reasons, func(text string) bool { return strings.Contains(text, words) }) {
		t.Errorf("the reasons for changes of %s are %q; want one with %q", name, reasons, words)
	}
}
