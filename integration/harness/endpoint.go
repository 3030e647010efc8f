package harness

import (
	"cmp"
	"maps"
	"net/http/httptest"
	"reflect"
	"slices"
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
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/pace"
)

// EachClientEra runs f for both eras of clients, where it does not matter what is behind the proxy.
func EachClientEra(t *testing.T, f func(t *testing.T, era client.Era)) {
	t.Helper()
	for _, era := range Eras {
		t.Run(string(era), func(t *testing.T) { f(t, era) })
	}
}

// Endpoint is a proxy in this process.
type Endpoint struct {
	URL    string // of the merged endpoint
	Server *front.Server
	Set    upstream.Set
}

// Option changes how MustProxy sets up.
type Option func(*front.Options, *scope.Config, *upstream.Options)

// MustProxy starts a proxy over the upstreams, until the test ends. It returns when each of them is
// ready and the proxy offers what it has. With JUNCTION_TEST_PROCESSES, the proxy is processes of the
// program; then Server and Set are missing.
func MustProxy(t testing.TB, configs map[string]upstream.Config, options ...Option) *Endpoint {
	t.Helper()
	configs = owned(process.OwnerOf(t), configs)
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	e := &Endpoint{}
	log := authtest.Log(t)
	server, world, up := front.Options{Key: key, Log: log}, scope.Config{}, upstream.Options{Log: log}
	for _, o := range options {
		o(&server, &world, &up)
	}
	if n := Processes(); n > 1 {
		return overProcesses(t, n, configs, server, world, up)
	}
	if world.Guard == nil {
		world.Guard, world.Policy = &auth.Guard{}, policy.Open()
	}
	e.Server = front.New(server)
	var (
		refresh = make(chan struct{}, 1)
		ready   = make(chan string, 1000)
		over    = make(chan struct{})
		loop    sync.WaitGroup
	)
	up.Hooks.StateChanged = func(c upstream.Change) {
		if c.State != upstream.StateReady && c.State != upstream.StateWaiting {
			return
		}
		select {
		case ready <- c.Name:
		default:
		}
	}
	up.Hooks.ResourceUpdated = func(u upstream.Update) { e.Server.Streams().Updated(u) }
	up.Hooks.CatalogChanged = func(string) {
		pace.Wake(refresh)
	}
	loop.Go(func() {
		for {
			select {
			case <-refresh:
				e.Server.Refresh()
			case <-over:
				return
			}
		}
	})
	e.Set.Apply(configs, up, func(us []*upstream.Upstream) { e.Server.Apply(world, us) })
	ts := httptest.NewServer(e.Server)
	e.URL = ts.URL + "/mcp"
	t.Cleanup(func() {
		e.Server.Shutdown()
		e.Server.Kill()
		ts.CloseClientConnections()
		ts.Close()
		e.Set.Close()
		close(over)
		loop.Wait()
	})
	missing := maps.Clone(configs)
	late := time.NewTimer(Patience)
	defer late.Stop()
	for len(missing) > 0 {
		select {
		case name := <-ready:
			delete(missing, name)
		case <-late.C:
			t.Fatalf("not ready: %v", slices.Sorted(maps.Keys(missing)))
		}
	}
	e.Server.Refresh()
	return e
}

// overProcesses is MustProxy with processes of the program.
func overProcesses(t testing.TB, n int, configs map[string]upstream.Config, server front.Options,
	world scope.Config, up upstream.Options,
) *Endpoint {
	t.Helper()
	w := Setup{Upstreams: configs, Limits: server.Limits, Guard: world.Guard, Policy: world.Policy, Names: world.Names,
		Endpoints: world.Endpoints, origins: world.AllowedOrigins}
	w.Limits.Message = cmp.Or(w.Limits.Message, upstream.Size(up.MessageLimit))
	server.Key, server.Log, server.Limits, up.Log, up.MessageLimit = nil, nil, proxy.Limits{}, nil, 0
	world.Guard, world.Policy, world.Names, world.Endpoints, world.AllowedOrigins = nil, nil, view.Names{}, nil, nil
	for _, rest := range []any{server, world, up} {
		if !reflect.ValueOf(rest).IsZero() {
			t.Fatalf("%T has options that cannot be settings of a process; call harness.InMemory", rest)
		}
	}
	c := clusters().take(t, n, w)
	t.Cleanup(func() { clusters().give(c) })
	c.reload(w.sections(c))
	c.ready(slices.Collect(maps.Keys(configs)))
	return &Endpoint{URL: c.url}
}
