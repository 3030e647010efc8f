package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

const audience = "https://mcp.example.com/mcp"

// bearing returns a caller that shows a token; token returns the newest one.
func bearing(t *testing.T, p *harness.Program, token func() string) *harness.Caller {
	t.Helper()
	c := harness.MustCaller(t, p.URL, harness.ModernEra)
	c.HTTP.Transport = bearer{c.HTTP.Transport, token}
	return c
}

type bearer struct {
	http.RoundTripper
	token func() string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+b.token())
	return b.RoundTripper.RoundTrip(r)
}

// mustTrust starts the program with people of a provider.
func mustTrust(t *testing.T, s *authtest.Server) *harness.Program {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.MustProgram(t, "public_url: https://mcp.example.com\nauth: { jwt: [{ issuer: "+s.URL+", audiences: ["+
		audience+"] }] }\nupstreams: { up: { url: \""+config.URL+"\" } }\n")
	p.MustReady(t, harness.Patience)
	return p
}

// TestFaultProvider breaks a provider in each way while signed-in users make calls, which all
// succeed. A user whose token has a key that Junction does not know yet gets an error with the
// advice to try again, and gets in when the provider works again.
func TestFaultProvider(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	for name, fault := range map[string]http.HandlerFunc{
		"is down":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"is slow":             authtest.Dripping(100 * time.Millisecond),
		"answers with a page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>We will be back soon.</html>") },
	} {
		t.Run(name, func(t *testing.T) {
			s := authtest.Start(t)
			p := mustTrust(t, s)
			known := s.Token(t, s.Claims(audience, nil))
			old := bearing(t, p, func() string { return known })
			signedIn := load.Start(t, 2, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, old, "up__echo", `{"a":1}`)
			})
			signedIn.AwaitCalls(50)
			next := authtest.NewKey(t, "next", jose.ES256)
			s.SetKeys(append(s.Keys(), next)...)
			s.Answer(authtest.Keys, fault)
			fresh := next.Token(t, s.Claims(audience, map[string]any{"sub": "bob"}))
			bob := bearing(t, p, func() string { return fresh })
			arriving := load.Start(t, 1, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, bob, "up__echo", `{"a":1}`)
			})
			arriving.AwaitFailures(3)
			signedIn.AwaitCalls(200)
			s.Answer(authtest.Keys, nil)
			over := time.Now()
			arriving.AwaitCalls(50)
			arriving.Stop()
			mustLoseNothing(t, signedIn)
			report(t, "the provider "+name+", for a new person", arriving.Figures(over))
		})
	}
}

// TestFaultClock has a provider whose clock is an hour ahead or behind, as after a jump of one of
// the two clocks. The error says which, and the user gets in when the clocks agree again.
func TestFaultClock(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	for _, test := range []struct {
		name, want string
		ahead      time.Duration
	}{
		{"an hour behind that of the provider", "not valid yet", time.Hour},
		{"two hours before that of the provider", "is expired", -2 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := authtest.Start(t)
			p := mustTrust(t, s)
			ahead := test.ahead
			token := func() string {
				now := time.Now().Add(ahead)
				return s.Token(t, s.Claims(audience, map[string]any{"iat": now.Unix(), "nbf": now.Unix(),
					"exp": now.Add(time.Hour).Unix()}))
			}
			wrong, right := token(), ""
			ahead = 0
			right = token()
			c := bearing(t, p, func() string { return right })
			signedIn := load.Start(t, 2, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, c, "up__echo", `{"a":1}`)
			})
			d := bearing(t, p, func() string { return wrong })
			arriving := load.Start(t, 1, func(ctx context.Context, i, n int) error {
				return load.Call(ctx, d, "up__echo", `{"a":1}`)
			})
			arriving.AwaitFailures(3)
			arriving.Stop()
			signedIn.AwaitCalls(50)
			mustLoseNothing(t, signedIn)
			f := arriving.Figures(time.Time{})
			if said := strings.Join(f.Texts, "\n"); !strings.Contains(said, test.want) || f.Lost != f.Calls {
				t.Errorf("people read %q, want %q, and no call succeeds: %v", said, test.want, f)
			}
			report(t, "our clock is "+test.name, f)
		})
	}
}
