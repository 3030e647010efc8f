package front

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// as sends a body as a principal of that name.
func (s *Server) as(name string, body io.Reader, length int64, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mcp", body)
	r.ContentLength = length
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	world := s.Snapshot()
	p := &auth.Principal{Kind: auth.KindKey, ID: name, Key: name}
	e := world.EndpointFor("", p)
	w := httptest.NewRecorder()
	s.postAs(w, r, scope.Caller{Snapshot: world, Endpoint: e, Principal: p, Subject: world.SubjectViewFor(e, p)})
	return w
}

// allocated returns how many bytes of memory f takes from the heap, whether they are freed or not.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// largeBody is the largest body by default.
const largeBody = 16 << 20

// TestSmallMembersTakeLittleMemory sends bodies of the full size that have as many members as
// possible. A body itself takes up to 24 MiB while it grows.
func TestSmallMembersTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it reads large bodies, one after the other")
	}
	s := mustServer(t, proxytest.NewBackend(t, 1, 10))
	id, _ := s.sessions.create(mcp.ProtocolVersion20250326, "test", budget.Account{Principal: "key:many"}, client.Profile{})
	fill := func(before, member, after string) string {
		n := (largeBody - len(before) - len(member) - len(after)) / (len(member) + 1)
		return before + strings.Repeat(member+",", n) + member + after
	}
	for _, test := range []struct {
		name, body string
		code       int
	}{
		{"a batch", fill(`[`, `0`, `]`), http.StatusBadRequest},
		{"an envelope", fill(`{"jsonrpc":"2.0","id":1,"method":"ping",`, `"":0`, `}`), http.StatusBadRequest},
		{"params", fill(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{`, `"":0`, `}}`), http.StatusBadRequest},
		{"the _meta of params", fill(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{`, `"":0`, `}}}`), http.StatusBadRequest},
		{"a result", fill(`{"jsonrpc":"2.0","id":1,"result":{`, `"":0`, `}}`), http.StatusBadRequest},
		{"an error", fill(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m",`, `"":0`, `}}`), http.StatusBadRequest},
		{"arguments", fill(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool0","arguments":{`, `"":0`, `}}}`), http.StatusOK},
	} {
		var w *httptest.ResponseRecorder
		got := allocated(func() {
			w = s.as("key:many", strings.NewReader(test.body), int64(len(test.body)), "Mcp-Session-Id", id, "Mcp-Protocol-Version", mcp.ProtocolVersion20250326)
		})
		t.Logf("%d bytes with many members in %s take %d MiB", len(test.body), test.name, got>>20)
		if w.Code != test.code || got > 48<<20 {
			t.Errorf("%d bytes with many members in %s take %d MiB and are answered %d %.200s, want at most 48 MiB and %d", len(test.body), test.name, got>>20, w.Code, w.Body, test.code)
		}
	}
}

// TestPolicyReadsBoundedArguments has a rule look into arguments of many members, which no rule
// would look into otherwise.
func TestPolicyReadsBoundedArguments(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it reads large bodies, one after the other")
	}
	s := mustServer(t, proxytest.NewBackend(t, 1, 10))
	all := policy.List{"*"}
	p, err := policy.Compile(policy.Config{{Name: "all", Rules: []policy.Rule{
		{Deny: &policy.Selector{Where: policy.Where{"/a/*/b": {{Glob: "x"}}}}}, {Allow: &policy.Selector{Upstreams: all}}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: p}, []view.Backend{proxytest.NewBackend(t, 1, 10)})
	id, _ := s.sessions.create(mcp.ProtocolVersion20250326, "test", budget.Account{Principal: "key:many"}, client.Profile{})
	for _, arguments := range []string{
		`{` + strings.Repeat(`"":0,`, 3_000_000) + `"a":0}`, `{"a":[` + strings.Repeat("0,", 7_000_000) + `0]}`, `{"a":[{` + strings.Repeat(`"":0,`, 3_000_000) + `"":0}]}`,
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool0","arguments":` + arguments + `}}`
		var w *httptest.ResponseRecorder
		got := allocated(func() {
			w = s.as("key:many", strings.NewReader(body), int64(len(body)), "Mcp-Session-Id", id, "Mcp-Protocol-Version", mcp.ProtocolVersion20250326)
		})
		if !strings.Contains(w.Body.String(), raw.ErrMany.Error()) || got > 48<<20 {
			t.Errorf("arguments %.20s… take %d MiB and are answered %.200s, want %q in at most 48 MiB", arguments, got>>20, w.Body, raw.ErrMany)
		}
	}
}

// stalled is a body of which some arrives, and the rest never.
type stalled struct {
	sent int
	gone chan struct{}
}

func (b *stalled) Read(p []byte) (int, error) {
	if b.sent == 0 {
		<-b.gone
		return 0, io.ErrUnexpectedEOF
	}
	n := min(len(p), b.sent)
	b.sent -= n
	return n, nil
}

// TestStalledBodiesTakeTheShare has one key send 100 bodies that stall after 6 of 16 MiB. They get half
// of limits.bodies, and another key sends its largest body meanwhile.
func TestStalledBodiesTakeTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustServer(t)
		gone := make(chan struct{})
		answers := make(chan *httptest.ResponseRecorder, 100)
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 100 {
			go func() { answers <- s.as("key:many", &stalled{6 << 20, gone}, largeBody) }()
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&during)
		refused := len(answers)
		for range refused {
			if w := <-answers; w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "limits.bodies") {
				t.Errorf("a body that gets no share is answered %d %v %s, want 429, limits.bodies, and when to try again", w.Code, w.Header(), w.Body)
			}
		}
		held := int64(during.HeapInuse) - int64(before.HeapInuse)
		t.Logf("100 stalled bodies take %d MiB; %d of them were refused", held>>20, refused)
		if limit := int64(s.limits.Bodies) / 2; held > limit+16<<20 {
			t.Errorf("100 stalled bodies take %d MiB, want %d at most", held>>20, limit>>20)
		}
		ping := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"pad":"%s",%s}}`, strings.Repeat("x", largeBody-1000), modernMeta)
		if w := s.as("key:other", strings.NewReader(ping), int64(len(ping)), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover"); w.Code != http.StatusOK {
			t.Errorf("another key's body of %d bytes is answered %d %.200s, want 200", len(ping), w.Code, w.Body)
		}
		close(gone)
		for range 100 - refused {
			<-answers
		}
		if s.Used() != [budget.Quotas]int64{} {
			t.Errorf("%v is in use when all requests are over, want nothing", s.Used())
		}
	})
}
