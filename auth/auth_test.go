package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
)

// mustHash returns the hash of a key.
func mustHash(t testing.TB, key string) auth.Hash {
	t.Helper()
	h, err := auth.HashKey(key)
	if err != nil {
		t.Fatalf("HashKey of a key that NewKey made: %v", err)
	}
	return h
}

// verify is a Verifier made of a function; it has no Still.
type verify func(token string, from netip.Addr) (*auth.Principal, error)

func (v verify) Verify(_ context.Context, token string, from netip.Addr) (*auth.Principal, error) {
	return v(token, from)
}

// ask sends a request through a guard, whose log is searched for secrets.
func ask(t testing.TB, g *auth.Guard, method, target string, header http.Header) (*auth.Principal, *http.Response) {
	t.Helper()
	if g != nil && g.Log == nil {
		logged := *g
		logged.Log = authtest.Log(t)
		g = &logged
	}
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "127.0.0.1:1234"
	for k, v := range header {
		r.Header[k] = v
	}
	for _, v := range header["Authorization"] {
		_, token, _ := strings.Cut(v, " ")
		authtest.Secret("what a client shows", token)
	}
	w := httptest.NewRecorder()
	return g.Authenticate(w, r), w.Result()
}

func authorization(values ...string) http.Header { return http.Header{"Authorization": values} }

func TestGuard(t *testing.T) {
	key := auth.NewKey()
	g := &auth.Guard{Verifier: auth.Keys([]auth.Key{{Name: "ci", Hash: mustHash(t, key)}}, nil)}
	unauthorized, unclear := `Bearer realm="junction"`,
		`Bearer realm="junction", error="invalid_request", error_description="`
	invalid := `Bearer realm="junction", error="invalid_token", error_description="the token is not valid: `
	for _, test := range []struct {
		name      string
		target    string
		header    http.Header
		status    int
		challenge string // how it begins; whole where there is no error
	}{
		{"the key", "/mcp", authorization("Bearer " + key), 0, ""},
		{"case of the scheme", "/mcp", authorization("bEARER " + key), 0, ""},
		{"spaces", "/mcp", authorization(" Bearer   " + key + " "), 0, ""},
		{"another parameter", "/mcp?profile=x&jct=1", authorization("Bearer " + key), 0, ""},
		{"none", "/mcp", nil, 401, unauthorized},
		{"another scheme", "/mcp", authorization("Basic " + key), 401, unauthorized},
		{"the key as the scheme", "/mcp", authorization(key), 401, unauthorized},
		{"cookie", "/mcp", http.Header{"Cookie": {"Authorization=Bearer " + key + "; key=" + key}}, 401, unauthorized},
		{"another header", "/mcp", http.Header{"X-Api-Key": {key}, "Proxy-Authorization": {"Bearer " + key}}, 401,
			unauthorized},
		{"unknown key", "/mcp", authorization("Bearer " + auth.NewKey()), 401,
			invalid + "this server does not know the key"},
		{"other token", "/mcp", authorization("Bearer eyJhbGciOiJub25lIn0.e30."), 401,
			invalid + "this server does not know the key"},
		{"two headers", "/mcp", authorization("Bearer "+key, "Bearer "+key), 400,
			unclear + "the request has more than one"},
		{"good and empty", "/mcp", authorization("Bearer "+key, ""), 400, unclear + "the request has more than one"},
		{"two in one", "/mcp", authorization("Bearer " + key + ", Bearer " + key), 400,
			unclear + "the Authorization header is malformed"},
		{"empty", "/mcp", authorization(""), 400, unclear + "the Authorization header is malformed"},
		{"no token", "/mcp", authorization("Bearer"), 400, unclear + "the Authorization header is malformed"},
		{"only padding", "/mcp", authorization("Bearer =="), 400, unclear + "the Authorization header is malformed"},
		{"tab", "/mcp", authorization("Bearer\t" + key), 400, unclear + "the Authorization header is malformed"},
		{"comma", "/mcp", authorization("Bearer," + key), 400, unclear + "the Authorization header is malformed"},
		{"quoted", "/mcp", authorization(`Bearer "` + key + `"`), 400, unclear + "the Authorization header is " +
			"malformed"},
		{"in the query", "/mcp?key=" + key, authorization("Bearer " + key), 400,
			unclear + "tokens in URLs end up in logs"},
		{"in the query alone", "/mcp?x=1&whatever=" + key, nil, 400, unclear + "tokens in URLs end up in logs"},
		{"escaped in the query", "/mcp?k=%6Act_key_", nil, 400, unclear + "tokens in URLs end up in logs"},
		{"badly escaped in the query", "/mcp?k=jct_key_%zz", nil, 400, unclear + "tokens in URLs end up in logs"},
		{"after a semicolon", "/mcp?a=b;k=" + key, nil, 400, unclear + "tokens in URLs end up in logs"},
		{"as a parameter's name", "/mcp?" + key, nil, 400, unclear + "tokens in URLs end up in logs"},
		{"by its name", "/mcp?access_token=abc", authorization("Bearer " + key), 400,
			unclear + "tokens in URLs end up in logs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, method := range []string{"POST", "GET", "HEAD", "DELETE", "PUT"} {
				p, resp := ask(t, g, method, test.target, test.header)
				if test.status == 0 {
					if p == nil || p.Kind != auth.KindKey || p.ID != "key:ci" || p.Key != "ci" || p.Grant != "" ||
						!p.Expires.IsZero() {
						t.Fatalf("%s: got %+v and status %d, want key:ci", method, p, resp.StatusCode)
					}
					continue
				}
				if p != nil {
					t.Fatalf("%s: let in as %s", method, p.ID)
				}
				got := resp.Header.Get("WWW-Authenticate")
				if resp.StatusCode != test.status || !strings.HasPrefix(got, test.challenge) ||
					test.challenge == unauthorized && got != unauthorized {
					t.Errorf("%s: got %d and %q, want %d and %q", method, resp.StatusCode, got, test.status,
						test.challenge)
				}
				mustSay(t, resp)
			}
		})
	}
}

