package harness

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
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
	"junction/proxy/members/memberstest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Setup is how a junction is configured.
type Setup struct {
	Upstreams map[string]upstream.Config
	Names     view.Names
	Limits    proxy.Limits
	Log       io.Writer      // where its log also goes; nil is nowhere
	Guard     *auth.Guard    // nil lets everybody in
	Policy    *policy.Policy // nil allows everything that requires nothing
	Endpoints map[string]scope.EndpointConfig
	FirstWait time.Duration   // see proxy.CatalogConfig
	Store     upstream.Store  // nil keeps no catalogs
	Requests  front.Observer  // nil observes nothing; see Unobserved
	Calls     client.Observer // nil observes nothing
	origins   []string        // that may send requests, beside the own ones
	Members   int             // processes behind the address; 0 is memberstest.Wanted
}

// Junction is the proxy in the test's own process.
type Junction struct {
	owner  *process.Owner
	pair   Pair
	URL    string
	Server *front.Server // the first
	Set    *upstream.Set
	memberstest.Servers
	options upstream.Options
	refresh chan struct{}
	recheck chan struct{}
	cluster *cluster // nil for a proxy in this process

	mu   sync.Mutex
	more chan struct{} // closed and replaced whenever something may have changed
}

// Start starts a junction, which ends with the test. It does not wait for the upstreams. If it has
// several members, they have the upstream connections in common. With JUNCTION_TEST_PROCESSES, the
// junction is processes of the program; then Server, Set and the members are missing.
func Start(t *testing.T, p Pair, w Setup) *Junction {
	t.Helper()
	owner := process.OwnerOf(t)
	if n := Processes(); n > 1 {
		return startProcesses(t, p, n, w)
	}
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t, cmp.Or(w.Log, io.Discard))
	j := &Junction{owner: owner, pair: p, Set: new(upstream.Set), refresh: make(chan struct{}, 1),
		recheck: make(chan struct{}, 1), more: make(chan struct{})}
	j.Prepare(t, cmp.Or(w.Members, memberstest.Wanted()), front.Options{Limits: w.Limits, Key: key, Version: "test",
		Log: log, Observer: w.Requests})
	j.Server = j.All[0]
	j.options = upstream.Options{Version: "test", Log: log, Hooks: upstream.Hooks{
		StateChanged:    func(upstream.Change) { j.changed() },
		ResourceUpdated: func(u upstream.Update) { j.Each(func(s *front.Server) { s.Streams().Updated(u) }) },
		CatalogChanged: func(string) {
			pace.Wake(j.refresh)
		},
		OwnChanged: func(string) {
			pace.Wake(j.recheck)
		},
	}, Store: w.Store, Observer: w.Calls, Memory: j.Server.UpstreamMemory}
	ctx, cancel := context.WithCancel(context.Background())
	var refreshing sync.WaitGroup
	refreshing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-j.refresh:
				j.Each((*front.Server).Refresh)
				j.changed()
			case <-j.recheck:
				j.Each((*front.Server).Recheck)
				j.changed()
			}
		}
	})
	j.Apply(w)
	j.URL = j.Listen() + "/mcp"
	t.Cleanup(func() {
		j.Each((*front.Server).Shutdown)
		j.Each((*front.Server).Kill)
		j.Close()
		j.Set.Close()
		cancel()
		refreshing.Wait()
	})
	return j
}

// startProcesses starts a junction of n processes.
func startProcesses(t *testing.T, p Pair, n int, w Setup) *Junction {
	t.Helper()
	c := clusters().take(t, n, w)
	t.Cleanup(func() { clusters().give(c) })
	j := &Junction{owner: process.OwnerOf(t), pair: p, URL: c.url, cluster: c}
	j.Apply(w)
	return j
}

// Shutdown shuts all members down.
func (j *Junction) Shutdown() {
	if j.cluster != nil {
		j.cluster.shutdown()
		return
	}
	j.Servers.Shutdown()
}

// Apply replaces the configuration, but for Limits.
func (j *Junction) Apply(w Setup) {
	w.Upstreams = owned(j.owner, w.Upstreams)
	if os.Getenv("JUNCTION_TEST_STATEFUL") != "" { // calls at the member that has the state
		w.Upstreams = maps.Clone(w.Upstreams)
		for name, c := range w.Upstreams {
			c.Stateful = new(true)
			w.Upstreams[name] = c
		}
	}
	if j.cluster != nil {
		j.cluster.log(w.Log)
		j.cluster.reload(w.sections(j.cluster))
		return
	}
	j.Set.Apply(w.Upstreams, j.options, func(us []*upstream.Upstream) {
		j.Each(func(s *front.Server) {
			s.Apply(scope.Config{Names: w.Names, Endpoints: w.Endpoints, FirstWait: w.FirstWait,
				Guard:  cmp.Or(w.Guard, &auth.Guard{}),
				Policy: cmp.Or(w.Policy, policy.Open())}, us)
		})
	})
}

