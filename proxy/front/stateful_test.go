package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/stateful"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// stateMembers is a member that has all states, or none.
type stateMembers struct {
	elsewhereMembers
	mu     sync.Mutex
	owner  string
	lost   bool // the next answer of State
	asked  int
	freed  int
	send   error // of Send
	waited int
}

func (m *stateMembers) State(context.Context, [16]byte, string) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	lost := m.lost
	m.lost = false
	return m.owner, lost, nil
}

func (m *stateMembers) FreeState(context.Context, [16]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freed++
	return nil
}

func (m *stateMembers) Send(context.Context, *http.Request, string, []byte, string) (io.ReadCloser, error) {
	return nil, m.send
}

func (m *stateMembers) Await(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waited++
	return members.ErrUnreachable
}

// stateServer is a server with a state.
type stateServer struct {
	mu               sync.Mutex
	keeps            bool
	calls, discarded int
}

func (s *stateServer) Name() string { return "up" }

func (s *stateServer) Config() upstream.Config { return upstream.Config{} }

func (s *stateServer) Call(context.Context, *upstream.Call) (client.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.keeps = true
	return client.Result{}, nil
}

func (s *stateServer) Keeps(string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeps
}

func (s *stateServer) Discard(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded++
}

func (s *stateServer) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeps = false
}

// mustCallStateful makes a call, as the core does.
func mustCallStateful(t *testing.T, s *Server, up *stateServer) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", nil)
	x := &request{server: s, request: r}
	x.Grant = s.Grant(budget.Account{Principal: "ann"}, "")
	_, err := x.CallStateful(t.Context(), up, "principal ann", &upstream.Call{})
	return err
}

// TestStateEndsWithItsProcess: when the process of the server has ended, as after idle_stop, this process
// frees the state, and no longer remembers it. Before, it does not.
func TestStateEndsWithItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, up := &stateMembers{owner: "self"}, &stateServer{}
		s := serverWith(t, Options{Log: authtest.Log(t), Members: m}, proxytest.NewBackend(t, 1, 1))
		for range 3 {
			if err := mustCallStateful(t, s, up); err != nil {
				t.Fatal(err)
			}
		}
		pause := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		if pause(time.Hour); m.freed != 0 || len(s.states.of) != 1 {
			t.Errorf("a state is freed whose process lives")
		}
		up.end()
		if pause(lookEvery); m.freed != 1 || len(s.states.of) != 0 {
			t.Errorf("the state is freed %d times, and %d are remembered", m.freed, len(s.states.of))
		}
		if err := mustCallStateful(t, s, up); err != nil || up.calls != 4 || len(s.states.of) != 1 {
			t.Errorf("the next call: %v, %d calls", err, up.calls)
		}
		s.Shutdown()
		up.end()
		pause(lookEvery)
	})
}

// TestStateOfAnotherIdentity: a process that has lost its lease ends the processes with its states, because
// other members may have them now.
func TestStateOfAnotherIdentity(t *testing.T) {
	m, up := &stateMembers{owner: "self"}, &stateServer{}
	s := serverWith(t, Options{Log: authtest.Log(t), Members: m}, proxytest.NewBackend(t, 1, 1))
	if err := mustCallStateful(t, s, up); err != nil {
		t.Fatal(err)
	}
	if s.MemberChanged(); up.discarded != 1 || len(s.states.of) != 0 {
		t.Errorf("%d processes are ended, and %d states are remembered", up.discarded, len(s.states.of))
	}
}

// TestLostStateIsTold: the first call after the end of the member that had the state is not made, and its
// error says that the state is lost. The next call is made.
func TestLostStateIsTold(t *testing.T) {
	m, up := &stateMembers{owner: "self", lost: true}, &stateServer{}
	s := serverWith(t, Options{Log: authtest.Log(t), Members: m}, proxytest.NewBackend(t, 1, 1))
	ours, _ := errors.AsType[*upstream.Error](mustCallStateful(t, s, up))
	if ours == nil || ours.Kind != client.KindStateLost || up.calls != 0 {
		t.Errorf("the first call: %v, and %d calls are made", ours, up.calls)
	}
	if err := mustCallStateful(t, s, up); err != nil || up.calls != 1 {
		t.Errorf("the next call: %v, and %d calls are made", err, up.calls)
	}
}

