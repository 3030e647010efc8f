package safety

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestServerLearnsWhoCalls: with identity, a server verifies who calls with an ordinary library, on each wire. The
// statement is of the caller alone, and is for that server. Junction's own requests have none, and neither has a server
// without the section. What a client sends in the header goes nowhere.
func TestServerLearnsWhoCalls(t *testing.T) {
	harness.Waits(t)
	const issuer = "https://junction.example.com"
	var entries, keys strings.Builder
	servers := map[string]*upstreamtest.Journal{}
	for name, p := range map[string]harness.Pair{
		"legacy": {Upstream: client.EraLegacy, Transport: "http"}, "modern": {Upstream: client.EraModern, Transport: "http"},
		"sse": {Upstream: client.EraLegacy, Transport: "sse"}, "plain": {Upstream: client.EraModern, Transport: "http"},
	} {
		s := p.Serve(t, upstreamtest.Script{})
		servers[name] = s.Journal
		fmt.Fprintf(&entries, "  %s:\n    url: %s\n", name, s.Config.URL)
		if name != "plain" {
			// over several processes, one of them makes the calls of all
			fmt.Fprintf(&entries, "    stateful: true\n    identity: { audience: https://%s.example.com, claims: [email, groups, client] }\n", name)
		}
	}
	secrets := map[string]string{}
	for _, name := range []string{"ann", "bob"} {
		key := auth.NewKey()
		authtest.Secret("an API key", key)
		hash, err := auth.HashKey(key)
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = key
		fmt.Fprintf(&keys, "    - { name: %s, hash: %q }\n", name, hash.String())
	}
	p := harness.MustProgram(t, "public_url: "+issuer+"\nauth:\n  api_keys:\n"+keys.String()+
		"policies: [{ name: all, rules: [{ allow: { upstreams: \"*\" } }] }]\nupstreams:\n"+entries.String())
	p.MustReady(t, harness.Patience)
	set := oidc.NewRemoteKeySet(t.Context(), p.Origin()+"/oauth/jwks.json")
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for name, journal := range servers {
			for caller, key := range secrets {
				c := &harness.Talker{URL: p.URL, Era: era, Version: "2025-11-25", Capabilities: harness.AllCapabilities, Name: "c", Key: key}
				c.Start(t)
				mark := fmt.Sprintf(`{"n":"%s %s %s"}`, era, name, caller)
				q := harness.Called(name+"__echo", mark)
				q.Header = http.Header{upstream.IdentityHeader: {"of the client"}}
				if m := c.Begin(t, q).Answer(t); m.Error != nil {
					t.Fatalf("the call of %s is answered %s", name, m.Append(nil))
				}
				r := harness.Await(t, journal, "call", func(r upstreamtest.Record) bool {
					return r.Message.Method == "tools/call" && strings.Contains(string(r.Body), mark)
				})
				got := r.Header.Values(upstream.IdentityHeader)
				if name == "plain" {
					if got != nil {
						t.Errorf("%s gets %q", name, got)
					}
					continue
				}
				if len(got) != 1 {
					t.Fatalf("%s gets %q", name, got)
				}
				verifier := oidc.NewVerifier(issuer, set, &oidc.Config{ClientID: "https://" + name + ".example.com",
					SupportedSigningAlgs: []string{oidc.ES256}})
				token, err := verifier.Verify(t.Context(), got[0])
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if want := "key:" + caller; token.Subject != want {
					t.Errorf("%s learns that %q calls, want %q", name, token.Subject, want)
				}
			}
		}
	})
	for name, journal := range servers {
		for _, r := range journal.Received() {
			if got := r.Header.Values(upstream.IdentityHeader); got != nil && r.Message.Method != "tools/call" {
				t.Errorf("%s gets %q with %s %s", name, got, r.Verb, r.Message.Method)
			}
		}
	}
}
