package bridge

import (
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// Servers that speak both eras. As several SDKs do, these list only the modern version in
// server/discover.
var bothEras = upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "server/discover",
	Result: []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],` +
		`"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`)}}}

// overBoth starts a server of both eras and the proxy. Over stdio the entry has era: both.
func overBoth(t *testing.T, p harness.Pair, change func(*upstream.Config)) (*harness.Served, *harness.Junction) {
	t.Helper()
	return harness.Over(t, p, bothEras, func(c *upstream.Config) {
		if p.Transport == "stdio" {
			c.Era = client.EraBoth
		}
		if change != nil {
			change(c)
		}
	})
}

// versionOf returns the version of the protocol in which a call of the client has reached the server.
func versionOf(t *testing.T, c *harness.Talker) string {
	t.Helper()
	return strings.Trim(harness.Member(c.Succeed(t, "up__capabilities", `{}`), "structuredContent", "protocolVersion"), `"`)
}

// TestCallsGoInTheEraOfTheClient: a server of both eras gets the calls of each client as if the client
// were connected to it. So each client is asked in its own way, and both see one catalog.
func TestCallsGoInTheEraOfTheClient(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		for _, transport := range []string{"http", "stdio"} {
			harness.RunPair(t, clientEra, client.EraBoth, transport, func(t *testing.T, p harness.Pair) {
				s, j := overBoth(t, p, nil)
				c, other := j.Talk(t), harness.Talk(t, j.URL, harness.Eras[0])
				if p.Client == client.EraLegacy {
					other = harness.Talk(t, j.URL, client.EraModern)
				}
				want := map[client.Era]string{client.EraLegacy: harness.LegacyVersion, client.EraModern: harness.ModernVersion}
				for _, c := range []*harness.Talker{c, other, c} {
					if got := versionOf(t, c); got != want[c.Era] {
						t.Errorf("a call of a %s client has reached the server in %s", c.Era, got)
					}
				}
				m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
				wantQuestions(t, asked, harness.AskForm)
				if got := harness.AnswersOf(t, m); got != `[{`+harness.Accepted+`}]` {
					t.Errorf("the upstream was answered %s", got)
				}
				// It cannot be asked, so nothing is lost on the modern connection.
				mute := harness.TalkAs(t, j.URL, client.EraLegacy, "2025-11-25", `{}`)
				if got := versionOf(t, mute); got != harness.ModernVersion {
					t.Errorf("a call of a client that cannot be asked has reached the server in %s", got)
				}
				if n := len(s.RequestsOf(t, "initialize", 1)); n > harness.Processes() {
					t.Errorf("%d legacy connections, want one for all clients", n)
				}
			})
		}
	}
}

// TestOneProcessUnlessTheFileSaysOtherwise: by default a command of both eras runs once. A call that
// fails because the server cannot ask in the modern era has an error with the line that changes
// this, and so has the state of the server. No other error is changed. None of these texts is the whole sentence
// of an SDK, which TestACommandLearnsToRunTwice has.
func TestOneProcessUnlessTheFileSaysOtherwise(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraBoth, "stdio", func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, bothEras, nil)
			c := j.Talk(t)
			if got := versionOf(t, c); got != harness.ModernVersion {
				t.Errorf("the call has reached the server in %s", got)
			}
			want := map[client.Era]string{client.EraLegacy: "era: both", client.EraModern: "era: legacy"}[p.Client]
			const unrelated = "Unknown color of server-to-client cables"
			for text, explained := range map[string]bool{
				"Error: Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.": true,
				"server-to-client requests are not allowed on protocol 2026-07-28 or later":                                          true,
				"Server-to-client requests are not available on protocol revision 2026-07-28":                                        true,
				"no answer: elicitation via server-initiated requests is unavailable on 2026-07-28 connections.":                     true,
				unrelated: false,
			} {
				for _, code := range []int{-32600, -32602, -32603} {
					m := c.Call(t, "up__fail", fmt.Sprintf(`{"error":{"code":%d,"message":%q}}`, code, text))
					if m.Error == nil || !strings.Contains(m.Error.Message, text) ||
						strings.Contains(m.Error.Message, `"`+want+`" in upstreams.up`) != explained {
						t.Errorf("the error is %s; want %q, with %s: %v", m.Append(nil), text, want, explained)
					}
				}
				m := c.Call(t, "up__echo", fmt.Sprintf(
					`{"result":{"content":[{"type":"text","text":%q}],"isError":true,"structuredContent":{"n":1.50}}}`, text))
				if got := string(m.Result); !strings.Contains(got, text) || !strings.Contains(got, `{"n":1.50}`) ||
					strings.Contains(got, want) != explained {
					t.Errorf("the result is %s; want %q, with %s: %v", got, text, want, explained)
				}
			}
			success := c.Call(t, "up__echo", `{"result":{"content":[{"type":"text","text":"server-initiated requests"}]}}`)
			if strings.Contains(string(success.Result), want) {
				t.Errorf("a success is explained: %s", success.Result)
			}
			if got := j.Status("up").Unasked; got != want && harness.Processes() == 1 {
				t.Errorf("the state names the line %q, want %q", got, want)
			}
			if n := len(s.RequestsOf(t, "initialize", 0)); n > 0 {
				t.Errorf("%d second processes", n)
			}
		})
	}
}

// TestServersWithoutAUsefulLegacyEra: the calls of legacy clients succeed on the modern connection,
// whatever the server answers to initialize, and it is not asked for each call.
func TestServersWithoutAUsefulLegacyEra(t *testing.T) {
	harness.Waits(t)
	for name, script := range map[string]upstreamtest.Script{
		"modern only": {Era: "modern"},
		"no session":  {NoSession: true},
		"error":       {Rules: []upstreamtest.Rule{{Method: "initialize", Error: []byte(`{"code":-32603,"message":"broken"}`)}}},
		"status 400":  {Rules: []upstreamtest.Rule{{Method: "initialize", Status: 400, Body: "no"}}},
		"status 503":  {Rules: []upstreamtest.Rule{{Method: "initialize", Status: 503, Body: "busy"}}},
		"cut":         {Rules: []upstreamtest.Rule{{Method: "initialize", Die: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			harness.RunPair(t, client.EraLegacy, client.EraBoth, "http", func(t *testing.T, p harness.Pair) {
				s, j := harness.Over(t, p, script, nil)
				c := j.Talk(t)
				for range 3 * harness.Processes() {
					if got := versionOf(t, c); got != harness.ModernVersion {
						t.Errorf("a call has reached the server in %s", got)
					}
				}
				m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
				if got := harness.AnswersOf(t, m); len(asked) != 1 || got != `[{`+harness.Accepted+`}]` {
					t.Errorf("asked %d times, and the upstream was answered %s", len(asked), got)
				}
				if n := len(s.RequestsOf(t, "initialize", 0)); n > 2*harness.Processes() {
					t.Errorf("initialize was sent %d times", n)
				}
			})
		})
	}
}
