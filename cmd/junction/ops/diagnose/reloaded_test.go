package diagnose

import (
	"fmt"
	"testing"
	"time"

	"junction/cmd/junction/base/config"
)

// TestReloadedNamesChangesForAnHour: the lists are bounded, a server that the file still has is disabled and not
// removed, and policies and keys are named, too.
func TestReloadedNamesChangesForAnHour(t *testing.T) {
	now := time.Now()
	old := mustParse(t, "auth: { api_keys: [{ name: ann, hash: \""+hashOf(1)+"\" }] }\nupstreams:\n"+
		"  kept: { url: https://a.example.com }\n  gone: { url: https://a.example.com }\n  off: { url: https://a.example.com }\n"+
		"policies: [{ name: staff, rules: [allow: { upstreams: kept }] }, { name: past, rules: [allow: { upstreams: kept }] }]\n")
	text := "auth: { api_keys: [{ name: ann, hash: \"" + hashOf(2) + "\" }] }\nupstreams:\n" +
		"  kept: { url: https://b.example.com }\n  off: { url: https://a.example.com, enabled: false }\n"
	for n := range mostReloaded + 2 {
		text += fmt.Sprintf("  n%d: { url: https://a.example.com }\n", n)
	}
	next := mustParse(t, text+"policies: [{ name: staff, rules: [deny: { upstreams: kept }] }, { name: team, rules: [allow: { upstreams: kept }] }, "+
		"{ name: crew, rules: [allow: { upstreams: kept }] }]\n")
	change := old.Follow(next)
	r := NewReloaded(&change, "", now)
	if len(r.Added) != mostReloaded || r.More != 2 {
		t.Errorf("%d names and %d more, want %d and 2", len(r.Added), r.More, mostReloaded)
	}
	r.Added = r.Added[:1]
	want := "added n0; changed kept; removed gone; disabled off; added the policies crew, team; changed the policy staff; " +
		"removed the policy past; added the key " + config.KeyNames(change.AddedKeys)[0] + "; revoked the key " +
		config.KeyNames(change.RevokedKeys)[0] + "; and 2 more"
	if got := r.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	list := Reloads{}.With(r)
	if len(list.Lately(now.Add(reloadedFor-1))) != 1 || len(list.Lately(now.Add(reloadedFor))) != 0 {
		t.Error("the reload is not shown for exactly an hour")
	}
	for n := range mostReloads {
		if at, is := list.Removed("gone"); !is || at != now {
			t.Errorf("after %d further reloads, it is not known that gone was removed", n)
		}
		list = list.With(&Reloaded{Time: now, ChangedPolicies: []string{"staff"}})
	}
	if len(list) != mostReloads {
		t.Errorf("%d reloads are kept, want %d", len(list), mostReloads)
	}
	same := next.Follow(next)
	if got := NewReloaded(&same, "", now); got != nil {
		t.Errorf("the same content gives %v", got)
	}
}

func hashOf(n int) string { return fmt.Sprintf("sha256:%064d", n) }

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("config.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}
