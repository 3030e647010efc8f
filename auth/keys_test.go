package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
)

func cidrs(t *testing.T, list ...string) []auth.CIDR {
	t.Helper()
	var cs []auth.CIDR
	for _, s := range list {
		var c auth.CIDR
		if err := c.UnmarshalText([]byte(s)); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		cs = append(cs, c)
	}
	return cs
}

func TestNewKey(t *testing.T) {
	form := regexp.MustCompile(`^jct_key_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}$`)
	seen, letters := map[string]bool{}, map[rune]int{}
	for range 2000 {
		key := auth.NewKey()
		if !form.MatchString(key) || seen[key] {
			t.Fatalf("NewKey returned %q", key)
		}
		seen[key] = true
		mustHash(t, key)
		for _, c := range key[17:60] {
			letters[c]++
		}
	}
	// 2000·43/62 = 1387 of each; 250 off would be nearly seven standard deviations, and a biased
	// remainder is 25 % off for eight letters.
	for c, n := range letters {
		if n < 1137 || n > 1637 {
			t.Errorf("%c occurs %d times, want about 1387", c, n)
		}
	}
	if len(letters) != 62 {
		t.Errorf("%d letters occur, want 62", len(letters))
	}
}

// TestHashKey keeps the form of keys: a valid key stays valid for ever.
func TestHashKey(t *testing.T) {
	const known = "jct_key_Example0_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg0kcQpA"
	h, err := auth.HashKey(known)
	if err != nil || h.String() != "sha256:e560bd0cf51f4c986536bf62e4fccf9812b625c256e915ed1cbc7642e16523bc" {
		t.Errorf("HashKey(%s) = %s, %v", known, h, err)
	}
}

func TestHashKeyRefuses(t *testing.T) {
	key := auth.NewKey()
	for i := range len(key) {
		for _, c := range []byte("0aZ_-é ") {
			if other := key[:i] + string(c) + key[i+1:]; other != key {
				if _, err := auth.HashKey(other); !errors.Is(err, auth.ErrNoKey) && !errors.Is(err, auth.ErrMistyped) {
					t.Fatalf("%s is taken for a key, and %s is one", other, key)
				}
			}
		}
		if i > 0 && key[i] != key[i-1] {
			if _, err := auth.HashKey(key[:i-1] + key[i:i+1] + key[i-1:i] + key[i+1:]); err == nil {
				t.Fatalf("with two letters swapped at %d, %s is still a key", i, key)
			}
		}
		if _, err := auth.HashKey(key[:i]); err == nil {
			t.Fatalf("the first %d letters are a key", i)
		}
	}
	for _, other := range []string{key + "0", " " + key, key + "\n", strings.ToUpper(key),
		strings.Replace(key, "jct_key_", "jct_at_", 1)} {
		if _, err := auth.HashKey(other); err == nil {
			t.Errorf("%q is taken for a key", other)
		}
	}
}

func TestHash(t *testing.T) {
	h := mustHash(t, auth.NewKey())
	for _, text := range []string{h.String(), "sha256:" + strings.ToUpper(h.String()[7:])} {
		var got auth.Hash
		if err := got.UnmarshalText([]byte(text)); err != nil || got != h {
			t.Errorf("UnmarshalText(%s) = %v, %v", text, got, err)
		}
	}
	key := auth.NewKey()
	for _, text := range []string{"", "sha256:", h.String()[7:], h.String() + "00", h.String()[:70],
		"sha512:" + h.String()[7:], "sha256:" + strings.Repeat("g", 64), key} {
		var got auth.Hash
		if err := got.UnmarshalText([]byte(text)); err == nil || got != (auth.Hash{}) ||
			strings.Contains(err.Error(), key) {
			t.Errorf("UnmarshalText(%q) = %v, %v", text, got, err)
		}
	}
}

func TestRedact(t *testing.T) {
	key := auth.NewKey()
	for _, test := range []struct {
		text, want string
		holds      bool
	}{
		{"", "", false},
		{"no key here", "no key here", false},
		{key, "jct_key_…", true},
		{"Bearer " + key + ", and " + key + ".", "Bearer jct_key_…, and jct_key_….", true},
		{"cut: " + key[:30], "cut: jct_key_…", true},
		{"mistyped: " + key[:40] + "x" + key[41:], "mistyped: jct_key_…", true},
		{"the id: " + key[:16], "the id: jct_key_…", false},
		{`a pattern: jct_key_[0-9A-Za-z]{8}_`, `a pattern: jct_key_[0-9A-Za-z]{8}_`, false},
		{"jct_key_…", "jct_key_…", false},
		{"Bearer jct_at_aB-_9.cD-_8, jct_rt_x.y and jct_ac_z", "Bearer jct_at_…, jct_rt_… and jct_ac_…", false},
		{key + " jct_at_a.b", "jct_key_… jct_at_…", true},
		{"jct_other_x", "jct_other_x", false},
	} {
		if got := auth.Redact(test.text); got != test.want || auth.HoldsKey(test.text) != test.holds {
			t.Errorf("Redact(%q) = %q and HoldsKey = %v, want %q and %v", test.text, got, auth.HoldsKey(test.text),
				test.want, test.holds)
		}
	}
}

