package auth_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
)

func introspects(s *authtest.Server, change ...func(*auth.Introspection)) *auth.Config {
	i := &auth.Introspection{TokenRules: auth.TokenRules{Issuer: s.URL, Audiences: []string{resource}},
		Endpoint: s.URL + authtest.Introspect, ClientID: authtest.ClientID, ClientSecret: authtest.ClientSecret}
	for _, f := range change {
		f(i)
	}
	return &auth.Config{Introspection: i}
}

func TestIntrospection(t *testing.T) {
	s := authtest.New(t)
	now := time.Now().Unix()
	said := func(change map[string]any) map[string]any { return s.Claims(resource, change) }
	for _, row := range []struct {
		name   string
		said   map[string]any
		status int
		reason string
	}{
		{"good", said(nil), 0, ""},
		{"no end, no issuer", said(map[string]any{"exp": nil, "iss": nil}), 0, ""},
		{"a program", said(map[string]any{"sub": nil}), 0, ""},
		{"unknown", nil, 401, "its issuer says that it is not active"},
		{"active in another way", said(map[string]any{"active": "true"}), 401, "its issuer says that it is not active"},
		{"for another API", said(map[string]any{"aud": "https://other.example.com"}), 401,
			"its audience is https://other.example.com"},
		{"for nobody", said(map[string]any{"aud": nil}), 401, "has no audience"},
		{"of another issuer", said(map[string]any{"iss": "https://evil.example.com"}), 401,
			"its issuer is not configured"},
		{"expired", said(map[string]any{"exp": now - 5}), 401, "it is expired"},
		{"bound", said(map[string]any{"cnf": map[string]any{}}), 401, "sender-constrained"},
		{"of nobody", said(map[string]any{"sub": nil, "client_id": nil}), 401, "no valid subject"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := signIn(t, s, introspects(s))
			token := "opaque-" + strings.ReplaceAll(row.name, " ", "-")
			token = strings.ReplaceAll(token, ",", "")
			s.Opaque(token, row.said)
			before := s.Asked(authtest.Introspect)
			for range 3 {
				if row.status == 0 {
					wantIn(t, g, token)
				} else {
					wantOut(t, g, token, row.status, row.reason)
				}
			}
			if n := s.Asked(authtest.Introspect) - before; n != 1 {
				t.Errorf("the server was asked %d times, want once", n)
			}
		})
	}
	g := signIn(t, s, introspects(s, func(i *auth.Introspection) { i.RequiredScopes = []string{"mcp"} }))
	s.Opaque("narrow", said(map[string]any{"scope": "other"}))
	wantOut(t, g, "narrow", 403, `scope="mcp"`)
	if p, resp := ask(t, g, "POST", "/mcp/files", bearerOf("narrow")); p != nil || resp.StatusCode != 403 {
		t.Errorf("got %v, %d", p, resp.StatusCode)
	}
}

// TestIntrospectionMemory: how long an answer is cached, for calls and for open streams.
func TestIntrospectionMemory(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		asked := func() int { return s.Asked(authtest.Introspect) }
		s.Opaque("good", s.Claims(resource, nil))
		s.Opaque("short", s.Claims(resource, map[string]any{"exp": time.Now().Unix() + 20}))
		who := wantIn(t, g, "good")
		wantIn(t, g, "short")
		wantOut(t, g, "bad", 401, "not active")
		n := asked()
		time.Sleep(9 * time.Second)
		wantIn(t, g, "good")
		wantOut(t, g, "bad", 401, "not active")
		if asked() != n {
			t.Error("the server was asked again within 10 s")
		}
		time.Sleep(2 * time.Second)
		s.Opaque("bad", s.Claims(resource, nil))
		wantIn(t, g, "bad")
		time.Sleep(9 * time.Second)
		wantOut(t, g, "short", 401, "it is expired")

		// A revocation takes effect within a minute, for calls and for streams.
		n = asked()
		time.Sleep(15 * time.Second) // 35 s after the answer
		if !g.Still(who) || asked() != n {
			t.Errorf("after 35 s: still %v, asked %d times", g.Still(who), asked()-n)
		}
		s.Opaque("good", nil)
		time.Sleep(6 * time.Second)
		g.Still(who)
		synctest.Wait()
		if g.Still(who) {
			t.Error("what has begun goes on after the revocation")
		}
		wantOut(t, g, "good", 401, "not active")
	})
}

// TestIntrospectionOfARevokedToken: without checks of streams, an answer is valid for a minute.
func TestIntrospectionOfARevokedToken(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		s.Opaque("good", s.Claims(resource, nil))
		wantIn(t, g, "good")
		s.Opaque("good", nil)
		time.Sleep(time.Minute - 1)
		wantIn(t, g, "good")
		time.Sleep(time.Nanosecond)
		wantOut(t, g, "good", 401, "not active")
	})
}

