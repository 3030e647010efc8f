package auth_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"

	"github.com/go-jose/go-jose/v4"
)

// TestKeyRotation: a new key is accepted at once; a removed one is rejected, also for tokens that
// were accepted before.
func TestKeyRotation(t *testing.T) {
	s, g := server(t)
	before := s.Token(t, s.Claims(resource, nil))
	who := wantIn(t, g, before)
	more := authtest.NewKey(t, "more", jose.ES256)
	s.SetKeys(append([]*authtest.Key{more}, s.Keys()...)...)
	wantIn(t, g, more.Token(t, s.Claims(resource, nil)))
	if !g.Still(who) {
		t.Error("another key ends what was begun with one that is there")
	}
	g = signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}}) // which has never asked for an unknown key
	who = wantIn(t, g, before)
	next := authtest.NewKey(t, "next", jose.RS256)
	s.SetKeys(next)
	wantIn(t, g, before) // nobody has asked yet
	wantIn(t, g, next.Token(t, s.Claims(resource, nil)))
	wantOut(t, g, before, 401, "not signed by a key of its issuer")
	if g.Still(who) {
		t.Error("what has begun goes on without the key")
	}
}

// TestKeyRevocation: removed keys are noticed in time without a request for a new key.
func TestKeyRevocation(t *testing.T) {
	s := authtest.New(t)
	other := authtest.NewKey(t, "other", jose.ES256)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
		token := s.Token(t, s.Claims(resource, nil))
		who := wantIn(t, g, token)
		s.SetKeys(other)
		time.Sleep(10*time.Minute - time.Second)
		wantIn(t, g, token)
		time.Sleep(time.Second)
		wantIn(t, g, token) // it waits for nobody, and has the keys fetched
		synctest.Wait()
		wantOut(t, g, token, 401, "not signed by a key of its issuer")
		if g.Still(who) {
			t.Error("what has begun goes on without the key")
		}
	})
}

// TestUnknownKeys: made-up key ids cause one fetch a minute. In that minute a token with an unknown key is
// not said to be invalid, if the issuer may have made the key since the fetch.
func TestUnknownKeys(t *testing.T) {
	s := authtest.New(t)
	ec := authtest.NewKey(t, "ec", jose.ES256)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
		begun := s.Asked(authtest.Keys)
		var codes []string
		g.Checked = func(code string) { codes = append(codes, code) }
		forge := func(status int, reason string, claims map[string]any) {
			t.Helper()
			fake := *ec
			fake.ID = auth.NewKey()
			wantOut(t, g, fake.Token(t, s.Claims(resource, claims)), status, reason)
		}
		forge(401, "not signed by a key of its issuer", nil) // it was compared with the keys of now
		for range 1000 {
			forge(503, "", nil)
		}
		forge(503, "", map[string]any{"iat": nil})
		for _, old := range []time.Duration{time.Minute, time.Hour} { // the fetch would have had the key
			forge(401, "not signed by a key of its issuer", map[string]any{"iat": time.Now().Add(-old).Unix()})
		}
		forge(401, "not signed by a key of its issuer", map[string]any{"iat": "no time"})
		if codes[0] != "invalid_token" || codes[1] != "unknown_key" || codes[1001] != "unknown_key" {
			t.Errorf("the codes are %q", []string{codes[0], codes[1], codes[1001]})
		}
		if n := s.Asked(authtest.Keys); begun > 1 || n > 2 {
			t.Errorf("1000 unknown keys make %d requests, want 2 at most", n)
		}
		s.SetKeys(ec)
		time.Sleep(59 * time.Second)
		wantOut(t, g, ec.Token(t, s.Claims(resource, nil)), 503, "")
		time.Sleep(time.Second)
		wantIn(t, g, ec.Token(t, s.Claims(resource, nil)))
	})
}