// TestStoppingProcessGivesAStateUpOnce: a process that stops keeps a state with a call in flight, also for
// calls of other members. Then it gives the state up for good, for calls of its own clients, too.
func TestStoppingProcessGivesAStateUpOnce(t *testing.T) {
	up, key := &stateServer{}, stateKey("up", "")
	s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "self"}}, proxytest.NewBackend(t, 1, 1))
	var in [2]*state
	enter := func(i int, forwarded bool) (err error) {
		in[i], err = s.enter(t.Context(), key, up, "", forwarded)
		return err
	}
	if err := enter(0, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stateOwner(t.Context(), key, in[0], ""); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	if err := enter(1, true); err != nil {
		t.Fatalf("with a call in flight: %v", err)
	}
	s.leave(key, in[0])
	s.leave(key, in[1])
	for i, forwarded := range []bool{true, false} {
		if err := enter(i, forwarded); err != errReleased {
			t.Errorf("without a call in flight, forwarded %v: %v, want %v", forwarded, err, errReleased)
		}
	}
}

// holding is a backend with a state of each principal.
type holding struct {
	view.Backend
	principals *[]string
}

func (h holding) Holder(of upstream.Window) (string, bool) {
	*h.principals = append(*h.principals, of.Principal)
	return "principal " + of.Principal, true
}

