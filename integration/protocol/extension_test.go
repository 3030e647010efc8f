package protocol

import (
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// extending are the capabilities of a client of an extension that Junction does not know, and of one that it
// knows.
const extending = `{"extensions":{"com.example/weather":{},"io.modelcontextprotocol/tasks":{}}}`

// TestNotificationsOfUnknownExtensions: such a notification reaches the client of the call on whose response
// stream it came, if that client has declared the extension, and after redaction. Without a response stream,
// and for other clients, there is none. A name that a rule matches is no name: the notification is dropped.
func TestNotificationsOfUnknownExtensions(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			harness.EachTransport(t, clientEra, up, func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{})
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ { name: number, re: "[0-9]{16}" } ] }
`)})
				j.Offers(t, "up")
				as := func(capabilities string) *harness.Talker {
					return j.As(t, "", func(c *harness.Talker) { c.Capabilities = capabilities })
				}
				heard := func(c *harness.Talker, method string) string {
					notes, m := c.Begin(t, harness.Called("up__tell", `{"method":"`+method+`","params":{"a":1.0,"b":"1234567812345678"}}`)).All(t)
					if m.Error != nil {
						t.Errorf("%s: %s", method, m.Append(nil))
					}
					var got []string
					for _, n := range notes {
						got = append(got, n.Method+" "+string(n.Params))
					}
					return strings.Join(got, "\n")
				}
				declared := as(extending)
				for _, method := range []string{"notifications/weather", "notifications/weather/storm", "notifications/com.example/weather/storm"} {
					want := method + ` {"a":1.0,"b":"[redacted: number]"}`
					if p.Transport != "http" {
						want = ""
					}
					if got := heard(declared, method); got != want {
						t.Errorf("%s reaches the client as %q, want %q", method, got, want)
					}
				}
				for _, method := range []string{"notifications/weathers", "notifications/climate", "weather/storm", "notifications/tasks", "notifications/roots/list_changed"} {
					if got := heard(declared, method); got != "" {
						t.Errorf("%s reaches the client as %q", method, got)
					}
				}
				if got := heard(declared, "notifications/weather/1234567812345678"); got != "" {
					t.Errorf("the client reads redacted text in the name of a notification: %s", got)
				}
				if got := heard(as(`{"extensions":{"com.example/other":{}}}`), "notifications/weather"); got != "" {
					t.Errorf("a client without the extension gets %q", got)
				}
			})
		}
	}
}