// TestForeignReplacedKeyIsFetched: an issuer replaces its key under the same id.
func TestForeignReplacedKeyIsFetched(t *testing.T) {
	s := authtest.New(t)
	old, forged := authtest.NewKey(t, "same", jose.ES256), authtest.NewKey(t, "same", jose.ES256)
	next := authtest.NewKey(t, "same", jose.ES256)
	s.SetKeys(old)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
		who := wantIn(t, g, old.Token(t, s.Claims(resource, nil)))
		s.SetKeys(next)
		wantIn(t, g, next.Token(t, s.Claims(resource, nil))) // the first wrong signature has the keys fetched
		wantOut(t, g, old.Token(t, s.Claims(resource, nil)), 401, "not signed by a key of its issuer")
		if g.Still(who) {
			t.Error("what has begun goes on without the key")
		}
		// A flood of wrong signatures causes one fetch a minute, which delays the next key by at
		// most that.
		time.Sleep(2 * time.Minute)
		n := s.Asked(authtest.Keys)
		for range 100 {
			wantOut(t, g, forged.Token(t, s.Claims(resource, nil)), 401, "not signed by a key of its issuer")
		}
		if got := s.Asked(authtest.Keys) - n; got != 1 {
			t.Errorf("100 wrong signatures make %d fetches, want one", got)
		}
		s.SetKeys(old)
		wantOut(t, g, old.Token(t, s.Claims(resource, nil)), 401, "not signed by a key of its issuer")
		time.Sleep(time.Minute)
		wantIn(t, g, old.Token(t, s.Claims(resource, nil)))
		// While the issuer is down, its known keys decide about a wrong signature.
		s.SetDown(true)
		time.Sleep(time.Minute)
		wantOut(t, g, forged.Token(t, s.Claims(resource, nil)), 401, "not signed by a key of its issuer")
		wantIn(t, g, old.Token(t, s.Claims(resource, map[string]any{"sub": "bob"})))
	})
}

// TestOutage: fetched keys stay valid while the issuer is down; without any, the answer is 503.
func TestOutage(t *testing.T) {
	s := authtest.New(t)
	ec := authtest.NewKey(t, "ec", jose.ES256)
	synctest.Test(t, func(t *testing.T) {
		p := auth.NewProviders(s.Client())
		defer p.Close()
		c := &auth.Config{JWT: []auth.Issuer{entry(s)}}
		s.SetDown(true)
		g := c.Guard(p, publicURL, nil)
		synctest.Wait()
		if st := p.Status(); len(st) != 1 || st[0].Usable ||
			!strings.Contains(st[0].Err, "cannot fetch its metadata") {
			t.Errorf("while it is down it is %+v", st)
		}
		token := s.Token(t, s.Claims(resource, nil))
		wantOut(t, g, token, 503, "")
		s.SetDown(false)
		time.Sleep(10 * time.Second)
		wantIn(t, g, token)
		if st := p.Status(); !st[0].Usable || st[0].Err != "" {
			t.Errorf("when it is there it is %+v", st)
		}

		s.SetDown(true)
		s.SetKeys(ec, authtest.NewKey(t, "rsa", jose.RS256))
		wantIn(t, g, token)
		unknown := ec.Token(t, s.Claims(resource, nil))
		wantOut(t, g, unknown, 503, "")
		time.Sleep(20 * time.Minute)
		g = c.Guard(p, publicURL, nil) // a reload loses nothing
		wantIn(t, g, token)
		wantOut(t, g, unknown, 503, "")
		s.SetDown(false)
		time.Sleep(time.Minute)
		wantIn(t, g, unknown)
	})
}

// TestBackoff: an issuer that is down is not queried for each request.
func TestBackoff(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		s.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		s.Answer(authtest.OAuth, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
		token := s.Token(t, s.Claims(resource, nil))
		for range 10 * 600 {
			wantOut(t, g, token, 503, "")
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.Asked(authtest.Metadata); n < 10 || n > 20 { // after 0, 1, 3, 7, 15, 31, 63, 123 … seconds
			t.Errorf("asked %d times in 10 minutes, want some 16", n)
		}
	})
}

