package upstream

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
)

// nobodySignedIn has no token for any user, and records the users it was asked for.
type nobodySignedIn struct {
	mu    sync.Mutex
	asked []string
}

func (n *nobodySignedIn) Apply(_ context.Context, c Caller, _ ...string) (Credential, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, c.Upstream+" for "+c.User)
	return Credential{}, &SignInError{Upstream: c.Upstream, Mode: c.Mode, URL: "https://us/" + c.User}
}

// anyMode lets a subject have each mode.
func anyMode(AuthMode) bool { return true }

// TestNothingStartsForWhoMayNotHaveTheMode: a caller such as an API key, who cannot have a credential of the
// mode, has no upstream of their own, and no source is asked for one.
func TestNothingStartsForWhoMayNotHaveTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		credentials := &nobodySignedIn{}
		mode := SignInMode(OwnerSubject)
		var s Set
		defer s.Close()
		s.Apply(map[string]Config{"linear": {URL: "http://127.0.0.1:1/mcp", Auth: Auth{Mode: mode}}},
			Options{Credentials: credentials, Log: authtest.Log(t)}, nil)
		if list := s.Of("key:ci", func(m AuthMode) bool { return m != mode }); len(list) > 0 {
			t.Errorf("the key has %d upstreams", len(list))
		}
		synctest.Wait()
		if len(credentials.asked) > 0 || len(s.people.byUser) > 0 {
			t.Errorf("credentials were asked for %q, by %d callers", credentials.asked, len(s.people.byUser))
		}
	})
}

// TestPeopleHaveTheirOwn goes through the life of what people sign in to: each has one of their
// own, which waits for them, rests, and ends with the Set.
func TestPeopleHaveTheirOwn(t *testing.T) {
	credentials := &nobodySignedIn{}
	config := Config{URL: "http://127.0.0.1:1/mcp", Auth: Auth{Mode: AuthOAuthUser}}
	changed := make(chan string, 100)
	options := Options{Credentials: credentials, Log: authtest.Log(t), Hooks: Hooks{
		OwnChanged:     func(name string) { changed <- name },
		CatalogChanged: func(name string) { t.Errorf("the catalog of %s is told to everybody", name) },
		StateChanged:   func(c Change) { t.Errorf("everybody is told that %s is %s", c.Name, c.State) },
	}}
	var s Set
	defer s.Close()
	if list := s.Of("ann", anyMode); len(list) > 0 {
		t.Errorf("before there is anything she has %d", len(list))
	}
	if shared := s.Apply(map[string]Config{"linear": config, "jira": config}, options, func([]*Upstream) { s.Of("ann", anyMode) }); len(shared) > 0 {
		t.Errorf("%d are everybody's", len(shared))
	}
	hers, his := s.Of("ann", anyMode), s.Of("bob", anyMode)
	if len(hers) != 2 || hers[0].Name() != "jira" || hers[1].Name() != "linear" || hers[0] == his[0] || !slices.Equal(hers, s.Of("ann", anyMode)) {
		t.Fatalf("she has %v, he %v", hers, his)
	}
	for _, u := range append(slices.Clone(hers), his...) {
		u.Meet(t.Context())
		if err, is := u.SignedIn(t.Context()).(*SignInError); !is || err.Upstream != u.Name() || !u.Catalog().SignIn {
			t.Errorf("%s: %v, and its catalog is %+v", u.Name(), err, u.Catalog())
		}
	}
	if _, err := hers[1].Call(t.Context(), &Call{Call: client.Call{Method: "tools/call", Name: "x"}}); !signIn(err) {
		t.Errorf("Call = %v", err)
	}
	<-changed
	// A new sign-in of hers makes another one in place of hers alone; a configuration that says the
	// same leaves all as they are.
	s.Renew("ann", "linear")
	s.Renew("cid", "linear")
	s.Apply(map[string]Config{"linear": config, "jira": config}, options, nil)
	if now := s.Of("ann", anyMode); now[0] != hers[0] || now[1] == hers[1] || !slices.Equal(his, s.Of("bob", anyMode)) {
		t.Errorf("then she has %v, he %v", now, s.Of("bob", anyMode))
	}
	// What is taken out of the file is gone, and what is not asked for rests.
	s.Apply(map[string]Config{"linear": config}, options, nil)
	if now := s.Of("bob", anyMode); len(now) != 1 || now[0] != his[1] {
		t.Errorf("without the other he has %v", now)
	}
	ann := s.Of("ann", anyMode)[0]
	his[1].degraded.Add(2)
	ann.degraded.Add(1)
	if n := s.Degraded(); len(n) != 1 || n["linear"] != 3 {
		t.Errorf("the degraded connections are %v, want three of linear", n)
	}
	his[1].degraded.Add(-2)
	ann.degraded.Add(-1)
	s.Rest(time.Hour)
	if now := s.Of("bob", anyMode); now[0] != his[1] {
		t.Error("it rests though it is in use")
	}
	s.Rest(0)
	if now := s.Of("bob", anyMode); now[0] == his[1] {
		t.Error("it does not rest")
	}
	s.Close()
	if list := s.Of("ann", anyMode); len(list) > 0 {
		t.Errorf("after the end she has %d", len(list))
	}
	credentials.mu.Lock()
	defer credentials.mu.Unlock()
	for _, asked := range credentials.asked {
		if !slices.Contains([]string{"linear for ann", "jira for ann", "linear for bob", "jira for bob"}, asked) {
			t.Errorf("it was asked for %s", asked)
		}
	}
}

// TestCallInProgressKeepsItsUpstream: the time without requests begins when the last call has ended,
// however long the call takes.
func TestCallInProgressKeepsItsUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Timeout: time.Hour, MaxTimeout: time.Hour})
		synctest.Wait()
		s := Set{closing: t.Context()}
		s.people.byUser = map[string]*userUpstreams{"ann": {running: map[string]*Upstream{"up": r.Upstream}, used: time.Now()}}
		call := begun(r.Upstream, toolCall("gate", `{"gate":"g"}`))
		settle(20 * time.Minute)
		s.Rest(0)
		settle(retireGrace + time.Second)
		select {
		case ended := <-call:
			t.Errorf("the call ended with %v", ended.err)
		default:
			r.server.Release("g")
			if ended := <-call; ended.err != nil {
				t.Errorf("the call failed: %v", ended.err)
			}
		}
		settle(10 * time.Minute)
		s.Rest(15 * time.Minute)
		if len(s.people.byUser) != 1 {
			t.Error("the upstream rests ten minutes after a call")
		}
		settle(5 * time.Minute)
		s.Rest(15 * time.Minute)
		s.retiring.Wait()
		if len(s.people.byUser) != 0 {
			t.Error("the upstream does not rest")
		}
	})
}
