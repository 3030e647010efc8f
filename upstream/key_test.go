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
