package signin

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The tests of this file have connections of people to a server (auth: { mode: oauth_user }): what keeps
// them, and what ends them.

func TestConnectionsOfUsersNeverCross(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	key := newAPIKey(t, "ci")
	c := mustLinearCompany(t, l, "", "", "  api_keys: ["+key.entry+"]")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	ann.mustConnect(t)
	bob.mustConnect(t)
	var clients [2][]*harness.Talker
	for i, w := range []*worker{ann, bob} {
		clients[i] = []*harness.Talker{w.talk(t, client.EraLegacy, harness.AllCapabilities),
			w.talk(t, client.EraModern, harness.AllCapabilities)}
	}
	var all sync.WaitGroup
	for i := range 100 {
		who := i % 2
		all.Go(func() {
			clients[who][i/2%2].Call(t, "linear__echo", fmt.Sprintf(`{"say":"%s %d"}`, []string{"ann", "bob"}[who], i))
		})
	}
	all.Wait()
	accounts := l.accounts()
	if len(accounts) != 100 {
		t.Errorf("%d calls arrived", len(accounts))
	}
	for said, token := range accounts {
		name, _, _ := strings.Cut(said, " ")
		if !strings.HasPrefix(token, "Bearer canary-at-"+name+"-linear-") || strings.Count(token, "Bearer") != 1 {
			t.Errorf("%q was called with %q", said, token)
		}
	}
	// The upstream gets no token of Junction's clients, and the log has none of the authorization
	// server's.
	for _, r := range l.Received() {
		if text := fmt.Sprint(r.Header, string(r.Body)); strings.Contains(text, "jct_") {
			t.Errorf("the upstream received %s", text)
		}
	}
	if out := c.Stdout.String() + c.Stderr.String(); strings.Contains(out, "canary-") {
		t.Error("the log shows a token, or a code")
	}
	// Neither a key nor somebody whom no policy lets use it sees that it is there.
	robot := (&harness.Talker{URL: c.URL, Era: client.EraModern, Capabilities: `{}`, Key: key.key}).Start(t)
	if tools := toolNames(t, robot); len(tools) > 0 {
		t.Errorf("a key sees %q", tools)
	}
	if m := robot.Call(t, "linear__echo", `{}`); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("a key calls and gets %s", m.Append(nil))
	}
}

func TestConnectionRefreshesOnce(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	ann.mustConnect(t)
	manyAtOnce(t, l, ann.talk(t, client.EraModern, `{}`))
}

// TestConnectionRefreshesOnceOverReplicas is the same with two processes over one Postgres.
func TestConnectionRefreshesOnceOverReplicas(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c, replicas := mustReplicas(t, fmt.Sprintf(`{ linear: { url: %q, auth: { mode: oauth_user } } }`, l.url),
		"outbound: { allow_private: [127.0.0.0/8] }\n")
	ann := mustWorker(t, c, "ann")
	ann.mustConnect(t) // page by page at the one and the other
	var here [2]*harness.Talker
	for i, p := range replicas {
		here[i] = (&harness.Talker{URL: p.URL, Era: client.EraModern, Capabilities: `{}`, Key: ann.tokens.Access}).Start(t)
		if tools := toolNames(t, here[i]); !slices.Contains(tools, "linear__echo") {
			t.Errorf("replica %d shows %q", i, tools)
		}
	}
	manyAtOnce(t, l, here[0], here[1])
	// Who disconnects at one is out at the other with the next call.
	ann.disconnect(t, "linear")
	for _, w := range here {
		connectURL(t, w, "linear__echo")
	}
}

// manyAtOnce makes 50 calls by tokens that the server does not know any more.
func manyAtOnce(t *testing.T, l *linear, clients ...*harness.Talker) {
	t.Helper()
	for _, c := range clients {
		c.Succeed(t, "linear__echo", `{}`)
	}
	l.expire()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if m := clients[i%len(clients)].Call(t, "linear__echo", `{}`); m.Error != nil ||
				harness.Member(m.Result, "isError") == "true" {
				t.Errorf("call %d = %s", i, m.Append(nil))
			}
		})
	}
	all.Wait()
	if n := l.count("token refresh_token"); n != 1 {
		t.Errorf("%d refreshes for 50 calls, want 1", n)
	}
}

