package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
)

// TestForeignOwnCatalogGoesWithItsConnection: the catalog of one user's connection is theirs alone,
// and ends with the connection.
func TestForeignOwnCatalogGoesWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationPrincipal}, func(o *Options) { o.Refresh = time.Hour })
		synctest.Wait()
		mustCall(t, r.Upstream, toolCall("echo", `{}`, user("one")))
		settle(time.Minute) // it has listed once more by then, since it listens
		own := &Catalog{Era: client.EraLegacy, Listed: time.Now()}
		r.mu.Lock()
		r.publishOwn(r.key(client.Profile{}, "", "one", false), own)
		r.mu.Unlock()
		if r.CatalogFor(client.Profile{}, "", "one") != own || r.CatalogFor(client.Profile{}, "", "two") != r.Catalog() {
			t.Error("the catalog of one user is not theirs alone")
		}
		settle(ownIdle + time.Minute)
		if r.CatalogFor(client.Profile{}, "", "one") != r.Catalog() {
			t.Error("the catalog has outlived its connection")
		}
	})
}

// TestSessionsWithRootsGetTheirListAtOnce: a server may offer more tools to a client with roots. With
// isolation: session, the connection of such a session is opened before its first list.
func TestSessionsWithRootsGetTheirListAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		config  Config
		profile client.Profile
		session string
		links   int // with the one that reads the shared catalog
	}{
		{"roots", Config{Isolation: IsolationSession}, client.Everything(), "s", 2},
		{"no roots", Config{Isolation: IsolationSession}, client.Profile{Form: true}, "s", 1},
		{"no session", Config{Isolation: IsolationSession}, client.Everything(), "", 1},
		{"questions: false", Config{Isolation: IsolationSession, Questions: QuestionsOff}, client.Everything(), "s", 1},
		{"isolation: principal", Config{Isolation: IsolationPrincipal}, client.Everything(), "s", 1},
		{"isolation: shared", Config{Isolation: IsolationShared}, client.Everything(), "s", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, tt.config)
				synctest.Wait()
				waited := r.Prepare(t.Context(), tt.profile, tt.session, "one")
				if n := r.Status().Links; n != tt.links || waited != (n > 1) {
					t.Errorf("Prepare = %t, and there are %d links, want %d", waited, n, tt.links)
				}
			})
		})
	}
}

// TestForeignHolderOfState: the callers that share the connections of a server share its state. The state
// ends with the connection: when it is idle, or when it is discarded.
func TestForeignHolderOfState(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name     string
		config   Config
		session  string
		stateful bool
		holder   string
	}{
		{"unset", Config{Isolation: IsolationPrincipal}, "s", false, ""},
		{"false", Config{Isolation: IsolationPrincipal, Stateful: &no}, "s", false, ""},
		{"principal", Config{Isolation: IsolationPrincipal, Stateful: &yes}, "s", true, "principal one"},
		{"shared", Config{Isolation: IsolationShared, Stateful: &yes}, "s", true, ""},
		{"one user", Config{Stateful: &yes}, "s", true, ""},
		{"several users", Config{Stateful: &yes, Separate: true}, "", true, "principal one"},
		{"session", Config{Isolation: IsolationSession, Stateful: &yes}, "s", false, ""},
		{"no session", Config{Isolation: IsolationSession, Stateful: &yes}, "", true, "principal one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyScript, tt.config)
				synctest.Wait()
				holder, ok := r.Holder(tt.session, "one")
				if ok != tt.stateful || holder != tt.holder {
					t.Fatalf("Holder = %q, %t; want %q, %t", holder, ok, tt.holder, tt.stateful)
				}
				if !ok {
					return
				}
				in := func(c *Call) { c.Session = tt.session }
				first := sessionOf(t, r.Upstream, user("one"), in)
				if !r.Keeps(holder) || holder != "" && r.Keeps("principal two") {
					t.Error("the wrong callers have a state")
				}
				if again := sessionOf(t, r.Upstream, user("one"), in); again != first {
					t.Error("a second call has another state")
				}
				r.Discard("principal two")
				synctest.Wait()
				if again := sessionOf(t, r.Upstream, user("one"), in); again != first {
					t.Error("the state of another caller was discarded, and this one has ended")
				}
				r.Discard(holder)
				synctest.Wait()
				if again := sessionOf(t, r.Upstream, user("one"), in); again == first {
					t.Error("a discarded state is still there")
				}
				if settle(ownIdle + time.Minute); r.Keeps(holder) != (holder == "") { // that of all reads the catalog
					t.Errorf("Keeps = %t after an idle time", r.Keeps(holder))
				}
			})
		})
	}
}