// TestStateIsThatOfTheCredentials: a call of another member has the state of the user whose credentials
// came with it, whatever the message names.
func TestStateIsThatOfTheCredentials(t *testing.T) {
	var asked []string
	backend := holding{proxytest.NewBackend(t, 1, 1), &asked}
	s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "other"}})
	secret := auth.NewKey()
	hash, err := auth.HashKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	config := auth.Config{APIKeys: []auth.Key{{Name: "ann", Hash: hash}}}
	s.ApplyBackends(scope.Config{Guard: config.Guard(nil, "", nil), Policy: policy.Open()}, []view.Backend{backend})
	params, err := raw.Parse([]byte(`{"name":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	call := client.Call{Method: "tools/call", Session: "session of bob", Principal: "key:bob", Params: params}
	text, err := stateful.Of("id", backend.Name(),
		&upstream.Call{Call: call, Era: client.EraLegacy}).Text()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", bytes.NewReader(text))
	r.Header.Set(members.HeaderCall, sentCall)
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r.WithContext(members.WithForwarded(r.Context())))
	if w.Code != http.StatusMisdirectedRequest || !slices.Equal(asked, []string{"key:ann"}) {
		t.Errorf("the call is answered %d, and the state is that of %q, want key:ann", w.Code, asked)
	}
}

// sharing is a backend with a state that all callers share.
type sharing struct{ view.Backend }

func (sharing) Holder(upstream.Window) (string, bool) { return "", true }

// TestKeptStateIsNotReleased: a call of another member for a user who may not use the server here does not
// release the state that this process keeps, which others share. A state that it does not keep is released.
func TestKeptStateIsNotReleased(t *testing.T) {
	hidden, open := proxytest.NewBackend(t, 1, 1), proxytest.NewBackend(t, 1, 1)
	open.Named = "open"
	s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "self"}})
	rules := []policy.Rule{proxytest.Allow(policy.Selector{Upstreams: policy.List{"open"}})}
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{},
		Policy: proxytest.MustPolicy(t, policy.Config{{Name: "some", Rules: rules}})}, []view.Backend{sharing{hidden}, open})
	params, err := raw.Parse([]byte(`{"name":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := stateful.Of("id", hidden.Name(), &upstream.Call{Call: client.Call{Method: "tools/call", Params: params},
		Era: client.EraModern}).Text()
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (status int, released bool) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", bytes.NewReader(text))
		r.Header.Set(members.HeaderCall, sentCall)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r.WithContext(members.WithForwarded(r.Context())))
		return w.Code, w.Header().Get(members.HeaderReleased) != ""
	}
	if status, released := ask(); status != http.StatusMisdirectedRequest || !released {
		t.Errorf("without the state: answered %d, released %v", status, released)
	}
	key := stateKey(hidden.Name(), "")
	st, err := s.enter(t.Context(), key, &stateServer{}, "", false)
	if err == nil {
		_, err = s.stateOwner(t.Context(), key, st, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.discardStates()
	s.leave(key, st)
	if status, released := ask(); status != http.StatusForbidden || released {
		t.Errorf("with the state: answered %d, released %v", status, released)
	}
}

// TestStateOutOfReach: a call whose state is at a member that lives and cannot be reached is refused with
// 503, and not made here. The error of a call that was sent tells that it may have been executed.
func TestStateOutOfReach(t *testing.T) {
	for _, tt := range []struct {
		send   error
		kind   string // of the *upstream.Error; "" for a refusal
		waited int
	}{{members.ErrUnreachable, "", 0}, {members.ErrGone, "", 1}, {members.ErrAlone, "", 0}, {members.ErrRefused, "", 0},
		{errors.New("the connection broke"), "lost", 0}} {
		m, up := &stateMembers{owner: "other", send: tt.send}, &stateServer{}
		s := serverWith(t, Options{Log: authtest.Log(t), Members: m}, proxytest.NewBackend(t, 1, 1))
		err := mustCallStateful(t, s, up)
		e, reason := proxy.RPCError(err, "up")
		ours, _ := errors.AsType[*upstream.Error](err)
		switch {
		case tt.kind == "" && (ours != nil || reason != proxy.ReasonBusy || !strings.Contains(e.Message, "send the request again")),
			tt.kind != "" && (ours == nil || string(ours.Kind) != tt.kind || !strings.Contains(e.Message, "may have been executed")):
			t.Errorf("%v: answered %v", tt.send, e)
		}
		if up.calls != 0 || m.waited != tt.waited || len(s.states.of) != 0 {
			t.Errorf("%v: %d calls here, %d waits, %d states", tt.send, up.calls, m.waited, len(s.states.of))
		}
	}
}

// askingMembers has a member whose call asks a question, and never gets the answer.
type askingMembers struct {
	stateMembers
	sent int // answers
}

func (m *askingMembers) Send(ctx context.Context, _ *http.Request, message string, _ []byte, _ string) (io.ReadCloser, error) {
	if message != sentCall {
		m.sent++
		return nil, m.send
	}
	body, out := io.Pipe()
	asking, end := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	context.AfterFunc(ctx, func() { // the owner sees the end of the call after the caller
		body.CloseWithError(ctx.Err())
		end()
	})
	owner := stateful.NewOwner(out, func() {}, nil, nil)
	go func() {
		_, err := owner.Ask(asking, &client.ServerRequest{Method: "elicitation/create"})
		owner.Finish(client.Result{}, err, error.Error)
	}()
	return body, nil
}

// consenting is a client that answers each question.
type consenting struct{}

func (consenting) Notify(string, []byte) {}

func (consenting) Ask(context.Context, *client.ServerRequest) ([]byte, error) {
	return []byte(`{}`), nil
}

// TestAnswerThatTheOwnerDoesNotGet: a call whose answer cannot be sent to the owner of the state fails, and
// may have been executed. If the owner has refused the answer, it is not sent again, and the owner goes on.
func TestAnswerThatTheOwnerDoesNotGet(t *testing.T) {
	for _, tt := range []struct {
		send   error
		within time.Duration
		again  bool
	}{{members.ErrUnreachable, time.Minute, true}, {members.ErrRefused, time.Hour, false}} {
		synctest.Test(t, func(t *testing.T) {
			m := &askingMembers{stateMembers: stateMembers{owner: "other", send: tt.send}}
			s := serverWith(t, Options{Log: authtest.Log(t), Members: m}, proxytest.NewBackend(t, 1, 1))
			x := &request{server: s, request: httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", nil)}
			x.Grant = s.Grant(budget.Account{Principal: "ann"}, "")
			began := time.Now()
			_, err := x.CallStateful(t.Context(), &stateServer{}, "", &upstream.Call{Call: client.Call{Peer: consenting{}}})
			ours, _ := errors.AsType[*upstream.Error](err)
			took := time.Since(began)
			if ours == nil || (ours.Kind == client.KindLost) != tt.again || (m.sent > 1) != tt.again || took > tt.within {
				t.Errorf("%v: the call ends after %v with %v, and %d answers were sent", tt.send, took, err, m.sent)
			}
		})
	}
}

// TestMessageOfMembersNeedsACaller: the header of messages between members counts only on connections of
// members, and the message is refused without the credentials of a client.
func TestMessageOfMembersNeedsACaller(t *testing.T) {
	s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "self"}}, proxytest.NewBackend(t, 1, 1))
	ask := func(forwarded bool, message string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader("x"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(members.HeaderCall, message)
		if forwarded {
			r = r.WithContext(members.WithForwarded(r.Context()))
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for _, message := range []string{sentCall, sentAnswer + "id 1"} {
		if w := ask(false, message); !strings.Contains(w.Body.String(), "Parse error") {
			t.Errorf("%q of a client is answered %d %s, want the answer to a request", message, w.Code, w.Body)
		}
	}
	if w := ask(true, sentCall); w.Code != http.StatusBadRequest || w.Body.Len() != 0 {
		t.Errorf("a call that cannot be read is answered %d %s", w.Code, w.Body)
	}
	if w := ask(true, sentAnswer+"unknown 1"); w.Code != http.StatusNotFound {
		t.Errorf("the answer to an unknown call is answered %d", w.Code)
	}
	hash, err := auth.HashKey(auth.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	config := auth.Config{APIKeys: []auth.Key{{Name: "ann", Hash: hash}}}
	s.ApplyBackends(scope.Config{Guard: config.Guard(nil, "", nil), Policy: policy.Open()}, nil)
	if w := ask(true, sentCall); w.Code != http.StatusUnauthorized {
		t.Errorf("a call without the credentials of a client is answered %d", w.Code)
	}
}

// TestAnswersForACallCountForItsCaller: an answer that another member sends for a call is read only if the
// account of the caller has room for it. Otherwise its question ends at once, with the reason; lost
// progress ends nothing.
func TestAnswersForACallCountForItsCaller(t *testing.T) {
	s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "self"}}, proxytest.NewBackend(t, 1, 1))
	result := "r\x00\x00\x03\xe8" + strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		total int64
		text  string
		want  int
		ends  string // of the question
	}{
		"room":               {1 << 20, result, http.StatusNoContent, "xxx"},
		"no room":            {64, result, http.StatusServiceUnavailable, "no share of limits.bodies is left"},
		"no room, progress":  {64, "n" + result[1:], http.StatusServiceUnavailable, ""},
		"too large":          {1 << 40, "r" + strings.Repeat("x", int(s.limits.Body)), http.StatusRequestEntityTooLarge, "limits.body"},
		"the message breaks": {1 << 20, "r", http.StatusBadRequest, "the connection between two replicas broke"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b budget.Budget
				b.Init([budget.Quotas]int64{budget.Requests: 10, budget.Bytes: test.total}, authtest.Log(t))
				grant := b.Grant(budget.Account{Principal: "key:ann"}, "")
				if err := grant.Reserve(budget.Requests, 1); err != nil {
					t.Fatal(err)
				}
				owner := stateful.NewOwner(io.Discard, func() {}, nil, nil)
				s.states.calls = map[string]memberCall{"id": {owner, &grant}}
				ended := ""
				var asking sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				asking.Go(func() {
					answer, err := owner.Ask(ctx, &client.ServerRequest{Method: "elicitation/create"})
					if ctx.Err() == nil {
						ended = fmt.Sprint(string(answer), err)
					}
				})
				synctest.Wait()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(test.text))
				if len(test.text) == 1 {
					r.ContentLength = 100
				}
				r.Header.Set(members.HeaderCall, sentAnswer+"id 1")
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r.WithContext(members.WithForwarded(r.Context())))
				synctest.Wait()
				cancel()
				asking.Wait()
				if w.Code != test.want {
					t.Errorf("the answer to the member is %d, want %d", w.Code, test.want)
				}
				if !strings.Contains(ended, test.ends) || (ended == "") != (test.ends == "") {
					t.Errorf("the question ends with %.200q, want %q", ended, test.ends)
				}
				if held := b.Used()[budget.Bytes]; held != 0 {
					t.Errorf("%d bytes are held afterwards", held)
				}
			})
		})
	}
}

