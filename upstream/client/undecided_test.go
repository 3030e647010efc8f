package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

// undecided are answers to server/discover that prove no era.
var undecided = map[string]upstreamtest.Rule{
	"401 without a challenge":     {Status: 401, Body: "unauthorized"},
	"401 with a challenge":        {Status: 401, Header: map[string]string{"WWW-Authenticate": "Bearer"}},
	"403":                         {Status: 403},
	"407":                         {Status: 407},
	"429":                         {Status: 429},
	"502":                         {Status: 502, Body: "Bad Gateway"},
	"500 with a JSON-RPC error":   {Status: 500, Error: []byte(`{"code":-32603,"message":"boom"}`)},
	"a redirect":                  {Status: 302, Header: map[string]string{"Location": "http://elsewhere/login"}},
	"a page":                      {Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: "<title>Hi</title>"},
	"202":                         {Status: 202},
	"204":                         {Status: 204},
	"null as the result":          {Result: []byte("null")},
	"null":                        {Status: 200, Header: map[string]string{"Content-Type": "application/json"}, Body: "null"},
	"an empty stream":             {Status: 200, Header: map[string]string{"Content-Type": "text/event-stream"}},
	"a body that is no message":   {Status: 200, Header: map[string]string{"Content-Type": "application/json"}, Body: "{"},
	"a connection that is closed": {Die: true},
}

// discoverRule is a rule for server/discover.
func discoverRule(r upstreamtest.Rule) upstreamtest.Rule {
	r.Method = "server/discover"
	return r
}

// wired starts a server in a bubble, and returns it with a dialer to it.
func wired(t *testing.T, script upstreamtest.Script, to target) (*upstreamtest.Server, *Dialer) {
	s := upstreamtest.New(script)
	t.Cleanup(s.Close)
	_, rt := upstreamtest.NewCable(t, s.Handler())
	to.URL = "http://server/mcp"
	return s, testDialer(t, to, rt)
}

// TestInitializeDecidesWhereDiscoverProvesNothing: an answer to server/discover that proves no era
// leads to initialize. The era is provisional: the next attempt sends server/discover again.
func TestInitializeDecidesWhereDiscoverProvesNothing(t *testing.T) {
	for name, rule := range undecided {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := wired(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{discoverRule(rule)}}, target{})
				began := time.Now()
				mustDial(t, d, isLegacy)
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %v, want no time", took)
				}
				if era, _, _ := d.known.recall(); era != EraAuto {
					t.Errorf("the dialer remembers the era %q", era)
				}
				mustDial(t, d, isLegacy)
				once := []string{"server/discover", "initialize", "notifications/initialized"}
				if got, want := s.Methods(), slices.Concat(once, once); !slices.Equal(got, want) {
					t.Errorf("the server was asked %q, want %q", got, want)
				}
			})
		})
	}
}

// TestDiscoverIsProofWhereItAnswers: a server that proves its era is remembered, and the conn says so.
func TestDiscoverIsProofWhereItAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		to     target
		want   string
		proven bool
	}{
		{"modern", upstreamtest.Script{}, target{}, isModern, true},
		{"legacy", upstreamtest.Script{Era: "legacy"}, target{}, isLegacy, true},
		{"legacy, 404", upstreamtest.Script{Era: "legacy", DiscoverFails: "404"}, target{}, isLegacy, true},
		{"legacy, silent", upstreamtest.Script{Era: "legacy", DiscoverFails: "silence"}, target{}, isLegacy, false},
		{"legacy, 401", upstreamtest.Script{Era: "legacy", DiscoverFails: "401"}, target{}, isLegacy, false},
		{"legacy, as the file says", upstreamtest.Script{}, target{Era: EraLegacy}, isLegacy, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, d := wired(t, tt.script, tt.to)
				c, err := d.Dial(t.Context(), Profile{}, Hooks{Changed: func() {}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if info := c.Info(); string(info.Era)+" "+info.Version != tt.want || info.Proven != tt.proven {
					t.Errorf("the conn is %s %s, proven %v; want %s, %v", info.Era, info.Version, info.Proven, tt.want, tt.proven)
				}
			})
		})
	}
}