func TestKeys(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) auth.Moment { return auth.Moment{Time: now.Add(d)} }
	ci, next, late, inside, twice := auth.NewKey(), auth.NewKey(), auth.NewKey(), auth.NewKey(), auth.NewKey()
	v := auth.Keys([]auth.Key{
		{Name: "ci", Hash: mustHash(t, ci)},
		{Name: "ci", Hash: mustHash(t, next), Expires: at(time.Hour)},
		{Name: "late", Hash: mustHash(t, late), Expires: at(0)},
		{Name: "inside", Hash: mustHash(t, inside), CIDRs: cidrs(t, "10.0.0.0/8", "2001:db8::/32")},
		{Name: "a", Hash: mustHash(t, twice)},
		{Name: "b", Hash: mustHash(t, twice)},
		{Name: "empty"},
	}, func() time.Time { return now })
	for _, test := range []struct {
		name, token, from string
		id, reason        string
	}{
		{"good", ci, "203.0.113.7", "key:ci", ""},
		{"rotated", next, "203.0.113.7", "key:ci", ""},
		{"expired at this very moment", late, "203.0.113.7", "", "the token is not valid: the key expired at " +
			"2026-11-21T12:00:00Z"},
		{"inside", inside, "10.200.0.1", "key:inside", ""},
		{"inside, IPv6", inside, "2001:db8:5::1", "key:inside", ""},
		{"outside", inside, "11.0.0.1", "", "the token is not valid: the key is not allowed from this address"},
		{"from nobody knows where", inside, "", "",
			"the token is not valid: the key is not allowed from this address"},
		{"two entries of one hash", twice, "203.0.113.7", "",
			"the token is not valid: this server does not know the key"},
		{"unknown", auth.NewKey(), "203.0.113.7", "", "the token is not valid: this server does not know the key"},
		{"wrong secret", authtest.WithCheck(ci[:20] + flip(ci[20]) + ci[21:60]), "203.0.113.7", "",
			"the token is not valid: this server does not know the key"},
		{"wrong id", authtest.WithCheck(ci[:8] + flip(ci[8]) + ci[9:60]), "203.0.113.7", "",
			"the token is not valid: this server does not know the key"},
		{"bad check", ci[:65] + flip(ci[65]), "203.0.113.7", "",
			"the token is not valid: this server does not know the key"},
		{"hash as the key", mustHash(t, ci).String(), "203.0.113.7", "", "the token is not valid: this server does " +
			"not know " +
			"the key"},
		{"nothing", "", "203.0.113.7", "", "the token is not valid: this server does not know the key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, _ := netip.ParseAddr(test.from)
			p, err := v.Verify(context.Background(), test.token, from)
			if test.id != "" {
				if err != nil || p.ID != test.id || p.Address != from || p.LogValue().String() != test.id {
					t.Errorf("got %+v, %v, want %s", p, err, test.id)
				}
				return
			}
			if p != nil || !errors.Is(err, auth.ErrInvalidToken) || err.Error() != test.reason {
				t.Errorf("got %+v, %v, want %s", p, err, test.reason)
			}
		})
	}
}

// flip returns another letter.
func flip(c byte) string {
	if c == 'x' {
		return "y"
	}
	return "x"
}

// TestKeysExpire passes the expiry of a key, and of the streams it opened.
func TestKeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := auth.NewKey()
		end := time.Now().Add(time.Hour)
		entry := auth.Key{Name: "ci", Hash: mustHash(t, key), Expires: auth.Moment{Time: end}}
		g := &auth.Guard{Verifier: auth.Keys([]auth.Key{entry}, nil)}
		p, _ := ask(t, g, "POST", "/mcp", authorization("Bearer "+key))
		if p == nil || !p.Expires.Equal(end) || !g.Still(p) {
			t.Fatalf("an hour before its end the key gives %+v", p)
		}
		time.Sleep(time.Hour - 1)
		if again, _ := ask(t, g, "POST", "/mcp", authorization("Bearer "+key)); again == nil || !g.Still(p) {
			t.Error("the key ends before its time")
		}
		time.Sleep(time.Nanosecond)
		again, resp := ask(t, g, "POST", "/mcp", authorization("Bearer "+key))
		if again != nil || resp.StatusCode != 401 ||
			!strings.Contains(resp.Header.Get("WWW-Authenticate"), "expired") || g.Still(p) {
			t.Errorf("at its end the key gives %v, %d, %v; still let in: %v", again, resp.StatusCode, resp.Header,
				g.Still(p))
		}
	})
}

