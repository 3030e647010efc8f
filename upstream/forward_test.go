package upstream

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestHeadersThatAnEntryCannotName: the table has every header that must not come from a client, by each spelling.
func TestHeadersThatAnEntryCannotName(t *testing.T) {
	never := []string{"Junction-Folder", "Junction-Identity", "Junction-Anything", "Authorization", "Proxy-Authorization",
		"Proxy-Connection", "Cookie", "Host", "Content-Type", "Content-Length", "Content-Encoding", "Accept", "Accept-Encoding",
		"Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-City", "Last-Event-Id", "Origin",
		"Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via", "Traceparent", "Tracestate",
		"Baggage", "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect"}
	for _, name := range never {
		for _, spelled := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			if mayName(spelled, useForward) {
				t.Errorf("%s of a client is passed on", spelled)
			}
		}
	}
	for name, may := range map[string]headerUse{"X-Tenant": useAny, "X-Api-Key": useAny, "Acceptable": useAny,
		"Authorization": useFixed | useCarrier, "User-Agent": useFixed | useForward, "X-Forwarded-For": useFixed,
		"Cookie": useFixed, "Mcp-Session-Id": 0, "Host": 0} {
		for _, use := range []headerUse{useFixed, useCarrier, useForward} {
			if got := mayName(name, use); got != (may&use != 0) {
				t.Errorf("mayName(%s, %d) = %v", name, use, got)
			}
		}
	}
}

// TestForwardHeadersOfAnEntry: each mistake is reported with its place.
func TestForwardHeadersOfAnEntry(t *testing.T) {
	valid := Config{URL: "https://server.example.com/mcp", ForwardHeaders: []string{"X-Tenant", "x-region"},
		Headers: map[string]string{"X-Tenant": "own"}}
	if ps := valid.Validate("up"); len(ps) > 0 {
		t.Errorf("a valid entry has %v", ps)
	}
	for want, c := range map[string]Config{
		"forward_headers[1] Authorization":    {ForwardHeaders: []string{"X-A", "Authorization"}},
		"forward_headers[0] is no HTTP":       {ForwardHeaders: []string{"X A"}},
		"forward_headers[0] is no HTTP ":      {ForwardHeaders: []string{""}},
		"forward_headers[1] x-a occurs twice": {ForwardHeaders: []string{"X-A", "x-a"}},
		"forward_headers has more than 8":     {ForwardHeaders: strings.Split("a b c d e f g h i", " ")},
		"max_links leaves no session":         {ForwardHeaders: []string{"X-A"}, MaxLinks: 1},
		"forward_headers[0] X-Key carries":    {ForwardHeaders: []string{"X-Key"}, Auth: Auth{Mode: AuthUserKey, Header: "x-key"}},
		"forward_headers are only for a url":  {ForwardHeaders: []string{"X-A"}, Command: []string{"server"}},
	} {
		if c.Command == nil {
			c.URL = valid.URL
		}
		var got []string
		for _, p := range c.Validate("up") {
			got = append(got, p.Path+" "+p.Text)
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("the entry has the mistakes %q, want %q", got, want)
		}
	}
}

// tenant gives a call the header X-Tenant.
func tenant(value string) func(*Call) {
	return func(c *Call) { c.Forwarded = []client.HeaderField{{Name: "X-Tenant", Value: value}} }
}

// tenanted is an entry with X-Tenant of the client, and a value for Junction's own requests.
var tenanted = Config{ForwardHeaders: []string{"X-Tenant"}, Headers: map[string]string{"X-Tenant": "own"},
	Timeout: time.Hour, MaxTimeout: time.Hour}