// mustSay checks the body of a rejection, and that it is not cached.
func mustSay(t *testing.T, resp *http.Response) {
	t.Helper()
	var body map[string]string
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || len(body) != 2 || body["error"] == "" ||
		body["error_description"] == "" {
		t.Errorf("the body is %v (%v), want error and error_description", body, err)
	}
	if challenge := resp.Header.Get("WWW-Authenticate"); strings.Contains(challenge, "error=") &&
		!strings.Contains(challenge, `error="`+body["error"]+`", error_description="`+body["error_description"]+`"`) {
		t.Errorf("the challenge %q does not say what the body says: %v", challenge, body)
	}
	if auth.HoldsKey(body["error_description"]) {
		t.Errorf("the body shows a key: %v", body)
	}
	if h := resp.Header; h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/json" {
		t.Errorf("the header is %v, want no-store and JSON", h)
	}
}

func TestGuardNobody(t *testing.T) {
	p, resp := ask(t, nil, "POST", "/mcp", authorization("Bearer "+auth.NewKey()))
	if p != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a nil Guard gives %v and %d, want nobody and 503", p, resp.StatusCode)
	}
	mustSay(t, resp)
	var none *auth.Guard
	if none.Still(auth.Local) {
		t.Error("a nil Guard would still let somebody in")
	}
	empty := &auth.Guard{Verifier: auth.Keys(nil, nil)}
	if p, resp := ask(t, empty, "POST", "/mcp", authorization("Bearer "+auth.NewKey())); p != nil ||
		resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a Verifier without keys gives %v and %d, want nobody and 401", p, resp.StatusCode)
	}
}