// queued is a backend with a state that all callers share, whose calls wait, and are then sent if their Guard
// permits them.
type queued struct {
	sharing
	waits chan struct{}
	goes  chan struct{}
	sent  *int
}

func (q queued) Call(_ context.Context, c *upstream.Call) (client.Result, error) {
	q.waits <- struct{}{}
	<-q.goes
	if c.Guard != nil { // as in package upstream
		if err := c.Guard.Still(); err != nil {
			return client.Result{}, err
		}
	}
	*q.sent++
	o, err := raw.Parse([]byte(`{}`))
	return client.Result{Object: o, Type: client.TypeComplete}, err
}

// TestCallOfAnotherMemberIsJudgedAgain: a call that another member has sent waits here for its server. It is not
// sent if meanwhile the key of the caller was revoked here, or this process's policies deny it, or demand an approval
// that it does not have.
func TestCallOfAnotherMemberIsJudgedAgain(t *testing.T) {
	secret := auth.NewKey()
	hash, err := auth.HashKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	ann := auth.Config{APIKeys: []auth.Key{{Name: "ann", Hash: hash}}}
	other := auth.Config{APIKeys: []auth.Key{{Name: "bob", Hash: auth.Hash{1}}}}
	rules := func(first ...policy.Rule) *policy.Policy {
		return proxytest.MustPolicy(t, policy.Config{{Name: "all",
			Rules: append(first, proxytest.Allow(policy.Selector{Upstreams: policy.List{"*"}}))}})
	}
	some := policy.Selector{Tools: policy.List{"*tool0"}, Where: policy.Where{"path": {{Glob: "/etc/*"}}}}
	for name, test := range map[string]struct {
		keys      auth.Config
		rules     *policy.Policy
		arguments string
		asked     bool
		refused   string // "" if the call is sent
	}{
		"nothing changes":       {ann, rules(), `{}`, false, ""},
		"the key is revoked":    {other, rules(), `{}`, false, "the key or the sign-in of the client is no longer valid"},
		"the tool is denied":    {ann, rules(policy.Rule{Deny: &policy.Selector{Tools: policy.List{"*tool0"}}}), `{}`, true, "Unknown tool: up__tool0"},
		"arguments are denied":  {ann, rules(policy.Rule{Deny: &some}), `{"path":"/etc/passwd"}`, false, "Unknown tool: up__tool0"},
		"others are denied":     {ann, rules(policy.Rule{Deny: &some}), `{"path":"/home"}`, false, ""},
		"an approval is needed": {ann, rules(policy.Rule{Ask: &policy.Selector{Tools: policy.List{"*tool0"}}}), `{}`, false, "needs an approval now"},
		"and was given":         {ann, rules(policy.Rule{Ask: &policy.Selector{Tools: policy.List{"*tool0"}}}), `{}`, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sent := 0
			backend := proxytest.NewBackend(t, 1, 1)
			backend.Named = "up"
			q := queued{sharing{backend}, make(chan struct{}), make(chan struct{}), &sent}
			s := serverWith(t, Options{Log: authtest.Log(t), Members: &stateMembers{owner: "self"}})
			s.ApplyBackends(scope.Config{Guard: ann.Guard(nil, "", nil), Policy: rules()}, []view.Backend{q})
			defer s.discardStates()
			params, err := raw.Parse([]byte(`{"name":"tool0","arguments":` + test.arguments + `}`))
			if err != nil {
				t.Fatal(err)
			}
			message := stateful.Of("id", "up", &upstream.Call{Call: client.Call{Method: "tools/call", Params: params},
				Era: client.EraModern})
			message.Item = policy.Item{Kind: policy.Tool, Upstream: "up", Names: []string{"up__tool0"}}
			message.Asked, message.Exposed = test.asked, "up__tool0"
			text, err := message.Text()
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", bytes.NewReader(text))
			r.Header.Set(members.HeaderCall, sentCall)
			r.Header.Set("Authorization", "Bearer "+secret)
			w := httptest.NewRecorder()
			var answering sync.WaitGroup
			answering.Go(func() { s.ServeHTTP(w, r.WithContext(members.WithForwarded(r.Context()))) })
			<-q.waits
			s.ApplyBackends(scope.Config{Guard: test.keys.Guard(nil, "", nil), Policy: test.rules}, []view.Backend{q})
			close(q.goes)
			answering.Wait()
			_, err = stateful.Read(t.Context(), func() {}, io.NopCloser(w.Body), "up",
				&upstream.Call{Call: client.Call{Peer: nil}}, nil, nil)
			if (err == nil) != (test.refused == "") || (sent == 1) != (err == nil) ||
				err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%d calls were sent, and the other member is answered %v; want %q", sent, err, test.refused)
			}
		})
	}
}
