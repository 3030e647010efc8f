package authserver

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"junction/auth/fetch"
)

const keysAt = "https://client.example/keys.json"

// mustSigner is mustNet for a signing client with keys at keysAt. It counts fetches by URL.
func mustSigner(t *testing.T) (s *stand, n *net, a app, asked func(where string) int) {
	t.Helper()
	s, n = mustNet(t, behindProxy(t))
	n.put(documentAt, describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"`+keysAt+`"`), nil)
	return s, n, app{s, documentAt, strings.Repeat("v", 43), clientAt}, n.count(s)
}

// count starts to count fetches by URL.
func (n *net) count(s *stand) func(where string) int {
	var mu sync.Mutex
	counts := map[string]int{}
	next := s.documents.fetcher.fetch
	s.documents.fetcher.fetch = func(ctx ctx, where string, max int64) (fetch.Document, error) {
		mu.Lock()
		counts[where]++
		mu.Unlock()
		return next(ctx, where, max)
	}
	return func(where string) (sum int) {
		mu.Lock()
		defer mu.Unlock()
		for at, n := range counts {
			if where == "" || at == where {
				sum += n
			}
		}
		return sum
	}
}

// signed sends an invalid refresh token with an assertion signed by key. The result is
// invalid_grant if the client was authenticated.
func (a app) signed(t *testing.T, id string, key any) (status int, code any) {
	t.Helper()
	text := a.s.mustAssert(t, id, func(c *jwt.Claims) { c.Issuer, c.Subject = a.id, a.id }, jose.ES256, key)
	status, m := a.refresh(t, "jct_rt_x.y", "client_assertion_type", assertionType, "client_assertion", text)
	return status, m["error"]
}

// TestKeysAreFetchedForAllowedClients sends signed requests of a client that no user has
// allowed: its jwks_uri is not fetched, and no assertion is stored.
func TestKeysAreFetchedForAllowedClients(t *testing.T) {
	key, _ := mustClientKey(t)
	_, _, a, asked := mustSigner(t)
	for i := range 300 {
		if status, code := a.signed(t, fmt.Sprint(i), key); status != 400 || code != "invalid_grant" {
			t.Fatalf("request %d: %d %v", i, status, code)
		}
	}
	if asked(keysAt) != 0 || asked("") != 1 {
		t.Errorf("300 requests fetch the keys %d times, and %d documents", asked(keysAt), asked(""))
	}
	if n := a.s.rows(t, "assertion_jtis"); n != 0 {
		t.Errorf("%d assertions are written down", n)
	}
}

// TestMissingKeysAreFetchedOnceAMinute: an allowed client publishes no keys. Requests in its name cause
// one fetch a minute, and its keys are found again.
func TestMissingKeysAreFetchedOnceAMinute(t *testing.T) {
	key, keys := mustClientKey(t)
	s, n, a, asked := mustSigner(t)
	a.mustCode(t, newBrowser(t))
	for i := range 300 {
		if status, code := a.signed(t, fmt.Sprint(i), key); status != 503 || code != "temporarily_unavailable" {
			t.Fatalf("request %d: %d %v", i, status, code)
		}
	}
	if asked(keysAt) != 1 {
		t.Errorf("300 requests fetch the keys %d times", asked(keysAt))
	}
	n.put(keysAt, `["no keys"]`, nil)
	s.clock.forward(time.Minute)
	for range 2 {
		if status, _ := a.signed(t, "x", key); status != 503 || asked(keysAt) != 2 {
			t.Errorf("a minute later: %d, and %d fetches", status, asked(keysAt))
		}
	}
	n.put(keysAt, keys, nil)
	s.clock.forward(time.Minute)
	if status, code := a.signed(t, "y", key); status != 400 || code != "invalid_grant" || asked(keysAt) != 3 {
		t.Errorf("with its keys: %d %v, and %d fetches", status, code, asked(keysAt))
	}
	// Valid keys stay in use while their host is down, with one fetch a minute.
	n.put(keysAt, "", errors.New("the server cannot be reached"))
	s.clock.forward(2 * time.Hour)
	for i := range 10 {
		if status, code := a.signed(t, fmt.Sprint("z", i), key); status != 400 || code != "invalid_grant" ||
			asked(keysAt) != 4 {
			t.Errorf("while the host is away: %d %v, and %d fetches", status, code, asked(keysAt))
		}
	}
}

// TestConcurrentRequestsFetchKeysOnce: many concurrent requests need the keys of a client.
func TestConcurrentRequestsFetchKeysOnce(t *testing.T) {
	key, keys := mustClientKey(t)
	s, n, a, asked := mustSigner(t)
	n.put(keysAt, keys, nil)
	a.mustCode(t, newBrowser(t))
	const all = 50
	n.hold = make(chan struct{})
	arrived, next := make(chan struct{}, all), s.http.Config.Handler
	s.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		next.ServeHTTP(w, r)
	})
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			if status, code := a.signed(t, fmt.Sprint(i), key); status != 400 || code != "invalid_grant" {
				t.Errorf("request %d: %d %v", i, status, code)
			}
		})
	}
	for range all {
		<-arrived
	}
	close(n.hold)
	group.Wait()
	if asked(keysAt) != 1 {
		t.Errorf("%d requests at once fetch the keys %d times", all, asked(keysAt))
	}
}

// TestRotatedKeyIsFetchedInAMinute: a client replaces its key under the same id, just after and long
// after its keys were fetched, while others send signatures that fit no key. It waits a minute at
// most.
func TestRotatedKeyIsFetchedInAMinute(t *testing.T) {
	key, keys := mustClientKey(t)
	stranger, _ := mustClientKey(t)
	for name, age := range map[string]time.Duration{"long after": 10 * time.Minute, "just after": time.Second,
		"after half a minute": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			s, n, a, asked := mustSigner(t)
			s.clock.stop()
			n.put(keysAt, keys, nil)
			a.mustCode(t, newBrowser(t))
			if status, code := a.signed(t, "0", key); status != 400 || code != "invalid_grant" {
				t.Fatalf("with the first key: %d %v", status, code)
			}
			s.clock.forward(age)
			replaced, keys := mustClientKey(t)
			n.put(keysAt, keys, nil)
			status, _ := a.signed(t, "1", replaced)
			waited := time.Duration(0)
			for ; status == 401 && waited <= time.Minute; waited += 10 * time.Second {
				s.clock.forward(10 * time.Second)
				if status, _ := a.signed(t, fmt.Sprint("stranger", waited), stranger); status != 401 {
					t.Errorf("a stranger is let in: %d", status)
				}
				status, _ = a.signed(t, fmt.Sprint("again", waited), replaced)
			}
			if status != 400 || waited > time.Minute || age > time.Minute && waited > 0 {
				t.Errorf("%v after its first signature the new key is answered %d", waited, status)
			}
			if status, _ := a.signed(t, "2", key); status != 401 {
				t.Errorf("the old key is answered %d", status)
			}
			if asked(keysAt) != 2 {
				t.Errorf("the keys were fetched %d times", asked(keysAt))
			}
		})
	}
}

// TestKeysAreOnTheHostOfTheDocument: a document cannot cause fetches from another host.
func TestKeysAreOnTheHostOfTheDocument(t *testing.T) {
	for where, want := range map[string]bool{
		keysAt: true, "https://client.example/a/b?c": true, "https://keys.client.example/keys.json": false,
		"https://victim.example/keys.json":      false,
		"https://client.example.evil.example/k": false, "https://CLIENT.example/keys.json": false,
	} {
		s, n := mustNet(t, nil)
		n.put(documentAt, describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"`+where+`"`), nil)
		p := newBrowser(t).once(http.MethodGet, app{s, documentAt, strings.Repeat("v", 43), clientAt}.asks(), nil)
		if want && p.status != 200 || !want && (p.status != 400 || !strings.Contains(p.body, "jwks_uri")) {
			t.Errorf("%s: %d %s", where, p.status, p.body)
		}
	}
}