func TestGuardLocal(t *testing.T) {
	g := &auth.Guard{}
	for _, test := range []struct{ remote, want string }{
		{"127.0.0.1:1", "127.0.0.1"}, {"[::1]:1", "::1"}, {"[::ffff:127.0.0.1]:1", "127.0.0.1"},
		{"192.0.2.7:1", "192.0.2.7"}, {"pipe", "invalid IP"},
	} {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.RemoteAddr = test.remote
		p := g.Authenticate(httptest.NewRecorder(), r)
		if p == nil || p.Kind != auth.KindLocal || p.ID != "local" || p.Address.String() != test.want || !g.Still(p) {
			t.Errorf("from %s: got %+v, want local from %s", test.remote, p, test.want)
		}
	}
	if auth.Local.Address.String() != "127.0.0.1" {
		t.Errorf("Local was written to: %+v", auth.Local)
	}
	for _, remote := range []string{"127.0.0.1:1", "[::1]:1"} {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.RemoteAddr = remote
		r.Header.Set("Authorization", "Bearer anything")
		if n := testing.AllocsPerRun(100, func() { g.Authenticate(nil, r) }); n != 0 {
			t.Errorf("%v allocations for a local request from %s, want none", n, remote)
		}
	}
	if p, resp := ask(t, g, "POST", "/mcp?k="+auth.NewKey(), nil); p != nil ||
		resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a key in the query gives %v and %d, want 400 also where none is needed", p, resp.StatusCode)
	}
}

// TestGuardUnavailable: a failed check answers 503; the request is not accepted, and the client
// keeps its token.
func TestGuardUnavailable(t *testing.T) {
	for name, v := range map[string]verify{
		"error": func(string, netip.Addr) (*auth.Principal, error) {
			return auth.Local, errors.New("the database is down")
		},
		"nothing": func(string, netip.Addr) (*auth.Principal, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := &auth.Guard{Verifier: v}
			p, resp := ask(t, g, "POST", "/mcp", authorization("Bearer abc"))
			if p != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" ||
				resp.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("got %v, %d and %v, want 503, Retry-After and no challenge", p, resp.StatusCode, resp.Header)
			}
			mustSay(t, resp)
			if g.Still(auth.Local) {
				t.Error("a Verifier without Still keeps a principal")
			}
		})
	}
}

