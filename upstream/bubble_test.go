package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

// rig is an upstream in a bubble, and its server.
type rig struct {
	*Upstream
	*upstreamtest.Cable
	server *upstreamtest.Server
	conns  *transport.Pool
	t      *testing.T

	hear     sync.Mutex
	states   []string
	catalogs int // changes
}

// newRig starts an upstream that speaks Streamable HTTP with the script. Everything ends with the
// bubble, which fails when a goroutine is left.
func newRig(t *testing.T, script upstreamtest.Script, c Config, change ...func(*Options)) *rig {
	return newRigBehind(t, func(s *upstreamtest.Server) http.Handler { return s.Handler() }, script, c, change...)
}

// newRigBehind is newRig with something in front of the server.
func newRigBehind(t *testing.T, front func(*upstreamtest.Server) http.Handler, script upstreamtest.Script, c Config, change ...func(*Options)) *rig {
	return newRigOf(t, "", front, script, c, change...)
}

// newRigOf is newRigBehind for an upstream that belongs to one user; "" is none.
func newRigOf(t *testing.T, user string, front func(*upstreamtest.Server) http.Handler, script upstreamtest.Script, c Config, change ...func(*Options)) *rig {
	r := &rig{server: upstreamtest.New(script), t: t}
	t.Cleanup(r.server.Close)
	r.Cable, r.conns = upstreamtest.NewCable(t, front(r.server))
	c.URL = "http://server/mcp"
	o := Options{Version: "0", Log: authtest.Log(t), Hooks: Hooks{
		StateChanged: func(c Change) {
			r.hear.Lock()
			defer r.hear.Unlock()
			r.states = append(r.states, c.State.String())
		},
		CatalogChanged: func(string) {
			r.hear.Lock()
			defer r.hear.Unlock()
			r.catalogs++
		},
	}}
	for _, f := range change {
		f(&o)
	}
	r.Upstream = startOverFor(user, r.conns, c, o)
	t.Cleanup(r.Upstream.Close)
	return r
}

// startOver is Start over a pool.
func startOver(rt *transport.Pool, c Config, o Options) *Upstream { return startOverFor("", rt, c, o) }

// startOverFor is startOver for a user.
func startOverFor(user string, rt *transport.Pool, c Config, o Options) *Upstream {
	o = o.withDefaults()
	config := c.withDefaults(o.Defaults).connConfig()
	p := &pool{name: "up", user: user, connConfig: config, options: o, log: o.Log, links: map[linkKey]*link{}, subs: map[linkKey]*subscriptions{}, met: make(chan struct{})}
	stored := p.lists.begin(p, &Catalog{})
	p.status = Status{Name: p.name, Since: time.Now()}
	dialing := p.dialOptions()
	dialing.Pool = rt
	p.dialer = client.NewDialer(dialing)
	p.expect(stored)
	p.mu.Lock()
	p.links[p.reading()] = startLink(p, p.reading(), true, waiter{})
	p.mu.Unlock()
	return newUpstream(c.resolve(o.Defaults), p)
}

// heard returns the states since it was last called, once everything has come to rest.
func (r *rig) heard() string {
	r.t.Helper()
	synctest.Wait()
	r.hear.Lock()
	defer r.hear.Unlock()
	s := strings.Join(r.states, " ")
	r.states = nil
	return s
}

func (r *rig) mustHear(want string) {
	r.t.Helper()
	if got := r.heard(); got != want {
		r.t.Errorf("the listener heard %q, want %q", got, want)
	}
}

// settle lets time pass.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// count returns how many messages of a method the server received.
func (r *rig) count(method string) int {
	n := 0
	for _, m := range r.server.Methods() {
		if m == method {
			n++
		}
	}
	return n
}

// toolCall is a call of a behaviour of the test server's; args are a JSON object.
func toolCall(name, args string, change ...func(*Call)) *Call {
	params, err := raw.Parse(fmt.Appendf(nil, `{"name":"x","arguments":%s}`, args))
	if err != nil {
		panic(err)
	}
	// so that it shares the link that reads the catalog
	c := &Call{Call: client.Call{Method: "tools/call", Name: name, Params: params, Profile: client.Everything()}}
	for _, f := range change {
		f(c)
	}
	return c
}

func session(id string) func(*Call) { return func(c *Call) { c.Session = id } }

// result is what a call came to.
type result struct {
	text string
	err  error
	took time.Duration
}

// begun makes a call on a goroutine of its own.
func begun(u *Upstream, c *Call) <-chan result {
	done := make(chan result, 1)
	start := time.Now()
	go func() {
		answer, err := u.Call(context.Background(), c)
		done <- result{string(answer.Text()), err, time.Since(start)}
	}()
	return done
}

func mustCall(t *testing.T, u *Upstream, c *Call) string {
	t.Helper()
	r := <-begun(u, c)
	if r.err != nil {
		t.Fatalf("Call(%s) = %v", c.Name, r.err)
	}
	return r.text
}

// mustFail checks which kind of failure a call ended with, and returns its text.
func mustFail(t *testing.T, r result, want client.Kind) string {
	t.Helper()
	var e *Error
	if !errors.As(r.err, &e) {
		t.Fatalf("Call = %s, %v; want an *Error", r.text, r.err)
	}
	if e.Kind != want {
		t.Errorf("Call = %v of kind %q, want %q", r.err, e.Kind, want)
	}
	return e.Error()
}

// mustRefuse checks that the server's own error came through.
func mustRefuse(t *testing.T, r result, want int) {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(r.err, &e) || int(e.Code) != want {
		t.Errorf("Call = %s, %v; want the server's error %d", r.text, r.err, want)
	}
}

// sessionOf is the connection that a result of the tool whoami came over.
func sessionOf(t *testing.T, u *Upstream, change ...func(*Call)) string {
	t.Helper()
	var who struct{ StructuredContent struct{ Session string } }
	if err := json.Unmarshal([]byte(mustCall(t, u, toolCall("whoami", `{}`, change...))), &who); err != nil {
		t.Fatal(err)
	}
	return who.StructuredContent.Session
}

func tools(names ...string) []json.RawMessage {
	var list []json.RawMessage
	for _, name := range names {
		list = append(list, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	return list
}