// TestFetchesAreBounded names many URLs at both endpoints. One address gets a few fetches,
// all addresses together get more, and allowed clients have their own limit.
func TestFetchesAreBounded(t *testing.T) {
	s, n := mustNet(t, behindProxy(t))
	s.clock.stop()
	asked := n.count(s)
	a := app{s, documentAt, strings.Repeat("v", 43), clientAt}
	a.mustCode(t, newBrowser(t))
	name := func(i int) app {
		return app{s, fmt.Sprintf("https://evil.example/%d", i), a.verifier, clientAt}
	}
	b := newBrowserAt(t, "198.51.100.7")
	for i := range 150 {
		if p := b.once(http.MethodGet, name(i).asks(), nil); p.status != 400 || i > 20 &&
			!strings.Contains(p.body, "this server fetches too many documents at the moment") {
			t.Fatalf("client %d: %d %s", i, p.status, p.body)
		}
		status, m := name(-1-i).refresh(t, "jct_rt_x.y") // from another address
		if status != 503 {
			t.Fatalf("client %d: %d %v", i, status, m)
		}
	}
	if n := asked(""); n != 24 {
		t.Errorf("two addresses have %d URLs fetched, want 12 each", n)
	}
	other := "https://other.example/client.json"
	n.put(other, strings.Replace(describe(""), documentAt, other, 1), nil)
	if p := newBrowserAt(t, "203.0.113.9").once(http.MethodGet, app{s, other, a.verifier, clientAt}.asks(),
		nil); p.status != 200 {
		t.Errorf("a person's client is answered %d %s", p.status, p.body)
	}
	// A rejected fetch says nothing about the URL, and is not cached.
	n.put(name(149).id, strings.Replace(describe(""), documentAt, name(149).id, 1), nil)
	if p := newBrowserAt(t, "203.0.113.9").once(http.MethodGet, name(149).asks(), nil); p.status != 200 {
		t.Errorf("a client whose document was not fetched for a stranger is answered %d %s", p.status, p.body)
	}
	for i := range 200 {
		newBrowserAt(t, fmt.Sprintf("198.51.%d.%d", i/100, i%100)).once(http.MethodGet, name(1000+i).asks(), nil)
	}
	if n := asked(""); n != 60 {
		t.Errorf("all addresses have %d URLs fetched, want 60", n)
	}
	s.clock.forward(61 * time.Minute) // the documents have to be fetched again
	for i := range 300 {
		newBrowserAt(t, fmt.Sprintf("198.51.%d.%d", i/100, i%100)).once(http.MethodGet, name(3000+i).asks(), nil)
	}
	if n := asked(""); n != 120 {
		t.Errorf("an hour later all addresses have %d URLs fetched, want 60 more", n)
	}
	if status, m := a.refresh(t, "jct_rt_x.y"); status != 400 || asked(documentAt) != 2 {
		t.Errorf("an allowed client is answered %d %v after %d fetches", status, m, asked(documentAt))
	}
}

