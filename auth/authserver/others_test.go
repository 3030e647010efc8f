package authserver

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authserver/provider"
)

// others are other processes that a test invents.
type others struct {
	mu             sync.Mutex
	differs, lacks string // a key, and an entry; "" for none
}

func (o *others) Differs(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.differs != "" && (o.differs == key || strings.HasPrefix(o.differs, key+"."))
}

func (o *others) Lacks(entry string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lacks == entry
}

func (o *others) set(differs, lacks string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.differs, o.lacks = differs, lacks
}

// TestARolloutEndsNoSignIn: a refresh at a process whose file no longer permits it is answered 503 while
// another process differs in the key, and ends nothing: with the other file it works afterwards. When all
// processes have the file, it is refused.
func TestARolloutEndsNoSignIn(t *testing.T) {
	for name, tt := range map[string]struct {
		key  string
		file func(s *stand) (undo func()) // puts the stricter file in force
	}{
		"a provider is gone": {"auth.oauth.identity_providers.sso", func(s *stand) func() {
			all := s.providers
			s.providers = nil
			return func() { s.providers = all }
		}},
		"a provider has a stricter rule": {"auth.oauth.identity_providers.sso", func(s *stand) func() {
			s.providers[0].RequiredClaims = map[string]provider.OneOf{"role": {"staff"}}
			return func() { s.providers[0].RequiredClaims = nil }
		}},
		"a scope is gone": {"auth.scope_capabilities.web", func(s *stand) func() {
			all := s.scopes
			s.scopes = scopes
			return func() { s.scopes = all }
		}},
		"clients may not register": {"auth.oauth.clients.dcr", func(s *stand) func() {
			s.config.Clients.DCR = dcrOff
			return func() { s.config.Clients.DCR = dcrOpen }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			there := &others{}
			s := mustStand(t, func(o *Options) { o.Others, o.Scopes = there, []string{"web"} })
			a := s.mustApp(t)
			ask := func() map[string]any {
				b := newBrowser(t)
				p := b.once(http.MethodGet, a.asks("scope", "mcp offline_access web"), nil)
				p = b.follow(b.press(p, "idp:sso"))
				status, m := a.redeem(t, p.url.Query().Get("code"))
				if status != http.StatusOK {
					t.Fatal(status, m)
				}
				return m
			}
			m := ask()
			s.clock.forward(2 * time.Minute)
			there.set(tt.key, "")
			undo := tt.file(s)
			for range 2 {
				if status, got := a.refresh(t, m["refresh_token"]); status != http.StatusServiceUnavailable ||
					got["error"] != "temporarily_unavailable" {
					t.Errorf("while the files differ: %d, %v; want 503", status, got)
				}
			}
			undo()
			status, m := a.refresh(t, m["refresh_token"])
			if status != http.StatusOK {
				t.Fatalf("with the file of the others: %d, %v", status, m)
			}
			s.clock.forward(2 * time.Minute)
			tt.file(s)
			there.set("", "")
			if status, got := a.refresh(t, m["refresh_token"]); status == http.StatusOK || status == http.StatusServiceUnavailable {
				t.Errorf("when all have the file: %d, %v", status, got)
			}
		})
	}
}

// TestARefreshTokenKeepsItsReuseInterval: of processes with different intervals, each judges a token by the one of
// the process that made it: a replay is stored, and repeated, or is not.
func TestARefreshTokenKeepsItsReuseInterval(t *testing.T) {
	for name, tt := range map[string]struct {
		made, later time.Duration // the interval of the process that makes the token, and of the other one
		want        int           // the status of a replay
	}{
		"made with an interval": {time.Minute, 0, http.StatusOK},
		"made without one":      {0, time.Minute, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, func(o *Options) { o.Config.Tokens.ReuseInterval = &tt.made })
			a := s.mustApp(t)
			first := a.mustSignIn(t, newBrowser(t))
			s.tokens.ReuseInterval = &tt.later
			if status, got := a.refresh(t, first["refresh_token"]); status != http.StatusOK {
				t.Fatalf("the first use: %d, %v", status, got)
			}
			if status, got := a.refresh(t, first["refresh_token"]); status != tt.want {
				t.Errorf("the replay: %d, %v; want %d", status, got, tt.want)
			}
		})
	}
}

