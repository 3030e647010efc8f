package front

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/proxytest"
	"junction/upstream/client"
)

// elsewhereMembers has every session at another member, which answers at once.
type elsewhereMembers struct{}

func (elsewhereMembers) Self() string { return "self" }

func (elsewhereMembers) Last() string { return "self" }

func (elsewhereMembers) Deliver(http.ResponseWriter, *http.Request, []byte) error {
	return members.ErrUnreachable
}
func (elsewhereMembers) Owner(context.Context, [16]byte, string, string, time.Time) (string, error) {
	return "other", nil
}
func (elsewhereMembers) Ended(context.Context, string) (bool, error) { return false, nil }
func (elsewhereMembers) Foreign(string, time.Time) bool              { return false }
func (elsewhereMembers) Await(context.Context, string) error         { return members.ErrUnreachable }
func (elsewhereMembers) Forward(w http.ResponseWriter, _ *http.Request, _ []byte, _ string) error {
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(make([]byte, 100))
	return err
}
func (elsewhereMembers) State(context.Context, [16]byte, string) (string, bool, error) {
	return "self", false, nil
}
func (elsewhereMembers) FreeState(context.Context, [16]byte) error { return nil }
func (elsewhereMembers) Send(context.Context, *http.Request, string, []byte, string) (io.ReadCloser, error) {
	return nil, members.ErrUnreachable
}
func (elsewhereMembers) DeleteSession(context.Context, [16]byte, time.Time) error { return nil }
func (elsewhereMembers) Once(context.Context, string, time.Time) (bool, error)    { return true, nil }
func (elsewhereMembers) Enter(context.Context, string, policy.Limits, bool) (func(), time.Duration, error) {
	return func() {}, 0, nil
}

var _ members.Members = elsewhereMembers{}

// BenchmarkForward is what a member does for a request before and after the connection to the owner:
// to authenticate it, and to open the ID of its session.
func BenchmarkForward(b *testing.B) {
	s := serverWith(b, Options{Log: authtest.Log(b), Members: elsewhereMembers{}}, proxytest.NewBackend(b, 10, 100))
	id, _ := s.sessions.create("2025-11-25", "bench", budget.Account{Principal: "local"}, client.Profile{})
	s.sessions.mu.Lock()
	s.sessions.drop(s.sessions.byID[id])
	s.sessions.mu.Unlock()
	b.Run("request", func(b *testing.B) {
		repeat(b, s, http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {"2025-11-25"}}, `{}`)
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.sessions.open(id, budget.Account{Principal: "local"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// leavingMembers is a member for the next calls of Self.
type leavingMembers struct {
	elsewhereMembers
	next *int
}

func (l leavingMembers) Self() string {
	if *l.next--; *l.next < 0 {
		return ""
	}
	return "this"
}

// TestInitializeWhileTheLeaseEnds: a process that loses its lease, at whatever moment of initialize,
// has no session to give, and says so.
func TestInitializeWhileTheLeaseEnds(t *testing.T) {
	l := leavingMembers{next: new(int)}
	s := serverWith(t, Options{Log: authtest.Log(t), Members: l}, proxytest.NewBackend(t, 1, 1))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", nil)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for next := 0; ; next++ {
		*l.next = next
		w := httptest.NewRecorder()
		r.Body = io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` +
			`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
		s.ServeHTTP(w, r)
		body := w.Body.String()
		if *l.next >= 0 {
			if w.Code != http.StatusOK || next < 3 {
				t.Errorf("with a lease: %d, %s, after %d questions", w.Code, body, next)
			}
			return
		}
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(body, "no connection to the others") {
			t.Errorf("the lease ends after %d questions: %d, %s", next, w.Code, body)
		}
	}
}

// TestSessionThatHasJustMoved: while a process stops, two requests for a session can be on their way to it. When the
// first one has moved the session, the second one is sent back to the process that has forwarded it. A process that
// goes on refuses a forwarded request for a session of another one.
func TestSessionThatHasJustMoved(t *testing.T) {
	s := serverWith(t, Options{Log: authtest.Log(t), Members: elsewhereMembers{}}, proxytest.NewBackend(t, 1, 10))
	id, _ := s.sessions.create("2025-11-25", "test", budget.Account{Principal: "local"}, client.Profile{})
	s.sessions.mu.Lock()
	s.sessions.drop(s.sessions.byID[id])
	s.sessions.mu.Unlock()
	ask := func() *httptest.ResponseRecorder {
		const body = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		r := httptest.NewRequestWithContext(members.WithForwarded(t.Context()), http.MethodPost, "/mcp", strings.NewReader(body))
		r.Host, r.RemoteAddr = "127.0.0.1:8420", "127.0.0.1:1"
		r.Header = http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {"2025-11-25"},
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || w.Header().Get(members.HeaderReleased) != "" {
		t.Errorf("a process that goes on answers %d %v %s", w.Code, w.Header(), w.Body)
	}
	s.Shutdown()
	if w := ask(); w.Header().Get(members.HeaderReleased) == "" {
		t.Errorf("a process that stops answers %d %v %s, without %s", w.Code, w.Header(), w.Body, members.HeaderReleased)
	}
}