// TestCachedKeysAreBounded checks the limits of the key cache.
func TestCachedKeysAreBounded(t *testing.T) {
	c := &clock{}
	c.stop()
	size := 1
	fetch := func(ctx, string, int64) (fetch.Document, error) {
		return fetch.Document{Body: fmt.Appendf(nil, `{"keys":[]%*s}`, size, "")}, nil
	}
	k := newClientKeySets(newLimitedFetcher(fetch, newRateLimit("", 1, 1), c.now), c.now)
	for _, row := range []struct{ size, sets int }{{1, 196}, {60 << 10, 15}} {
		size = row.size
		for i := range 300 {
			c.forward(time.Second)
			where := fmt.Sprintf("https://%d.example/%d", row.size, i)
			if _, err := k.get(t.Context(), where, "x", false); err != nil {
				t.Fatal(err)
			}
			if _, there := k.kept.Get(where); !there || k.room.Used > maxSetsBytes {
				t.Fatalf("after %d sets of %d bytes those that are kept have %d; the last is there: %v", i, row.size,
					k.room.Used, there)
			}
		}
		if k.room.Len() != row.sets {
			t.Errorf("of sets of %d bytes %d are kept, want %d", row.size, k.room.Len(), row.sets)
		}
	}
}

// TestExpensiveKeysAreNotTried: a client publishes keys that are expensive to try.
func TestExpensiveKeysAreNotTried(t *testing.T) {
	large := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), maxRSA, 1), E: 65537}
	most := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), maxRSA-1, 1), E: 65537}
	header := jose.Header{Algorithm: "RS256", KeyID: "k"}
	set := &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: large, KeyID: "k"}, {Key: most, KeyID: "k"}}}
	if got := matchingKeys(set, header); len(got) != 1 || got[0].Key != most {
		t.Errorf("of a key of %d bits and one of %d these are tried: %v", maxRSA+1, maxRSA, got)
	}
	for range 500 {
		set.Keys = append(set.Keys, set.Keys[1])
	}
	if got := matchingKeys(set, header); len(got) != maxTries {
		t.Errorf("of 501 keys %d are tried", len(got))
	}
}

