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