// streams waits until the server has that many streams. A stream that begins with a token of the past would
// find the end of the token, too.
func streams(t *testing.T, l *linear, n int) {
	t.Helper()
	harness.Await(t, &l.Journal, fmt.Sprint(n, " subscriptions/listen"), func(r upstreamtest.Record) bool {
		if upstreamtest.Method("subscriptions/listen")(r) {
			n--
		}
		return n == 0
	})
}

// TestConnectionOutlivesRefreshesWithoutARefreshToken has an authorization server that returns no new refresh
// token: the first one stays good.
func TestConnectionOutlivesRefreshesWithoutARefreshToken(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	ann := mustWorker(t, mustLinearCompany(t, l, "", ""), "ann")
	ann.mustConnect(t)
	hers := ann.talk(t, client.EraModern, `{}`)
	hers.Succeed(t, "linear__echo", `{}`)
	streams(t, l, 1)
	var kept string
	l.change(func() {
		l.token = func(form url.Values) (int, string) {
			if token := form.Get("refresh_token"); kept == "" || token == kept {
				kept = token
			} else {
				return 400, `{"error":"invalid_grant"}`
			}
			l.number++
			access := fmt.Sprint("canary-at-kept-", l.number)
			l.access[access] = "ann-linear"
			return 200, fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":"3600"}`, access)
		}
	})
	for range 2 {
		l.expire()
		hers.Succeed(t, "linear__echo", `{}`)
	}
	if n := l.count("token refresh_token"); n != 2 {
		t.Errorf("%d refreshes, want 2", n)
	}
}

// TestConnectionOutlivesAnOutage: calls fail while the authorization server has an outage, and the connection
// works again after it. Each outage meets another user, whose token was not renewed just before: otherwise the
// renewal would wait for a control question.
func TestConnectionOutlivesAnOutage(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	var clients []*harness.Talker
	statuses := []int{500, 503, 429}
	for i := range statuses {
		w := mustWorker(t, c, []string{"ann", "bob", "cid"}[i])
		w.mustConnect(t)
		clients = append(clients, w.talk(t, client.EraModern, `{}`))
		clients[i].Succeed(t, "linear__echo", `{}`)
	}
	streams(t, l, len(statuses))
	l.expire()
	for i, status := range statuses {
		l.change(func() { l.token = func(url.Values) (int, string) { return status, `{"error":"invalid_grant"}` } })
		if m := clients[i].Call(t, "linear__echo", `{}`); m.Error == nil ||
			!strings.Contains(m.Error.Message, "sign-in service cannot be asked") {
			t.Errorf("during an outage with %d a call gets %s", status, m.Append(nil))
		}
		l.change(func() { l.token = nil })
		clients[i].Succeed(t, "linear__echo", `{}`)
	}
}

// TestRefusedTokenEndsTheConnection: the server refuses a new token, too, also to the control question. The
// calls are never made. The user connects again, and then a call that was refused once is made once.
func TestRefusedTokenEndsTheConnection(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	ann.mustConnect(t)
	hers := ann.talk(t, client.EraModern, `{}`)
	hers.Succeed(t, "linear__echo", `{}`)
	streams(t, l, 1)
	calls := len(l.accounts())
	l.change(func() { l.refused = func(string) bool { return true } })
	connectURL(t, hers, "linear__echo")
	if m := hers.Call(t, "linear__connect",
		`{}`); harness.Member(m.Result, "structuredContent", "code") != `"upstream_needs_reconnect"` {
		t.Errorf("then a call gets %s", m.Append(nil))
	}
	if n := len(l.accounts()); n != calls {
		t.Errorf("%d calls were made, want %d", n, calls)
	}
	if g := ann.open(c.origin + "/account"); !strings.Contains(g.body, "linear</b> must be connected again") {
		t.Errorf("her account shows %s", g.body)
	}
	l.change(func() { l.refused = nil })
	ann.mustConnect(t)
	hers.Succeed(t, "linear__echo", `{"say":"again"}`)

	refreshes := l.count("token refresh_token")
	l.expire()
	hers.Succeed(t, "linear__echo", `{"say":"once"}`)
	if got := l.accounts()["once"]; strings.Count(got, "Bearer") != 1 || l.count("token refresh_token") != refreshes+1 {
		t.Errorf("the call was made with %q", got)
	}
}