// TestParametersAreBounded sends parameters of the largest allowed size, and larger ones, to each
// endpoint.
func TestParametersAreBounded(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	a.mustSignIn(t, b)
	long := func(n int) string { return strings.Repeat("long-", n/5+1)[:n] }
	for _, row := range []struct {
		name  string
		value func(n int) string
		most  int
	}{
		{"state", long, 2048},
		{"scope", func(n int) string { return long(n-4) + " mcp" }, 4096},
		{"prompt", long, 1024},
		{"claims", long, 8000}, // nobody reads it
		{"nonce", long, 8000},
	} {
		p := b.once(http.MethodGet, a.asks(row.name, row.value(row.most)), nil)
		if p.status != 200 {
			t.Errorf("%s of %d bytes: %d to %s", row.name, row.most, p.status, p.next())
		}
		if row.name == "state" {
			if p := b.follow(b.press(p, "allow")); p.url.Query().Get("state") != long(row.most) {
				t.Errorf("the state comes back as %q", p.url.Query().Get("state"))
			}
		}
		if row.most == 8000 {
			continue
		}
		p = b.once(http.MethodGet, a.asks(row.name, row.value(row.most+1)), nil)
		u, err := url.Parse(p.told())
		if err != nil || u.Query().Get("error") != "invalid_request" ||
			u.Query().Get("error_description") != fmt.Sprintf("%s is longer than %d bytes", row.name, row.most) ||
			u.Query().Has("state") == (row.name == "state") {
			t.Errorf("%s of %d bytes: %d to %s", row.name, row.most+1, p.status, p.next())
		}
	}
	for _, name := range []string{"client_id", "redirect_uri"} { // with which nobody is known
		if p := b.once(http.MethodGet, a.asks(name, "https://a.example/"+long(1010)), nil); p.status != 400 ||
			p.next() != "" {
			t.Errorf("%s: %d to %s", name, p.status, p.next())
		}
	}
	for _, name := range limitedParams {
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"jct_rt_x.y"}, "client_id": {a.id}}
		form.Set(name, long(maxLen(name)+1))
		status, body := s.post(t, "/oauth/token", "application/x-www-form-urlencoded", form.Encode())
		if status != 400 || member(t, body, "error") != "invalid_request" ||
			member(t, body, "error_description") != fmt.Sprintf("%s is longer than %d bytes", name, maxLen(name)) {
			t.Errorf("%s at the token endpoint: %d %s", name, status, body)
		}
	}
	if status, m := a.refresh(t, "jct_rt_x.y", "else", long(8000)); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("a parameter that nobody reads: %d %v", status, m)
	}
}