// sentWith returns the different values of X-Tenant of requests of a method.
func sentWith(r *rig, method string) (values []string) {
	for _, m := range r.server.Received() {
		if m.Message.Method == method {
			values = append(values, strings.Join(m.Header["X-Tenant"], "+"))
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// TestHeadersCountForTheirPrincipal: one principal sends many values, and has half of max_links for the sessions of a
// legacy server. Another one still has room. A modern server has one connection.
func TestHeadersCountForTheirPrincipal(t *testing.T) {
	eachScript(t, func(t *testing.T, script upstreamtest.Script) {
		c := tenanted
		c.MaxLinks, c.Isolation = 6, IsolationShared
		r := newRig(t, script, c)
		synctest.Wait()
		var hog []<-chan result
		for _, value := range []string{"a", "b", "c", "d", "e"} {
			hog = append(hog, begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, of("hog"), tenant(value))))
			settle(time.Second)
		}
		modern := script.Era == "modern"
		links, want := r.Status().Links, 4 // one reads the lists
		if modern {
			want = 1
		}
		if links != want {
			t.Errorf("there are %d connections, want %d", links, want)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("other"), tenant("a")))
		for range hog {
			r.server.Release("g")
			settle(time.Second)
		}
		for _, call := range hog {
			if res := <-call; res.err != nil {
				t.Errorf("a call that waited for a session = %v", res.err)
			}
		}
		if got := sentWith(r, "tools/call"); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
			t.Errorf("calls were sent with %q", got)
		}
		if got := sentWith(r, "tools/list"); !slices.Equal(got, []string{"own"}) {
			t.Errorf("lists were read with %q", got)
		}
	})
}

// TestSessionsForHeadersEndUnused: a session for the headers of a caller is no session of all, so it ends when no call
// uses it, and it never reads lists or has subscriptions.
func TestSessionsForHeadersEndUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := legacyScript
		script.Resources = []json.RawMessage{[]byte(`{"uri":"up://one","name":"one"}`)}
		r := newRig(t, script, tenanted)
		synctest.Wait()
		home := sessionOf(t, r.Upstream)
		if other := sessionOf(t, r.Upstream, tenant("acme")); other == home {
			t.Error("a call with a header uses the session of a call without it")
		}
		source, accepted, err := r.Subscribe(t.Context(), toolCall("", `{}`, tenant("acme")), []string{"up://one"})
		if err != nil || len(accepted) != 1 {
			t.Fatalf("Subscribe = %q, %v", accepted, err)
		}
		defer r.Unsubscribe(source, accepted)
		settle(time.Second)
		if got := sentWith(r, "resources/subscribe"); !slices.Equal(got, []string{"own"}) {
			t.Errorf("the subscription was made with %q", got)
		}
		if n := r.Status().Links; n != 3 {
			t.Errorf("there are %d sessions, want that of Junction, of a caller with the header and of one without", n)
		}
		r.RootsChanged(client.Profile{Roots: true, RootsChange: true}, "", "")
		settle(time.Hour)
		if n := r.Status().Links; n != 1 {
			t.Errorf("after an hour there are %d sessions", n)
		}
		if got := sentWith(r, "tools/list"); !slices.Equal(got, []string{"own"}) {
			t.Errorf("lists were read with %q", got)
		}
	})
}

// TestWithoutAFixedValueCallersWithoutTheHeaderShareTheSession: they need no session of their own.
func TestWithoutAFixedValueCallersWithoutTheHeaderShareTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tenanted
		c.Headers = nil
		r := newRig(t, legacyScript, c)
		synctest.Wait()
		mustCall(t, r.Upstream, toolCall("echo", `{}`))
		if n := r.Status().Links; n != 1 {
			t.Errorf("there are %d sessions, want 1", n)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, tenant("acme")))
		if got := sentWith(r, "tools/call"); !slices.Equal(got, []string{"", "acme"}) {
			t.Errorf("calls were sent with %q", got)
		}
	})
}

// TestServerRepeatsNoHeaderOfAClient: the errors of a server have no value of the client, because logs and the audit
// show errors.
func TestServerRepeatsNoHeaderOfAClient(t *testing.T) {
	const value = "canary-of-the-client"
	for name, rule := range map[string]upstreamtest.Rule{
		"an error":  {Method: "tools/call", Error: []byte(`{"code":-32000,"message":"no ` + value + `","data":"` + value + `"}`)},
		"a status":  {Method: "tools/call", Status: http.StatusForbidden, Body: "no " + value},
		"no answer": {Method: "tools/call", Status: http.StatusOK, Body: "no " + value},
	} {
		t.Run(name, func(t *testing.T) {
			eachScript(t, func(t *testing.T, script upstreamtest.Script) {
				script.Rules = append(slices.Clone(script.Rules), rule)
				r := newRig(t, script, tenanted)
				synctest.Wait()
				res := <-begun(r.Upstream, toolCall("echo", `{}`, tenant(value)))
				if res.err == nil || strings.Contains(res.err.Error(), value) || !strings.Contains(res.err.Error(), "…") {
					t.Errorf("Call = %v", res.err)
				}
			})
		})
	}
}
