package front

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// gated is a backend whose tool0 answers when the gate opens; the others answer at once.
type gated struct {
	*proxytest.Backend
	gate chan struct{}
}

func (g *gated) Call(ctx context.Context, c *upstream.Call) (client.Result, error) {
	if c.Name == "tool0" {
		select {
		case <-g.gate:
		case <-ctx.Done():
			return client.Result{}, context.Cause(ctx)
		}
	}
	return g.Backend.Call(ctx, c)
}

// town is a server with principals, in a bubble: the clients are user0, user1 and so on.
type town struct {
	*Server
	t    *testing.T
	gate chan struct{}
	log  *bytes.Buffer
	key  *seal.Key
}

// newTown makes one; size is of an answer.
func newTown(t *testing.T, limits proxy.Limits, size int, guard *auth.Guard, change func(*scope.Config)) *town {
	t.Helper()
	return newTownWith(t, Options{Log: authtest.Log(t), Limits: limits}, size, guard, change)
}

// newTownWith makes one with options, which need no key.
func newTownWith(t *testing.T, o Options, size int, guard *auth.Guard, change func(*scope.Config)) *town {
	t.Helper()
	if o.Key == nil {
		key, err := seal.NewKey(seal.NewSecret())
		if err != nil {
			t.Fatal(err)
		}
		o.Key = key
	}
	w := &town{t: t, gate: make(chan struct{}), log: &bytes.Buffer{}}
	w.key = o.Key
	o.Version, o.Log = "test", authtest.Log(t, w.log) // which a test can read, too
	w.Server = New(o)
	c := scope.Config{Guard: guard, Policy: policy.Open()}
	if guard == nil {
		c.Guard = &auth.Guard{Verifier: newMany(20), Log: authtest.Log(t)}
	}
	if change != nil {
		change(&c)
	}
	w.ApplyBackends(c, []view.Backend{&gated{proxytest.NewBackend(t, 2, size), w.gate}})
	return w
}

// visitor is a client of a town.
type visitor struct {
	*town
	era    client.Era
	header http.Header
}

// visitor connects a client: who is a user, or a User-Agent where there is no authentication.
func (w *town) visitor(era client.Era, who string) *visitor {
	w.t.Helper()
	v := &visitor{w, era, http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}}
	if w.Snapshot().Open() {
		v.header.Set("User-Agent", who)
	} else {
		v.header.Set("Authorization", "Bearer token"+who)
	}
	if era == client.EraLegacy {
		v.begin(mcp.ProtocolVersion20251125)
	}
	return v
}

// begin opens a legacy session.
func (v *visitor) begin(version string) {
	v.t.Helper()
	a := v.post(v.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
	v.header.Set("Mcp-Session-Id", a.Header().Get("Mcp-Session-Id"))
	v.header.Set("Mcp-Protocol-Version", version)
}

// post sends a message; the header is added to that of the client.
func (v *visitor) post(ctx context.Context, body string, header http.Header) *httptest.ResponseRecorder {
	return v.send(ctx, http.MethodPost, body, header)
}

func (v *visitor) send(ctx context.Context, verb, body string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, verb, "http://127.0.0.1/mcp", strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1000"
	r.Header = v.header.Clone()
	for name, values := range header {
		r.Header[name] = values
	}
	a := httptest.NewRecorder()
	v.ServeHTTP(a, r)
	return a
}

// requestID returns one that no other request has.
func requestID() string { return strconv.FormatUint(rand.Uint64()>>12, 10) }

// ask sends a request of a method; params are members.
func (v *visitor) ask(ctx context.Context, method, params string) *httptest.ResponseRecorder {
	header := http.Header{}
	if v.era == client.EraModern {
		name := ""
		if i := strings.Index(params, `"name":"`); i >= 0 {
			name, _, _ = strings.Cut(params[i+8:], `"`)
		}
		header = modernHeader(method, name)
		if params != "" {
			params += ","
		}
		params += modernMeta
	}
	return v.post(ctx, `{"jsonrpc":"2.0","id":`+requestID()+`,"method":"`+method+`","params":{`+params+`}}`, header)
}

// call calls tool0, which waits for the gate, or another tool.
func (v *visitor) call(ctx context.Context, tool int) *httptest.ResponseRecorder {
	return v.ask(ctx, "tools/call", fmt.Sprintf(`"name":"up__tool%d","arguments":{}`, tool))
}

// listen opens a stream, which ends with ctx.
func (v *visitor) listen(ctx context.Context) *httptest.ResponseRecorder {
	if v.era == client.EraLegacy {
		return v.send(ctx, http.MethodGet, "", http.Header{"Accept": {"text/event-stream"}})
	}
	return v.ask(ctx, "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
}

// several makes n requests at once, and returns the answers that are there when all has come to
// rest, and those that come later.
func several(n int, request func() *httptest.ResponseRecorder) (now []*httptest.ResponseRecorder, later func() []*httptest.ResponseRecorder) {
	answers := make(chan *httptest.ResponseRecorder, n)
	for range n {
		go func() { answers <- request() }()
		synctest.Wait()
	}
	for range len(answers) {
		now = append(now, <-answers)
	}
	left := n - len(now)
	return now, func() (all []*httptest.ResponseRecorder) {
		for range left {
			all = append(all, <-answers)
		}
		return all
	}
}

// refused checks that an answer refuses a request for a limit.
func refused(t *testing.T, a *httptest.ResponseRecorder, status int, limit string) {
	t.Helper()
	if a.Code != status || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), limit) || !strings.Contains(a.Body.String(), `"error"`) {
		t.Errorf("the answer is %d, Retry-After %q, %s; want %d, an error that names %s, and when to try again", a.Code, a.Header().Get("Retry-After"), a.Body, status, limit)
	}
}

// succeeded checks that an answer has a result.
func succeeded(t *testing.T, what string, a *httptest.ResponseRecorder) {
	t.Helper()
	if a.Code != http.StatusOK || !strings.Contains(a.Body.String(), `"result"`) {
		t.Errorf("%s is answered %d %.300s, want a result", what, a.Code, a.Body)
	}
}

// eachFairEra runs a test in a bubble, in either era.
func eachFairEra(t *testing.T, f func(t *testing.T, era client.Era)) {
	for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
		t.Run(string(era), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, era) }) })
	}
}

// unused checks that nothing of the budget is used at the end.
func (w *town) unused() {
	w.t.Helper()
	time.Sleep(2 * recordKept)
	synctest.Wait() // events that a client could come back for
	if w.Used() != [budget.Quotas]int64{} {
		w.t.Errorf("%v is in use when all requests are over, want nothing", w.Used())
	}
}
