package oauth

import (
	"net/url"
	"strings"
	"testing"
)

// TestScopesThatChangeAfterThePage: a user is sent to a sign-in only with the scopes that the page has
// shown, also if the attacker's server names more of them while the user reads the page.
func TestScopesThatChangeAfterThePage(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	p.scopes = []string{"read"}
	seen, scopes, err := p.client.Describe(t.Context(), "linear", "user:ann", []string{"write"})
	if err != nil || strings.Join(scopes, " ") != "read write" {
		t.Fatalf("Describe = %q, %v", scopes, err)
	}
	p.clock.Add(int64(metadataTTL.Seconds()) + 1)
	if where, _, err := p.client.Begin(t.Context(), "linear", "user:ann", "s", "v", seen, []string{"write"}); err != nil ||
		!strings.Contains(where, "scope=read+write") {
		t.Errorf("with the same scopes, Begin = %s, %v", where, err)
	}
	p.clock.Add(int64(metadataTTL.Seconds()) + 1)
	p.scopes = []string{"read", "admin"}
	if where, _, err := p.client.Begin(t.Context(), "linear", "user:ann", "s", "v", seen, []string{"write"}); err == nil ||
		!strings.Contains(err.Error(), "have changed since you saw them") {
		t.Errorf("Begin = %s, %v", where, err)
	}
}

// TestScopesThatAreNone: a server names texts as scopes that a page would show to the user. Junction shows
// and requests only texts that RFC 6749 allows as scopes, also of those that a token answer has granted.
func TestScopesThatAreNone(t *testing.T) {
	odd := []string{"read", "write all", "a, checked by your administrator", "\u202enimda", "ad\u200bmin", "quo\"te", "back\\slash", "", "\x00"}
	p := mustTwoParties(t, Upstream{})
	p.scopes, p.granted = odd, strings.Join(odd, " ")
	want := "read write all a, checked by your administrator"
	for i := range 2 { // then with the granted scopes
		if _, scopes, err := p.client.Describe(t.Context(), "linear", "user:ann", nil); err != nil || strings.Join(scopes, " ") != want {
			t.Errorf("%d: the sign-in requests %q, %v; want %s", i, scopes, err, want)
		}
		if err := p.signIn(t, func(url.Values) {}); err != nil {
			t.Fatal(err)
		}
	}
	p = mustTwoParties(t, Upstream{Scopes: []string{"read"}})
	p.granted = strings.Repeat("x", maxScopes) + " y"
	if err := p.signIn(t, func(url.Values) {}); err != nil {
		t.Fatal(err)
	}
	if _, scopes, err := p.client.Describe(t.Context(), "linear", "user:ann", []string{"write"}); err != nil || strings.Join(scopes, " ") != "read write" {
		t.Errorf("after a grant of too many scopes, the sign-in requests %d, %v", len(scopes), err)
	}
}

// TestScopesAreBounded: the scopes of a sign-in are stored, and shown, so a server cannot name any number
// of them.
func TestScopesAreBounded(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	p.scopes = []string{strings.Repeat("x", maxScopes+1)}
	if err := p.signIn(t, func(url.Values) {}); err == nil || !strings.Contains(err.Error(), "names too many scopes") {
		t.Errorf("a sign-in with scopes of %d bytes = %.200v", maxScopes+1, err)
	}
}