// TestGuardReason: the reason is quoted safely, whatever it contains.
func TestGuardReason(t *testing.T) {
	g := &auth.Guard{Verifier: verify(func(string, netip.Addr) (*auth.Principal, error) {
		return nil, fmt.Errorf("%w: a \"quote\", a \\, a line\r\nX-Evil: 1, an ä", auth.ErrInvalidToken)
	})}
	_, resp := ask(t, g, "POST", "/mcp", authorization("Bearer abc"))
	const want = `Bearer realm="junction", error="invalid_token", error_description="the token is not valid: a quote, a , a lineX-Evil: 1, an "`
	if got := resp.Header.Get("WWW-Authenticate"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.1.2.3/32"), netip.MustParsePrefix("10.9.0.0/16"),
		netip.MustParsePrefix("2001:db8::/64")}
	for _, test := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"direct", "203.0.113.7:1", nil, "203.0.113.7"},
		{"direct, spoofed", "203.0.113.7:1", []string{"10.0.0.1"}, "203.0.113.7"},
		{"through the proxy", "10.1.2.3:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"spoofed through the proxy", "10.1.2.3:1", []string{"10.0.0.1, 203.0.113.7"}, "203.0.113.7"},
		{"spoofed as the proxy", "10.1.2.3:1", []string{"10.1.2.3, 203.0.113.7"}, "203.0.113.7"},
		{"spoofed in a line of its own", "10.1.2.3:1", []string{"10.0.0.1", "203.0.113.7"}, "203.0.113.7"},
		{"two proxies", "10.1.2.3:1", []string{"10.0.0.1, 203.0.113.7, 10.9.1.1"}, "203.0.113.7"},
		{"two proxies in two lines", "10.1.2.3:1", []string{"10.0.0.1, 203.0.113.7", "10.9.1.1"}, "203.0.113.7"},
		{"from a proxy itself", "10.1.2.3:1", nil, "10.1.2.3"},
		{"all trusted", "10.1.2.3:1", []string{"10.9.0.1, 10.9.0.2"}, "10.9.0.1"},
		{"unknown", "10.1.2.3:1", []string{"203.0.113.7, unknown"}, "invalid IP"},
		{"unknown before", "10.1.2.3:1", []string{"unknown, 203.0.113.7"}, "203.0.113.7"},
		{"empty line", "10.1.2.3:1", []string{"203.0.113.7", ""}, "invalid IP"},
		{"empty entry", "10.1.2.3:1", []string{"203.0.113.7,"}, "invalid IP"},
		{"with a port", "10.1.2.3:1", []string{"203.0.113.7:99"}, "203.0.113.7"},
		{"IPv6", "10.1.2.3:1", []string{"2001:db8:1::5"}, "2001:db8:1::5"},
		{"IPv6 in brackets", "10.1.2.3:1", []string{"[2001:db8:1::5]"}, "2001:db8:1::5"},
		{"IPv6 with a port", "10.1.2.3:1", []string{"[2001:db8:1::5]:99"}, "2001:db8:1::5"},
		{"half a bracket", "10.1.2.3:1", []string{"[2001:db8:1::5"}, "invalid IP"},
		{"IPv4 in IPv6", "10.1.2.3:1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{"proxy as IPv4 in IPv6", "[::ffff:10.1.2.3]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"IPv6 proxy", "[2001:db8::1]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"IPv6 proxy with a zone", "[2001:db8::1%eth0]:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"neighbour of the proxy", "10.1.2.4:1", []string{"203.0.113.7"}, "10.1.2.4"},
		{"no address", "@", []string{"203.0.113.7"}, "invalid IP"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got netip.Addr
			g := &auth.Guard{TrustedProxies: trusted,
				Verifier: verify(func(_ string, from netip.Addr) (*auth.Principal, error) {
					got = from
					return auth.Local, nil
				})}
			r := httptest.NewRequest("POST", "/mcp", nil)
			r.RemoteAddr = test.remote
			r.Header = http.Header{"Authorization": {"Bearer abc"}, "X-Forwarded-For": test.forwarded}
			if g.Authenticate(httptest.NewRecorder(), r) == nil || got.String() != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func FuzzAuthorization(f *testing.F) {
	key := auth.NewKey()
	for _, s := range []string{"Bearer " + key, "bearer  " + key, "Bearer", "Basic abc", "Bearer a,b", key, "",
		"Bearer " + key + ", Bearer " + key, "\x00"} {
		f.Add(s, "a=b&c="+s)
	}
	g := &auth.Guard{Verifier: auth.Keys([]auth.Key{{Name: "ci", Hash: mustHash(f, key)}},
		func() time.Time { return time.Time{} })}
	f.Fuzz(func(t *testing.T, header, query string) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.URL.RawQuery = query
		r.Header["Authorization"] = []string{header}
		w := httptest.NewRecorder()
		p := g.Authenticate(w, r)
		scheme, rest, _ := strings.Cut(strings.Trim(header, " \t"), " ")
		if right := strings.EqualFold(scheme, "Bearer") && strings.TrimLeft(rest, " ") == key; p != nil && !right {
			t.Errorf("Authorization: %q was let in", header)
		}
		if p != nil && strings.Contains(query, "=jct_") {
			t.Errorf("the query %q was let in", query)
		}
		if p == nil && w.Code != 400 && w.Code != 401 {
			t.Errorf("refused with %d", w.Code)
		}
		if p == nil && strings.Contains(w.Body.String()+w.Header().Get("WWW-Authenticate"), key) {
			t.Errorf("the refusal of %q shows the key", header)
		}
	})
}