// owned returns the upstreams with commands that belong to a test.
func owned(by *process.Owner, configs map[string]upstream.Config) map[string]upstream.Config {
	configs = maps.Clone(configs)
	for name, c := range configs {
		if c.Kind().Process {
			if c.Env = maps.Clone(c.Env); c.Env == nil {
				c.Env = map[string]string{}
			}
			key, value := by.Variable()
			c.Env[key] = value
			configs[name] = c
		}
	}
	return configs
}

func (j *Junction) changed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.more)
	j.more = make(chan struct{})
}

// Until waits until the condition holds, which is looked at whenever an upstream's state or catalog
// has changed.
func (j *Junction) Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if j.cluster != nil {
		await(t, what, holds)
		return
	}
	ctx := Patient(t)
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
			for _, u := range j.Set.All() {
				t.Logf("%+v", u.Status())
			}
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Offers waits until these upstreams are ready and their lists are offered.
func (j *Junction) Offers(t *testing.T, names ...string) {
	t.Helper()
	if j.cluster != nil {
		j.cluster.ready(names)
		return
	}
	j.Until(t, fmt.Sprintf("%q to be ready", names), func() bool {
		return !slices.ContainsFunc(names,
			func(name string) bool { return j.Status(name).State != upstream.StateReady })
	})
	j.Each((*front.Server).Refresh)
}

// Problems returns the items that the first process does not offer.
func (j *Junction) Problems() []view.Problem {
	if j.cluster != nil {
		return j.cluster.report().Problems
	}
	return j.Server.Snapshot().Problems()
}

// Status returns the status of an upstream in the first process; zero if there is none of this name.
func (j *Junction) Status(name string) upstream.Status {
	if j.cluster != nil {
		return j.cluster.status(name)
	}
	for _, u := range j.Set.All() {
		if u.Name() == name {
			return u.Status()
		}
	}
	return upstream.Status{}
}

// Talk returns a new client of the pair's era, of the merged endpoint.
func (j *Junction) Talk(t *testing.T) *Talker { t.Helper(); return Talk(t, j.URL, j.pair.Client) }

// TalkToEach returns a new client of the pair's era for each process, whose requests that process
// gets.
func (j *Junction) TalkToEach(t *testing.T) []*Talker {
	t.Helper()
	if j.cluster == nil {
		return []*Talker{j.Talk(t)}
	}
	var all []*Talker
	for _, p := range j.cluster.members {
		all = append(all, Talk(t, cmp.Or(p.own, p.URL), j.pair.Client))
	}
	return all
}

// TalkTo is Talk for the endpoint at a path below the merged one.
func (j *Junction) TalkTo(t *testing.T, path string) *Talker {
	t.Helper()
	return Talk(t, j.URL+path, j.pair.Client)
}

// Over starts a junction over one upstream called up, which serves the script.
func Over(t *testing.T, p Pair, script upstreamtest.Script, change func(*upstream.Config)) (*Served, *Junction) {
	t.Helper()
	s := p.Serve(t, script)
	if change != nil {
		change(&s.Config)
	}
	j := Start(t, p, Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
	j.Offers(t, "up")
	return s, j
}

// Exactly has the upstream hear what exactly the client of each call can do: roots, too.
func Exactly(c *upstream.Config) { c.Questions = upstream.QuestionsExact }

// Exact returns the configuration after Exactly.
func Exact(c upstream.Config) upstream.Config { Exactly(&c); return c }

// Unobserved is a front.Observer that observes nothing, for the observers of tests to embed.
type Unobserved struct{}

func (Unobserved) Begin(*proxy.CallInfo, raw.Object, map[string][]string) client.Trace { return nil }
func (Unobserved) End(*proxy.CallInfo, client.Trace)                                   {}
func (Unobserved) Refused(string, int, int64)                                          {}
func (Unobserved) Dropped(int, int)                                                    {}
func (Unobserved) Ignored(string)                                                      {}
func (Unobserved) Saved(client.Trace) string                                           { return "" }
func (Unobserved) Asked(proxy.Question) (t client.Trace, c client.TraceContext) {
	return t, c
}
func (Unobserved) Answered(proxy.Question, client.Trace, client.Received) {}