// TestNothingElseLeadsToInitialize: initialize is not sent if no connection could be made, if the file
// says that the server is modern, if it has proven to be modern before, or if an error is one of the
// modern era.
func TestNothingElseLeadsToInitialize(t *testing.T) {
	rules := map[string]upstreamtest.Rule{"-32020": upstreamtest.HeaderMismatch("server/discover"),
		"-32021": {Status: 400, Error: []byte(`{"code":-32021,"message":"Missing capability"}`)},
		"-32022": upstreamtest.UnsupportedVersion("server/discover", "2027-01-01")}
	for name, rule := range undecided {
		rules["modern in the file, "+name] = rule
		rules["proven modern before, "+name] = rule
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := target{}
				if strings.HasPrefix(name, "modern in the file") {
					to.Era = EraModern
				}
				s, d := wired(t, upstreamtest.Script{Rules: []upstreamtest.Rule{discoverRule(rule)}}, to)
				if strings.HasPrefix(name, "proven") {
					d.Expect(EraModern)
				}
				if got, err := dialed(t.Context(), d); err == nil {
					t.Errorf("dial = %q, want an error", got)
				}
				if got := s.Methods(); !slices.Equal(got, []string{"server/discover"}) {
					t.Errorf("the server was asked %q, want server/discover alone", got)
				}
			})
		})
	}
	t.Run("no connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
			t.Cleanup(s.Close)
			cable, rt := upstreamtest.NewCable(t, s.Handler())
			cable.Plug(false)
			opened := 0
			d := testDialer(t, target{URL: "http://server/mcp"}, rt)
			d.options.Opened = func() { opened++ }
			if _, err := dialed(t.Context(), d); !errors.Is(err, transport.ErrNotSent) {
				t.Errorf("dial = %v, want that nothing was sent", err)
			}
			if opened != 1 || len(s.Methods()) != 0 {
				t.Errorf("%d transports were opened, and the server was asked %q", opened, s.Methods())
			}
		})
	})
}

// TestRetryAfterPassesBeforeInitialize: after 429, initialize is sent when the time of Retry-After is
// over. If that is later than the end of the attempt, the attempt ends at once.
func TestRetryAfterPassesBeforeInitialize(t *testing.T) {
	for after, want := range map[string]struct {
		dial string
		took time.Duration
	}{
		"":   {isLegacy, 0},
		"3":  {isLegacy, 3 * time.Second},
		"12": {isLegacy, 12 * time.Second}, // longer than server/discover may be silent
		"20": {"429", 0},
	} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := wired(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{
					{Method: "server/discover", Status: 429, Header: map[string]string{"Retry-After": after}}}}, target{})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				got, err := dialed(ctx, d)
				if err != nil {
					got = err.Error()
				}
				if took := time.Since(began); !strings.Contains(got, want.dial) || took != want.took {
					t.Errorf("dial = %q after %v, want %q after %v", got, took, want.dial, want.took)
				}
				if n := len(s.Methods()); want.dial == "429" && n != 1 {
					t.Errorf("the server was asked %q", s.Methods())
				}
			})
		})
	}
	t.Run("the attempt is given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, d := wired(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{
				{Method: "server/discover", Status: 429, Header: map[string]string{"Retry-After": "12"}}}}, target{})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			began := time.Now()
			if _, err := dialed(ctx, d); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
				t.Errorf("dial = %v after %v, want the end of the context after 1s", err, time.Since(began))
			}
		})
	})
}

// TestErrorOfTwoRejectedHandshakes: the error is the one that a person can use, and it has the other
// one, too.
func TestErrorOfTwoRejectedHandshakes(t *testing.T) {
	challenge := map[string]string{"WWW-Authenticate": `Bearer resource_metadata="http://server/place"`}
	plain := map[string]string{"WWW-Authenticate": `Basic realm="x"`}
	for _, tt := range []struct {
		name                 string
		discover, initialize upstreamtest.Rule
		want                 string
		method, other        string // the handshake that the text is not about
	}{
		{"initialize, as usual", upstreamtest.Rule{Status: 502}, upstreamtest.Rule{Status: 503}, "503", "server/discover", "502"},
		{"the challenge of initialize", upstreamtest.Rule{Status: 403}, upstreamtest.Rule{Status: 401, Header: challenge}, "401", "server/discover", "403"},
		{"the challenge of server/discover", upstreamtest.Rule{Status: 401, Header: challenge}, upstreamtest.Rule{Status: 500}, "401", "initialize", "500"},
		{"the better of two challenges", upstreamtest.Rule{Status: 401, Body: "discover", Header: challenge},
			upstreamtest.Rule{Status: 401, Body: "initialize", Header: plain}, "401 Unauthorized: discover", "initialize", "401 Unauthorized: initialize"},
		{"server/discover, as initialize is rejected by a modern server", upstreamtest.Rule{Status: 503},
			upstreamtest.UnsupportedVersion("initialize", "2026-07-28"), "503", "initialize", "Unsupported protocol version"},
		{"as initialize is unknown", upstreamtest.Rule{Status: 403}, upstreamtest.Rule{Status: 404, Error: []byte(`{"code":-32601,"message":"Method not found"}`)},
			"403", "initialize", "Method not found"},
		{"the same answer", upstreamtest.Rule{Status: 503}, upstreamtest.Rule{Status: 503}, "503", "", ""},
		{"initialize, as server/discover was evidence", upstreamtest.Rule{Status: 404}, upstreamtest.Rule{Status: 403}, "403", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.discover.Method, tt.initialize.Method = "server/discover", "initialize"
				_, d := wired(t, upstreamtest.Script{Rules: []upstreamtest.Rule{tt.discover, tt.initialize}}, target{Transport: TransportHTTP})
				_, err := dialed(t.Context(), d)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("dial = %v, want %q", err, tt.want)
				}
				both, ok := errors.AsType[*RejectedError](err)
				if ok != (tt.method != "") {
					t.Fatalf("the error is a RejectedError: %v", ok)
				}
				if ok && (both.Method != tt.method || !strings.Contains(both.Other.Error(), tt.other)) {
					t.Errorf("the other error is %q of %s, want %q of %s", both.Other, both.Method, tt.other, tt.method)
				}
			})
		})
	}
}