// TestOursAreAskedAboutNowhere: a token of our form is never sent to another server.
func TestOursAreAskedAboutNowhere(t *testing.T) {
	s := authtest.New(t)
	g := signIn(t, s, introspects(s))
	for _, token := range []string{"jct_at_abc", "jct_rt_abc", "jct_ac_abc", "jct_", auth.NewKey()} {
		wantOut(t, g, token, 401, "")
	}
	if n := s.Asked(authtest.Introspect); n != 0 {
		t.Errorf("another server was asked about them %d times", n)
	}
}

// TestIntrospectionOutage: an outage does not make clients drop their tokens.
func TestIntrospectionOutage(t *testing.T) {
	s := authtest.New(t)
	answers := map[string]http.HandlerFunc{
		"500":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"401, to us": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"null":       func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("null")) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"much too big": authtest.Large(1 << 20),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			p := auth.NewProviders(s.Client())
			defer p.Close()
			g := introspects(s).Guard(p, publicURL, nil)
			s.Answer(authtest.Introspect, answer)
			s.Opaque("good", s.Claims(resource, nil))
			wantOut(t, g, "good", 503, "")
			if st := p.Status(); len(st) != 1 || st[0].Usable || st[0].Err == "" {
				t.Errorf("the status is %+v", st)
			}
			s.Answer(authtest.Introspect, nil)
			wantIn(t, g, "good")
			if st := p.Status(); !st[0].Usable || st[0].Err != "" {
				t.Errorf("the status is %+v", st)
			}
		})
	}
}

// TestIntrospectionAtOnce: concurrent requests with one token share one query.
func TestIntrospectionAtOnce(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		s.Answer(authtest.Introspect, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			w.Write([]byte(`{"active":true,"aud":"` + resource + `","sub":"ann"}`))
		})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { wantIn(t, g, "good") })
		}
		all.Wait()
		if n := s.Asked(authtest.Introspect); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
	})
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestIntrospectionCloses: Close waits for running queries, also abandoned ones, and no further
// query begins.
func TestIntrospectionCloses(t *testing.T) {
	s := authtest.New(t)
	for name, begin := range map[string]func(t *testing.T, g *auth.Guard, hang func()){
		"of a call that has gone": func(t *testing.T, g *auth.Guard, hang func()) {
			hang()
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if p, err := g.Verifier.Verify(ctx, "good", auth.Local.Address); p != nil || err != context.Canceled {
					t.Errorf("Verify = %v, %v", p, err)
				}
			}()
			synctest.Wait()
			cancel()
			<-gone
		},
		"of what goes on": func(t *testing.T, g *auth.Guard, hang func()) {
			who := wantIn(t, g, "good")
			hang()
			time.Sleep(45 * time.Second)
			if !g.Still(who) {
				t.Error("it does not go on")
			}
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.Opaque("good", s.Claims(resource, nil))
				var hangs, ended, asked int
				p := auth.NewProviders(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response,
					error) {
					if asked++; hangs == 0 {
						return s.Client().Transport.RoundTrip(r)
					}
					<-r.Context().Done()
					time.Sleep(time.Second) // it takes a moment to stop
					ended++
					return nil, r.Context().Err()
				})})
				g := introspects(s).Guard(p, publicURL, nil)
				begin(t, g, func() { hangs++ })
				before, began := asked, time.Now()
				p.Close()
				if took := time.Since(began); ended != 1 || took != time.Second {
					t.Errorf("closed after %v, when %d of one question had ended", took, ended)
				}
				wantOut(t, g, "other", 503, "")
				if asked != before {
					t.Error("a question has begun after that")
				}
			})
		})
	}
}

// TestBoth: a readable token is verified by its issuer, and any other one by introspection.
func TestBoth(t *testing.T) {
	s := authtest.New(t)
	c := introspects(s, func(i *auth.Introspection) { i.Issuer = "https://as.example.com" })
	c.JWT = []auth.Issuer{entry(s)}
	g := signIn(t, s, c)
	p := wantIn(t, g, s.Token(t, s.Claims(resource, nil)))
	if s.Asked(authtest.Introspect) != 0 {
		t.Error("the server is asked about a token that can be read")
	}
	s.Opaque("opaque", s.Claims(resource, map[string]any{"iss": nil}))
	q := wantIn(t, g, "opaque")
	if p.User != "ann" || q.User != "ann" || p.ID == q.ID {
		t.Errorf("one subject of two issuers is %s and %s", p.ID, q.ID)
	}
	foreign := s.Token(t, s.Claims(resource, map[string]any{"iss": "https://as.example.com"}))
	s.Opaque(foreign, s.Claims(resource, map[string]any{"iss": "https://as.example.com"}))
	wantIn(t, g, foreign)
	wantOut(t, g, s.Token(t, s.Claims(resource, map[string]any{"aud": "x"})), 401, "its audience is x")
	if !g.Still(p) || !g.Still(q) {
		t.Error("they are over at once")
	}
}