// TestRevokedKeyIsRecorded: two keys have one name. After a reload without the first one, the record
// of a rejected request says which key it was and when it was revoked. The client gets the answer for
// an unknown key.
func TestRevokedKeyIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := auth.NewKey(), auth.NewKey()
		first, second := auth.Key{Name: "ann", Hash: mustHash(t, old)}, auth.Key{Name: "ann", Hash: mustHash(t, next)}
		providers := auth.NewProviders(nil)
		t.Cleanup(providers.Close)
		var got *auth.Refusal
		guard := func(list ...auth.Key) *auth.Guard {
			g := (&auth.Config{APIKeys: list}).Guard(providers, "", nil)
			g.Refused = func(r auth.Refusal) { got = &r }
			return g
		}
		send := func(g *auth.Guard, key string) (*auth.Principal, *http.Response) {
			got = nil
			return ask(t, g, "POST", "/mcp", authorization("Bearer "+key))
		}
		g := guard(first, second)
		for _, k := range []struct{ key, id string }{{old, first.Hash.String()}, {next, second.Hash.String()}} {
			p, _ := send(g, k.key)
			if p == nil || p.ID != "key:ann" || "sha256:"+p.KeyID != k.id[:len("sha256:")+8] {
				t.Errorf("the key with the hash %s is %+v", k.id, p)
			}
		}
		at := time.Now().UTC().Format(time.RFC3339)
		guard(second)
		time.Sleep(time.Hour)
		other := auth.NewKey()
		g = guard(second, auth.Key{Name: "bob", Hash: mustHash(t, other)})
		p, resp := send(g, old)
		if got == nil || got.Principal != "key:ann" || got.KeyID != first.Hash.ID() ||
			got.Reason != "the key was revoked at "+at {
			t.Errorf("the record of the revoked key is %+v", got)
		}
		_, unknown := send(g, auth.NewKey())
		if got == nil || got.Principal+got.KeyID+got.Reason != "" {
			t.Errorf("the record of an unknown key is %+v", got)
		}
		mine, others := resp.Header.Get("WWW-Authenticate"), unknown.Header.Get("WWW-Authenticate")
		if p != nil || resp.StatusCode != 401 || mine != others {
			t.Errorf("the revoked key gets %v, %d, %s; an unknown key gets %s", p, resp.StatusCode, mine, others)
		}
		if p, _ := send(guard(first, second), old); p == nil {
			t.Error("a key that is in the file again is not accepted")
		}

		// Only the last ones are remembered.
		time.Sleep(time.Hour)
		many, secrets := make([]auth.Key, 300), make([]string, 300)
		for i := range many {
			secrets[i] = auth.NewKey()
			many[i] = auth.Key{Name: "many", Hash: mustHash(t, secrets[i])}
		}
		guard(append(many, first, second)...)
		guard(first, second)
		time.Sleep(time.Hour)
		g = guard(second)
		if send(g, old); got == nil || got.KeyID != first.Hash.ID() {
			t.Errorf("after many others, the record of the revoked key is %+v", got)
		}
		known := 0
		for _, key := range secrets {
			if send(g, key); got.KeyID != "" {
				known++
			}
		}
		if known != 199 {
			t.Errorf("of many others %d keys are remembered, want 199", known)
		}
	})
}