var errSignInAgain = errors.New("sign in again")

// purse is a source of tokens that counts the renewals. As auth/oauth does, it ends the sign-in after
// a second refused token.
type purse struct {
	mu      sync.Mutex
	current string
	renewed int
	ended   bool
}

func (p *purse) token(_ context.Context, refused ...string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended || len(refused) > 1 && slices.Contains(refused, p.current):
		p.ended = true
		return "", errSignInAgain
	case slices.Contains(refused, p.current):
		p.renewed++
		p.current += "+"
	}
	return p.current, nil
}

// TestAnAttemptRenewsATokenOnce: all handshakes of an attempt count as one request for the source of
// the tokens. A legacy server that answers 401 to an unknown method ends no sign-in.
func TestAnAttemptRenewsATokenOnce(t *testing.T) {
	const challenge = `Bearer resource_metadata="http://server/place"`
	for _, tt := range []struct {
		name    string
		era     string // of the server
		good    string // token; "" for none
		to      target
		expect  Era
		discard string // the challenge of 401 to server/discover, whatever the token is; "-" is none
		want    string
		renewed int
		ended   bool
	}{
		{name: "a good token", era: "modern", good: "t", want: isModern},
		{name: "an expired token, modern", era: "modern", good: "t+", want: isModern, renewed: 1},
		{name: "an expired token, legacy", era: "legacy", good: "t+", want: isLegacy, renewed: 1},
		{name: "no token is good", era: "modern", good: "", want: errSignInAgain.Error(), renewed: 1, ended: true},
		{name: "401 to the unknown method", era: "legacy", good: "t", discard: "-", want: isLegacy},
		{name: "401 to the unknown method, and an expired token", era: "legacy", good: "t+", discard: "-", want: isLegacy, renewed: 1},
		{name: "401 with a challenge to the unknown method", era: "legacy", good: "t+", discard: challenge, want: isLegacy, renewed: 1},
		{name: "modern in the file, 401 without a challenge", era: "modern", good: "", discard: "-", to: target{Era: EraModern},
			want: errSignInAgain.Error(), renewed: 1, ended: true},
		{name: "modern before, 401 without a challenge", era: "modern", good: "", discard: "-", expect: EraModern,
			want: errSignInAgain.Error(), renewed: 1, ended: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(upstreamtest.Script{Era: tt.era})
				t.Cleanup(s.Close)
				_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					discover := r.Header.Get(transport.HeaderMethod) == "server/discover"
					if token := r.Header.Get("Authorization"); token != "Bearer "+tt.good || discover && tt.discard != "" {
						switch {
						case discover && tt.discard == "-":
						case discover && tt.discard != "":
							w.Header().Set("WWW-Authenticate", tt.discard)
						default:
							w.Header().Set("WWW-Authenticate", challenge)
						}
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					s.Handler().ServeHTTP(w, r)
				}))
				p := &purse{current: "t"}
				tt.to.URL = "http://server/mcp"
				d := testDialer(t, tt.to, rt)
				d.options.Token = p.token
				if tt.expect != EraAuto {
					d.Expect(tt.expect)
				}
				mustDial(t, d, tt.want)
				if p.renewed != tt.renewed || p.ended != tt.ended {
					t.Errorf("the token was renewed %d times, and the sign-in ended %v; want %d, %v", p.renewed, p.ended, tt.renewed, tt.ended)
				}
			})
		})
	}
}