// TestKeysWithoutMetadata: the URL of the keys stays known once it was discovered.
func TestKeysWithoutMetadata(t *testing.T) {
	s := authtest.New(t)
	next := authtest.NewKey(t, "next", jose.ES256)
	g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
	wantIn(t, g, s.Token(t, s.Claims(resource, nil)))
	s.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	s.Answer(authtest.OAuth, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	s.SetKeys(next)
	wantIn(t, g, s.Token(t, s.Claims(resource, nil)))
}

// TestIssuerMismatch: metadata of another issuer are rejected.
func TestIssuerMismatch(t *testing.T) {
	for name, document := range map[string]map[string]string{
		"another issuer":       {"issuer": "https://evil.example.com", "jwks_uri": "https://login.example.com/keys"},
		"with a slash":         {"issuer": "https://login.example.com/", "jwks_uri": "https://login.example.com/keys"},
		"keys without a place": {"issuer": "https://login.example.com"},
		"keys in plain text":   {"issuer": "https://login.example.com", "jwks_uri": "http://login.example.com/keys"},
		"keys in a file":       {"issuer": "https://login.example.com", "jwks_uri": "file:///etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			s := authtest.New(t)
			text, _ := json.Marshal(document)
			for _, path := range []string{authtest.Metadata, authtest.OAuth} {
				s.Answer(path, func(w http.ResponseWriter, _ *http.Request) { w.Write(text) })
			}
			p := auth.NewProviders(s.Client())
			defer p.Close()
			g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
			wantOut(t, g, s.Token(t, s.Claims(resource, nil)), 503, "")
			if st := p.Status(); st[0].Usable || !strings.Contains(st[0].Err, "its metadata ") {
				t.Errorf("the status is %+v", st)
			}
			if n := s.Asked(authtest.Keys); n > 0 {
				t.Errorf("its keys were fetched %d times", n)
			}
		})
	}
}

// TestKeysElsewhere: keys on another host than the issuer's are fetched as from an untrusted URL.
func TestKeysElsewhere(t *testing.T) {
	for _, row := range []struct {
		at, fixed string
		strangers bool
	}{{"https://login.example.com/keys", "", false}, {"https://LOGIN.example.com:443/keys", "", false},
		{"https://keys.example.net/keys", "", true}, {"", "https://keys.example.net/keys", false}} {
		s, other := authtest.New(t), authtest.New(t)
		s.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"issuer":"` + s.URL + `","jwks_uri":"` + row.at + `"}`))
		})
		other.SetKeys(authtest.NewKey(t, "ec", jose.ES256))
		p := auth.NewProviders(s.Client())
		t.Cleanup(p.Close)
		p.Untrusted = other.Client()
		g := (&auth.Config{JWT: []auth.Issuer{entry(s, func(i *auth.Issuer) { i.JWKSURL = row.fixed })}}).Guard(p,
			publicURL, nil)
		signs, not := s, other
		if row.strangers {
			signs, not = other, s
		}
		wantIn(t, g, signs.Token(t, s.Claims(resource, nil)))
		wantOut(t, g, not.Token(t, s.Claims(resource, nil)), 401, "not signed by a key of its issuer")
	}
}

// TestMetadataPlaces: the metadata URLs of an issuer with a path, by both standards.
func TestMetadataPlaces(t *testing.T) {
	for _, path := range []string{"/realms/main" + authtest.Metadata, authtest.OAuth + "/realms/main"} {
		s := authtest.New(t)
		base := s.URL
		s.URL += "/realms/main"
		s.Answer(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"issuer":"` + s.URL + `","jwks_uri":"` + base + authtest.Keys + `"}`))
		})
		g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
		wantIn(t, g, s.Token(t, s.Claims(resource, nil)))
	}
}

// TestBadDocuments: documents that are too large, too slow, redirected or malformed are rejected in
// bounded time.
func TestBadDocuments(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"50 MB":    authtest.Large(50 << 20),
		"dripping": authtest.Dripping(50 * time.Millisecond),
		"redirect": func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"no keys": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := authtest.Start(t)
			s.Answer(authtest.Keys, answer)
			s.Answer("/elsewhere", func(w http.ResponseWriter,
				_ *http.Request) {
				json.NewEncoder(w).Encode(s.KeySet())
			})
			p := auth.NewProviders(nil)
			t.Cleanup(p.Close)
			g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
			began := time.Now()
			wantOut(t, g, s.Token(t, s.Claims(resource, nil)), 503, "")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := s.Asked("/elsewhere"); n > 0 {
				t.Error("a redirect was followed")
			}
		})
	}
}

// TestLargeDocuments: only a bounded part of a large document is read.
func TestLargeDocuments(t *testing.T) {
	s := authtest.Start(t)
	taken := make(chan int, 10)
	s.Answer(authtest.Keys, func(w http.ResponseWriter, r *http.Request) {
		counted := &counter{ResponseWriter: w}
		authtest.Large(50<<20)(counted, r)
		taken <- counted.n
	})
	p := auth.NewProviders(nil)
	t.Cleanup(p.Close)
	g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
	wantOut(t, g, s.Token(t, s.Claims(resource, nil)), 503, "")
	if n := <-taken; n > 20<<20 { // what the system buffers on the way is much less
		t.Errorf("%d bytes were taken", n)
	}
}