// TestStill: after a reload a principal is checked with its original credential.
func TestStill(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	in := func(hours int) auth.Moment { return auth.Moment{Time: now.Add(time.Duration(hours) * time.Hour)} }
	hash, other := mustHash(t, auth.NewKey()), mustHash(t, auth.NewKey())
	for _, test := range []struct {
		name   string
		before auth.Key
		after  []auth.Key
		want   bool
	}{
		{"unchanged", auth.Key{Name: "ci"}, []auth.Key{{Name: "ci", Hash: hash}}, true},
		{"a second one beside it", auth.Key{Name: "ci"},
			[]auth.Key{{Name: "ci", Hash: other}, {Name: "ci", Hash: hash}}, true},
		{"removed", auth.Key{Name: "ci"}, []auth.Key{{Name: "ops", Hash: other}}, false},
		{"replaced by another of its name", auth.Key{Name: "ci"}, []auth.Key{{Name: "ci", Hash: other}}, false},
		{"of another name now", auth.Key{Name: "ci"}, []auth.Key{{Name: "ops", Hash: hash}}, false},
		{"twice", auth.Key{Name: "ci"}, []auth.Key{{Name: "ci", Hash: hash}, {Name: "ci", Hash: hash}}, false},
		{"within its networks", auth.Key{Name: "ci"},
			[]auth.Key{{Name: "ci", Hash: hash, CIDRs: cidrs(t, "127.0.0.0/8")}}, true},
		{"outside of its networks now", auth.Key{Name: "ci"},
			[]auth.Key{{Name: "ci", Hash: hash, CIDRs: cidrs(t, "10.0.0.0/8")}}, false},
		{"expired meanwhile", auth.Key{Name: "ci"}, []auth.Key{{Name: "ci", Hash: hash, Expires: in(-1)}}, false},
		{"with an end where there was none", auth.Key{Name: "ci"}, []auth.Key{{Name: "ci", Hash: hash, Expires: in(5)}},
			false},
		{"with an earlier end", auth.Key{Name: "ci", Expires: in(2)},
			[]auth.Key{{Name: "ci", Hash: hash, Expires: in(1)}}, false},
		{"with the same end", auth.Key{Name: "ci", Expires: in(2)},
			[]auth.Key{{Name: "ci", Hash: hash, Expires: in(2)}}, true},
		{"with a later end", auth.Key{Name: "ci", Expires: in(2)}, []auth.Key{{Name: "ci", Hash: hash, Expires: in(3)}},
			true},
		{"without an end", auth.Key{Name: "ci", Expires: in(2)}, []auth.Key{{Name: "ci", Hash: hash}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			clock := func() time.Time { return now }
			key := auth.NewKey()
			mine := mustHash(t, key)
			test.before.Hash = mine
			for i := range test.after {
				if test.after[i].Hash == hash {
					test.after[i].Hash = mine
				}
			}
			p, _ := ask(t, &auth.Guard{Verifier: auth.Keys([]auth.Key{test.before}, clock)}, "POST", "/mcp",
				authorization("Bearer "+key))
			if p == nil {
				t.Fatal("the key is not good before the reload")
			}
			if got := (&auth.Guard{Verifier: auth.Keys(test.after, clock)}).Still(p); got != test.want {
				t.Errorf("still let in: %v, want %v", got, test.want)
			}
		})
	}
	key := auth.NewKey()
	keys := &auth.Guard{Verifier: auth.Keys([]auth.Key{{Name: "ci", Hash: mustHash(t, key)}}, nil)}
	p, _ := ask(t, keys, "POST", "/mcp", authorization("Bearer "+key))
	if keys.Still(auth.Local) || (&auth.Guard{}).Still(p) || keys.Still(nil) {
		t.Error("a principal outlives the change between keys and none")
	}
	if keys.Still(&auth.Principal{Kind: auth.KindKey, ID: "key:ci", Key: "ci", Address: p.Address}) {
		t.Error("a principal that was never verified is kept by its name")
	}
}

func FuzzHashKey(f *testing.F) {
	key := auth.NewKey()
	for _, s := range []string{key, key[:60], "jct_key_", "", strings.Repeat("a", 66), key + "\x00"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^jct_key_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}$`)
	f.Fuzz(func(t *testing.T, s string) {
		h, err := auth.HashKey(s)
		if (err == nil) != (h != auth.Hash{}) || err == nil && !form.MatchString(s) || err != nil &&
			!errors.Is(err, auth.ErrNoKey) && !errors.Is(err, auth.ErrMistyped) {
			t.Errorf("HashKey(%q) = %s, %v", s, h, err)
		}
		if form.MatchString(s) && (err == nil) != (authtest.WithCheck(s[:60]) == s) {
			t.Errorf("HashKey(%q) = %v, and its check is %s", s, err, authtest.WithCheck(s[:60])[60:])
		}
		if err == nil && (!auth.HoldsKey(s) || strings.Contains(auth.Redact(s), s[17:])) {
			t.Errorf("the key %q is shown", s)
		}
	})
}

func BenchmarkGuard(b *testing.B) {
	key := auth.NewKey()
	list := []auth.Key{{Name: "ci", Hash: mustHash(b, key)}}
	for range 1000 {
		list = append(list, auth.Key{Name: "other", Hash: mustHash(b, auth.NewKey())})
	}
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header["Authorization"] = []string{"Bearer " + key}
	for name, g := range map[string]*auth.Guard{"local": {}, "key": {Verifier: auth.Keys(list, nil)}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if g.Authenticate(nil, r) == nil {
					b.Fatal("not let in")
				}
			}
		})
	}
}