// TestOnlyWhatAllAcceptIsOffered: users choose among the providers that all processes have, clients get the
// scopes that all have, and a client that one process does not know is told to come later.
func TestOnlyWhatAllAcceptIsOffered(t *testing.T) {
	there := &others{}
	s := mustStand(t, func(o *Options) {
		o.Others, o.Scopes = there, []string{"web"}
		more := o.Config.IdentityProviders[0]
		more.ID, more.Name = "new", "The new one"
		o.Config.IdentityProviders = append(o.Config.IdentityProviders, more)
		o.Config.Clients.Static = []StaticClient{{ID: "old-app", RedirectURIs: []string{"https://app.example/callback"}}}
	})
	a := s.mustApp(t)
	shows := func(changes ...string) page {
		t.Helper()
		return newBrowser(t).once(http.MethodGet, a.asks(append([]string{"scope", "mcp web"}, changes...)...), nil)
	}
	static := []string{"client_id", "old-app", "redirect_uri", "https://app.example/callback"}
	for _, tt := range []struct {
		lacks            string
		newOne, web, app bool
	}{
		{"", true, true, true},
		{"auth.oauth.identity_providers.new", false, true, true},
		{"auth.scope_capabilities.web", true, false, true},
		{"auth.oauth.clients.static.old-app", true, true, false},
	} {
		there.set("", tt.lacks)
		p := shows()
		if got := strings.Contains(p.body, "The new one"); got != tt.newOne || !strings.Contains(p.body, "Acme SSO") {
			t.Errorf("without %q, the page has the new provider: %v", tt.lacks, got)
		}
		if got := strings.HasSuffix(s.scopeOf("mcp web"), " web"); got != tt.web {
			t.Errorf("without %q, the scope is granted: %v", tt.lacks, got)
		}
		want := http.StatusOK
		if !tt.app {
			want = http.StatusServiceUnavailable
		}
		if p := shows(static...); p.status != want {
			t.Errorf("without %q, the static client gets %d, want %d", tt.lacks, p.status, want)
		}
	}
}

// TestEachProcessFindsTheGroupsByItsOwnRule: two processes have different rules for the groups. Each judges the user
// by its own, whichever of them has asked the provider. No group is reported as lost.
func TestEachProcessFindsTheGroupsByItsOwnRule(t *testing.T) {
	var options Options
	s := mustStand(t, func(o *Options) { options = *o })
	options.Store = s.store
	options.Config.IdentityProviders = slices.Clone(options.Config.IdentityProviders)
	options.Config.IdentityProviders[0].Claims.Groups = []string{"realm_access", "roles"}
	one, other := s.Server, s.second(t, options)
	s.idp.set(func() {
		s.idp.claims = map[string]any{"groups": []string{"staff", "sales"},
			"realm_access": map[string]any{"roles": []string{"reader"}}}
	})
	want := func(token any, step string) {
		t.Helper()
		for srv, groups := range map[*Server][]string{one: {"staff", "sales"}, other: {"reader"}} {
			p, err := srv.Verify(t.Context(), token.(string), here)
			if err != nil || !slices.Equal(p.Groups, groups) {
				t.Errorf("%s: %v, want the groups %q, got %+v", step, err, groups, p)
			}
		}
	}
	a := s.mustApp(t)
	m := a.mustSignIn(t, newBrowser(t))
	want(m["access_token"], "after a sign-in at one process")
	s.clock.forward(2 * time.Minute)
	s.http.Config.Handler = other
	status, m := a.refresh(t, m["refresh_token"])
	if status != http.StatusOK {
		t.Fatal(status, m)
	}
	want(m["access_token"], "after a refresh at the other one")
	events, err := s.store.Events(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Event == "groups_lost" {
			t.Errorf("groups are reported as lost: %s", e.Detail)
		}
	}
}

// TestGroupsThatTheRowDoesNotTell: where the row does not tell what this process would have got, the groups are those
// of the process that has asked the provider. A row that has all claims tells that there are none.
func TestGroupsThatTheRowDoesNotTell(t *testing.T) {
	s := mustStand(t, nil)
	s.providers[0].Claims.Groups = []string{"roles"}
	for row, want := range map[string]string{
		`{"groups":["a"]}`: "a",
		`{"groups":["a"],"provider":"sso","rule":["groups"],"lists":{"groups":["a"]}}`:                             "a",
		`{"groups":["a"],"provider":"gone","rule":["groups"],"lists":{"groups":["a"],"roles":["r"]},"whole":true}`: "a",
		`{"groups":["a"],"provider":"sso","rule":["groups"],"lists":{"groups":["a"],"roles":["r"]}}`:               "r",
		`{"groups":["a"],"provider":"sso","rule":["groups"],"lists":{"groups":["a"]},"whole":true}`:                "",
		`{"groups":["a"],"provider":"sso","rule":["roles"]}`:                                                       "a",
		``: "",
	} {
		if got := strings.Join(s.groups([]byte(row)), ","); got != want {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
}