// counter counts what is written.
type counter struct {
	http.ResponseWriter
	n int
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += n
	return n, err
}

// TestUselessKeys: an unusable key does not affect the others.
func TestUselessKeys(t *testing.T) {
	s, _ := server(t)
	good := s.KeySet().Keys[0]
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	token := s.Token(t, s.Claims(resource, nil))
	encryption := good
	encryption.Use = "enc"
	forEncryption, _ := json.Marshal(encryption)
	for name, row := range map[string]struct {
		keys   string
		status int
	}{
		"beside a shared one": {`{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0","kid":"rsa"},` + string(text),
			0},
		"beside unknown ones":      {`{"kty":"new"},{"kty":"OKP","crv":"Ed448","x":"AA"},5,"x",` + string(text), 0},
		"for encryption":           {string(forEncryption), 401},
		"for another algorithm":    {strings.Replace(string(text), "RS256", "PS256", 1), 401},
		"a shared one by its name": {`{"kty":"oct","k":"c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0","kid":"rsa"}`, 401},
	} {
		t.Run(name, func(t *testing.T) {
			s.Answer(authtest.Keys, func(w http.ResponseWriter,
				_ *http.Request) {
				w.Write([]byte(`{"keys":[` + row.keys + `]}`))
			})
			g := signIn(t, s, &auth.Config{JWT: []auth.Issuer{entry(s)}})
			if row.status == 0 {
				wantIn(t, g, token)
			} else {
				wantOut(t, g, token, row.status, "not signed by a key of its issuer")
			}
		})
	}
}

// TestKeysOutliveAnEntry: a changed entry of the same issuer keeps the keys.
func TestKeysOutliveAnEntry(t *testing.T) {
	s := authtest.New(t)
	p := auth.NewProviders(s.Client())
	t.Cleanup(p.Close)
	wantIn(t, (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil),
		s.Token(t, s.Claims(resource, nil)))
	s.SetDown(true)
	g := (&auth.Config{JWT: []auth.Issuer{entry(s,
		func(i *auth.Issuer) { i.RequiredScopes = []string{"mcp"} })}}).Guard(p, publicURL, nil)
	wantIn(t, g, s.Token(t, s.Claims(resource, map[string]any{"scope": "mcp"})))
	wantOut(t, g, s.Token(t, s.Claims(resource, nil)), 403, "insufficient_scope")
}

// FuzzDocuments: whatever an issuer publishes, a token that none of its keys has signed is
// rejected.
func FuzzDocuments(f *testing.F) {
	s := authtest.New(f)
	text, err := json.Marshal(s.KeySet())
	if err != nil {
		f.Fatal(err)
	}
	good := `{"issuer":"` + s.URL + `","jwks_uri":"` + s.URL + authtest.Keys + `"}`
	for _, keys := range []string{string(text), `{"keys":[]}`, `{"keys":[{"kty":"oct","k":"AAAA","kid":"rsa"}]}`,
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"rsa"}]}`, `{"keys":null}`, `[]`, ``} {
		f.Add(good, keys)
	}
	f.Add(`{"issuer":"`+s.URL+`","issuer":"https://evil.example"}`, string(text))
	token := authtest.NewKey(f, "rsa", jose.RS256).Token(f, s.Claims(resource, nil)) // by a key that nobody has
	f.Fuzz(func(t *testing.T, metadata, keys string) {
		s.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, metadata) })
		s.Answer(authtest.OAuth, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, metadata) })
		s.Answer(authtest.Keys, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, keys) })
		p := auth.NewProviders(s.Client())
		defer p.Close()
		g := (&auth.Config{JWT: []auth.Issuer{entry(s)}}).Guard(p, publicURL, nil)
		if who, resp := ask(t, g, "POST", "/mcp", bearerOf(token)); who != nil || resp.StatusCode != 401 &&
			resp.StatusCode != 503 {
			t.Errorf("with %s and %s: %+v, %d", metadata, keys, who, resp.StatusCode)
		}
	})
}
