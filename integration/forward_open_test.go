package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// pair is which eras meet, and over which wire the upstream is reached.
type pair struct {
	client, upstream upstream.Era
	wire             string // stdio, http or sse
}

var eras = []upstream.Era{upstream.EraLegacy, upstream.EraModern}

// eachPair runs f in each pair of eras over each wire that there is.
func eachPair(t *testing.T, f func(*testing.T, pair)) {
	t.Helper()
	for _, client := range eras {
		for _, up := range eras {
			eachWire(t, pair{client, up, ""}, f)
		}
	}
}

// eachWire runs f over each wire that the upstream's era has.
func eachWire(t *testing.T, p pair, f func(*testing.T, pair)) {
	t.Helper()
	for _, p.wire = range []string{"stdio", "http", "sse"} {
		if p.wire == "sse" && p.upstream == upstream.EraModern {
			continue
		}
		runPair(t, p, f)
	}
}

// eachEra runs f in each pair of eras over HTTP, for what has nothing to do with the wire.
func eachEra(t *testing.T, f func(*testing.T, pair)) {
	t.Helper()
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "http"}, f)
		}
	}
}

func runPair(t *testing.T, p pair, f func(*testing.T, pair)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s client, %s %s", p.client, p.upstream, p.wire), func(t *testing.T) { f(t, p) })
}

// served is an upstream that a test serves.
type served struct {
	*upstreamtest.Journal
	config   upstream.Config
	inside   *upstreamtest.Server // nil when it is a process of its own
	child    *upstreamtest.Child  // nil unless it is
	release  func(gate string) error
	setTools func([]json.RawMessage) error
}

// serve serves the script in the pair's era over its wire.
func (p pair) serve(t *testing.T, script upstreamtest.Script) *served {
	t.Helper()
	if script.Era == "" {
		script.Era = string(p.upstream)
	}
	if p.wire == "stdio" {
		c := upstreamtest.Command(t, script)
		return &served{&c.Journal, upstream.Config{Command: c.Command, Env: c.Env}, nil, c, c.Release, c.SetTools}
	}
	var s *upstreamtest.Server
	var config upstream.Config
	if p.wire == "sse" {
		s, config.URL = upstreamtest.StartSSE(t, script)
		config.Transport = upstream.TransportSSE
	} else {
		s, config.URL = upstreamtest.Start(t, script)
	}
	return &served{&s.Journal, config, s, nil,
		func(gate string) error { s.Release(gate); return nil },
		func(tools []json.RawMessage) error { s.SetTools(tools); return nil }}
}

// world is how a junction is configured.
type world struct {
	upstreams map[string]upstream.Config
	names     proxy.Names
	limits    proxy.Limits
	log       io.Writer      // where its log also goes; nil is nowhere
	guard     *auth.Guard    // nil lets everybody in
	policy    *policy.Policy // nil allows everything that requires nothing
	endpoints map[string]proxy.Endpoint
	store     upstream.Store // nil keeps no catalogs
	crowded   bool           // another junction of the same test lives on when this one ends
}

// junction is the proxy in the test's own process.
type junction struct {
	pair    pair
	url     string
	server  *proxy.Server
	set     *upstream.Set
	options upstream.Options
	refresh chan struct{}
	recheck chan struct{}

	mu   sync.Mutex
	more chan struct{} // closed and replaced whenever something may have changed
}

// start starts a junction, which ends with the test. It does not wait for the upstreams.
func start(t *testing.T, p pair, w world) *junction {
	t.Helper()
	children := childPIDs(os.Getpid())
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t, cmp.Or(w.log, io.Discard))
	j := &junction{pair: p, set: new(upstream.Set), refresh: make(chan struct{}, 1), recheck: make(chan struct{}, 1), more: make(chan struct{})}
	if j.server, err = proxy.New(proxy.Options{Limits: w.limits, Key: key, Version: "test", Log: log}); err != nil {
		t.Fatal(err)
	}
	j.options = upstream.Options{Version: "test", Log: log, Hooks: upstream.Hooks{
		StateChanged:    func(string, upstream.State, error) { j.changed() },
		ResourceUpdated: func(u upstream.Update) { j.server.Updated(u) },
		CatalogChanged: func(string) {
			select {
			case j.refresh <- struct{}{}:
			default:
			}
		},
		OwnChanged: func(string) {
			select {
			case j.recheck <- struct{}{}:
			default:
			}
		},
	}, Store: w.store}
	ctx, cancel := context.WithCancel(context.Background())
	var refreshing sync.WaitGroup
	refreshing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-j.refresh:
				j.server.Refresh()
				j.changed()
			case <-j.recheck:
				j.server.Recheck()
				j.changed()
			}
		}
	})
	j.apply(w)
	ts := httptest.NewServer(j.server)
	j.url = ts.URL + "/mcp"
	t.Cleanup(func() {
		j.server.Shutdown()
		j.server.Kill()
		ts.CloseClientConnections()
		ts.Close()
		j.set.Close()
		cancel()
		refreshing.Wait()
		if !w.crowded {
			mustLeaveNothing(t, children)
		}
	})
	return j
}

// apply replaces the configuration of the upstreams.
func (j *junction) apply(w world) {
	j.set.Apply(w.upstreams, j.options, func(us []*upstream.Upstream) {
		j.server.Apply(proxy.WorldConfig{Names: w.names, Endpoints: w.endpoints, Guard: cmp.Or(w.guard, &auth.Guard{}), Policy: cmp.Or(w.policy, policy.Open())}, us)
	})
}

func (j *junction) changed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.more)
	j.more = make(chan struct{})
}

// until waits until the condition holds, which is looked at whenever an upstream's state or catalog
// has changed.
func (j *junction) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := patient(t)
	for {
		j.mu.Lock()
		more := j.more
		j.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			for _, u := range j.set.All() {
				t.Logf("%+v", u.Status())
			}
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// offers waits until these upstreams are ready and their lists are offered.
func (j *junction) offers(t *testing.T, names ...string) {
	t.Helper()
	j.until(t, fmt.Sprintf("%q to be ready", names), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return j.status(name).State != upstream.StateReady })
	})
	j.server.Refresh()
}

func (j *junction) status(name string) upstream.Status {
	for _, u := range j.set.All() {
		if u.Name() == name {
			return u.Status()
		}
	}
	return upstream.Status{}
}

// talk and talkTo return a new client of the pair's era, of the merged endpoint or of one below it.
func (j *junction) talk(t *testing.T) *talker { t.Helper(); return talk(t, j.url, j.pair.client) }
func (j *junction) talkTo(t *testing.T, path string) *talker {
	t.Helper()
	return talk(t, j.url+path, j.pair.client)
}

// listened waits until the upstream can tell of changes, and the proxy has told everybody of what
// may have changed before that: a server over HTTP is asked in a request of its own, and for its
// lists once more when that stream has begun.
func (s *served) listened(t *testing.T, p pair) {
	t.Helper()
	switch {
	case p.upstream == upstream.EraModern:
		await(t, s.Journal, "subscriptions/listen", upstreamtest.Method("subscriptions/listen"))
	case p.wire == "http":
		await(t, s.Journal, "OPEN", upstreamtest.Verb("OPEN"))
		s.requestsOf(t, "tools/list", 2)
	}
}
