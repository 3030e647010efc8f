package credentials

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"junction/auth"
	"junction/auth/oauth"
	"junction/upstream"
)

// TestEachModeHasASource compares the table of this package with the rows of package upstream: each mode
// with a credential has one source, and no other word has one.
func TestEachModeHasASource(t *testing.T) {
	var want []upstream.AuthMode
	for _, row := range upstream.Modes() {
		if row.Owner != upstream.OwnerNobody {
			want = append(want, row.Word)
		}
	}
	if got := slices.Sorted(maps.Keys(makers)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the sources are %q, the modes with a credential %q", got, want)
	}
}

// TestDoctorAsksTheSourcesThatAnswer: junction auth doctor lists an upstream by the row of its mode. So a
// row has its words if, and only if, the source of the mode has findings.
func TestDoctorAsksTheSourcesThatAnswer(t *testing.T) {
	for mode, open := range makers {
		source := open(Options{})
		defer source.Close()
		if _, probes := source.(prober); probes != (mode.Row().Doctor != "") {
			t.Errorf("%s: junction auth doctor says %q, and its source has a probe: %v", mode, mode.Row().Doctor, probes)
		}
	}
}

// TestSourcesWithoutADatabase: a mode that stores its credentials has no source before a database is open,
// and its state and its probe say nothing. This is not the error of a credential that is missing.
func TestSourcesWithoutADatabase(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	for _, row := range upstream.Modes() {
		if !row.Stores {
			continue
		}
		s.Use(map[string]upstream.Config{"x": {URL: "https://x.example", Auth: upstream.Auth{Mode: row.Word}}})
		for _, user := range []string{"", "user:ann"} {
			c := upstream.Caller{Upstream: "x", Mode: row.Word, User: user}
			if got, err := s.Apply(t.Context(), c); !errors.Is(err, upstream.ErrNoSource) || got != (upstream.Credential{}) {
				t.Errorf("%s of %q: %v, %v", row.Word, user, got, err)
			}
			if state := s.State(t.Context(), "x", user); state.Refused+state.Notes != "" || state.Lacks != nil {
				t.Errorf("%s of %q: its state is %+v", row.Word, user, state)
			}
		}
		if found := s.Probe(t.Context(), "x"); found != nil {
			t.Errorf("%s: a probe finds %v", row.Word, found)
		}
	}
	if _, err := s.Apply(t.Context(), upstream.Caller{Upstream: "x", Mode: "unknown"}); !errors.Is(err, upstream.ErrNoSource) {
		t.Errorf("a mode that nobody knows has a source: %v", err)
	}
}

// TestMissingScopesAreRemembered: the scopes that calls needed are in the state of their upstream until it
// has another mode, at most 20 of them, because the server chooses them.
func TestMissingScopesAreRemembered(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	mode := upstream.SignInMode(upstream.OwnerOperator)
	s.Use(map[string]upstream.Config{"x": {Auth: upstream.Auth{Mode: mode}}, "plain": {}})
	s.Lacked(nil)
	s.Lacked(&upstream.LackError{Upstream: "x", Mode: mode, Scopes: []string{"ended"}, Again: true})
	for _, scope := range []string{"b", "a", "b"} {
		s.Lacked(&upstream.LackError{Upstream: "x", Mode: mode, Lacks: true, Scopes: []string{scope}})
	}
	if lacks := s.State(t.Context(), "x", "").Lacks; !slices.Equal(lacks, []string{"a", "b"}) {
		t.Errorf("it lacks %q", lacks)
	}
	if lacks := s.State(t.Context(), "plain", "").Lacks; lacks != nil {
		t.Errorf("another upstream lacks %q", lacks)
	}
	for i := range 100 {
		s.Lacked(&upstream.LackError{Upstream: "x", Mode: mode, Lacks: true, Scopes: []string{string(rune('c' + i))}})
	}
	if n := len(s.State(t.Context(), "x", "").Lacks); n != mostLacking {
		t.Errorf("%d scopes are kept", n)
	}
	s.Use(map[string]upstream.Config{"x": {}})
	if lacks := s.State(t.Context(), "x", "").Lacks; lacks != nil {
		t.Errorf("without a mode it lacks %q", lacks)
	}
}

// TestWhoMayHaveACredential: a caller of another kind than the row names gets none.
func TestWhoMayHaveACredential(t *testing.T) {
	for _, row := range upstream.Modes() {
		for kind, want := range map[auth.Kind]bool{auth.KindUser: row.Users, auth.KindKey: row.Keys, auth.KindLocal: false, auth.KindService: false} {
			if got := MayHave(row.Word, kind); got != want {
				t.Errorf("%s, %s: %v", row.Word, kind, got)
			}
		}
	}
}

// TestMethodsOfAClientHaveTheKeysOfTheMode: an entry with a client of Junction has exactly one of the keys that choose a
// method of client authentication, and may have the others of that method.
func TestMethodsOfAClientHaveTheKeysOfTheMode(t *testing.T) {
	for _, row := range upstream.Modes() {
		if row.Owner != upstream.OwnerJunction {
			continue
		}
		var first []string
		for _, m := range oauth.Methods() {
			if len(m.Keys) > 0 && !slices.Contains(first, m.Keys[0]) {
				first = append(first, m.Keys[0])
			}
			for _, key := range m.Keys {
				if !slices.Contains(row.AuthKeys, key) {
					t.Errorf("%s: mode %s has no key %s", m.Name, row.Word, key)
				}
			}
		}
		if !slices.Equal(row.AuthOne, first) {
			t.Errorf("mode %s needs one of %q, want %q", row.Word, row.AuthOne, first)
		}
	}
}