// TestRefusedRefreshEndsTheConnection: the authorization server answers a renewal with invalid_grant.
func TestRefusedRefreshEndsTheConnection(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	ann.mustConnect(t)
	hers := ann.talk(t, client.EraModern, `{}`)
	hers.Succeed(t, "linear__echo", `{}`)
	l.expire()
	l.change(func() { clear(l.refresh) })
	connectURL(t, hers, "linear__echo")
	if tools := toolNames(t, hers); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Errorf("then she sees %q", tools)
	}
	if g := ann.open(c.origin + "/account"); !strings.Contains(g.body, "linear</b> must be connected again") {
		t.Errorf("her account shows %s", g.body)
	}
	ann.mustConnect(t)
	hers.Succeed(t, "linear__echo", `{}`)
}

func TestDisconnectEndsTheConnection(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	ann.mustConnect(t)
	bob.mustConnect(t)
	hers, his := ann.talk(t, client.EraLegacy, `{}`), bob.talk(t, client.EraLegacy, `{}`)
	hers.Succeed(t, "linear__echo", `{}`)
	his.Succeed(t, "linear__echo", `{}`)
	// He cannot do it for her.
	m := disconnectForm.FindStringSubmatch(ann.open(c.origin + "/account").body)
	if g := bob.do("POST", c.origin+"/connect/linear/disconnect", url.Values{"csrf": {m[2]}}); g.status != 403 {
		t.Errorf("with her form he gets %d", g.status)
	}
	heard := hers.Get(t)
	if g := ann.disconnect(t, "linear"); !strings.Contains(g.body, "linear</b> is not connected") {
		t.Errorf("her account shows %s", g.body)
	}
	if l.count("revoke canary-rt-ann-linear-") != 1 {
		t.Errorf("the authorization server was asked %q", l.asked)
	}
	heard.WantNote(t, "notifications/tools/list_changed", "")
	if tools := toolNames(t, hers); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Errorf("then she sees %q", tools)
	}
	connectURL(t, hers, "linear__echo")
	his.Succeed(t, "linear__echo", `{}`)
}

// TestConnectionIsForOneServer has the operator give the server another address: what people were
// given for the old one is not sent there.
func TestConnectionIsForOneServer(t *testing.T) {
	defer harness.Computes(t)()
	l, other := mustLinear(t), mustLinear(t)
	c := mustLinearCompany(t, l, "", "")
	ann := mustWorker(t, c, "ann")
	ann.mustConnect(t)
	hers := ann.talk(t, client.EraLegacy, `{}`)
	hers.Succeed(t, "linear__echo", `{}`)
	heard := hers.Get(t)
	file, err := os.ReadFile(c.File())
	if err != nil {
		t.Fatal(err)
	}
	other.change(func() { other.whose = func(token string) string { return token } }) // it takes whatever comes
	reload := func(n int, text string) {
		t.Helper()
		if err := os.WriteFile(c.File(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Stderr.MustMatch(t, regexp.MustCompile(`(?s)`+strings.Repeat("configuration reloaded.*", n)), harness.Patience,
			c.Done)
	}
	reload(1, strings.Replace(string(file), l.url, other.url, 1))
	heard.WantNote(t, "notifications/tools/list_changed", "")
	connectURL(t, hers, "linear__echo")
	for _, r := range other.Received() {
		if strings.Contains(fmt.Sprint(r.Header), "canary-") {
			t.Errorf("the other server received %s", r.Header)
		}
	}
	reload(2, strings.Replace(string(file), "linear:", "renamed:", 1))
	if tools := toolNames(t, hers); !slices.Equal(tools, []string{"renamed__connect"}) {
		t.Errorf("under another name she sees %q", tools)
	}
	if g := ann.open(c.origin + "/account"); !strings.Contains(g.body, "no longer available") ||
		!strings.Contains(g.body, "renamed</b> is not connected") {
		t.Errorf("her account shows %s", g.body)
	}
	reload(3, string(file))
	hers.Succeed(t, "linear__echo", `{}`)
}
