package safety

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// own is the value of headers for Junction's own requests.
const own = "own-value"

// run runs f over each wire with a URL, with a server that gets X-Tenant and X-Region of its clients.
func run(t *testing.T, script upstreamtest.Script, f func(t *testing.T, w *tenants)) {
	t.Helper()
	script.NoListChanged = true
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Transport == "stdio" {
			return // it has no headers
		}
		s := p.Serve(t, script)
		s.Config.Headers = map[string]string{"x-tenant": own, "X-Fixed": "fixed"}
		s.Config.ForwardHeaders = []string{"X-Tenant", "X-Region"}
		f(t, &tenants{Pair: p, Served: s, rest: p.Serve(t, upstreamtest.Script{})})
	})
}

// tenants is a server with headers of its clients, and another one without such headers.
type tenants struct {
	harness.Pair
	*harness.Served
	rest  *harness.Served
	calls int
}

// talk returns a client of a proxy over both servers, with the rules of policies; "" permits everything.
func (w *tenants) talk(t *testing.T, rules, capabilities string) *harness.Talker {
	t.Helper()
	setup := harness.Setup{Upstreams: map[string]upstream.Config{"up": w.Config, "rest": w.rest.Config}}
	if rules != "" {
		setup.Guard, setup.Policy = &auth.Guard{}, harness.MustPolicy(t, rules)
	}
	j := harness.Start(t, w.Pair, setup)
	j.Offers(t, "up", "rest")
	return harness.TalkAs(t, j.URL, w.Client, "2025-11-25", capabilities)
}

// with returns a query with a header; without values it has none.
func with(q harness.Query, name string, values ...string) harness.Query {
	header := http.Header{}
	for name, all := range q.Header {
		header[name] = all
	}
	if len(values) > 0 {
		header[name] = values
	}
	q.Header = header
	return q
}

// echo calls a tool of a server with headers, and returns those that it has got with the call.
func (w *tenants) echo(t *testing.T, c *harness.Talker, server string, header http.Header) http.Header {
	t.Helper()
	w.calls++
	mark := fmt.Sprintf(`"n":%d`, w.calls)
	q := harness.Called(server+"__echo", "{"+mark+"}")
	q.Header = header
	if m := c.Begin(t, q).Answer(t); m.Error != nil {
		t.Fatalf("the call of %s with %v is answered %s", server, header, m.Append(nil))
	}
	at := map[string]*harness.Served{"up": w.Served, "rest": w.rest}[server]
	return harness.Await(t, at.Journal, "call", func(r upstreamtest.Record) bool {
		return r.Message.Method == "tools/call" && strings.Contains(string(r.Body), mark+"}")
	}).Header
}

// wantOwn fails if a request for no caller had a header of a client.
func (w *tenants) wantOwn(t *testing.T) {
	t.Helper()
	methods := []string{"tools/list", "resources/list", "prompts/list", "server/discover", "subscriptions/listen",
		"resources/subscribe"}
	checked := 0
	for _, r := range w.Received() {
		if !slices.Contains(methods, r.Message.Method) {
			continue
		}
		checked++
		if got := r.Header.Values("X-Tenant"); !slices.Equal(got, []string{own}) || r.Header.Values("X-Region") != nil {
			t.Errorf("%s has the headers X-Tenant: %q and X-Region: %q", r.Message.Method, got, r.Header.Values("X-Region"))
		}
	}
	if checked == 0 {
		t.Error("no request for a list was made")
	}
}

// TestHeadersOfAClientGoToItsServerOnly: each call has the values of its own client. Without a header there is none,
// also if the entry has a value for requests of Junction, which those have alone. A legacy session has one value.
func TestHeadersOfAClientGoToItsServerOnly(t *testing.T) {
	run(t, upstreamtest.Script{}, func(t *testing.T, w *tenants) {
		c := w.talk(t, "", harness.AllCapabilities)
		for _, row := range []struct{ tenant, region []string }{
			{tenant: []string{"acme"}}, {tenant: []string{"other"}}, {}, {[]string{"acme"}, []string{"eu"}},
			{region: []string{"eu"}}, {tenant: []string{"acme"}},
		} {
			header := http.Header{"X-Secret": {"of another server"}}
			for name, values := range map[string][]string{"X-Tenant": row.tenant, "X-Region": row.region} {
				if values != nil {
					header[name] = values
				}
			}
			got := w.echo(t, c, "up", header)
			for name, want := range map[string][]string{"X-Tenant": row.tenant, "X-Region": row.region, "X-Fixed": {"fixed"},
				"X-Secret": nil} {
				if !slices.Equal(got[name], want) {
					t.Errorf("with %v, the server gets %s: %q, want %q", header, name, got[name], want)
				}
			}
			if got := w.echo(t, c, "rest", header); got["X-Tenant"] != nil || got["X-Region"] != nil || got["X-Secret"] != nil {
				t.Errorf("with %v, another server gets %v", header, got)
			}
		}
		w.wantOwn(t)
		if w.Upstream == client.EraLegacy {
			w.wantSessions(t)
		}
	})
}

// TestHeadersStayWithACallAtAnotherReplica: the replica that has the state of a server makes the calls of all replicas,
// with the values of their clients. Over one process it makes its own.
func TestHeadersStayWithACallAtAnotherReplica(t *testing.T) {
	run(t, upstreamtest.Script{}, func(t *testing.T, w *tenants) {
		stateful := true
		w.Config.Stateful = &stateful
		c := w.talk(t, "", harness.AllCapabilities)
		for range 3 {
			for _, tenant := range [][]string{{"acme"}, {"other"}, nil} {
				header := http.Header{}
				if tenant != nil {
					header["X-Tenant"] = tenant
				}
				if got := w.echo(t, c, "up", header)["X-Tenant"]; !slices.Equal(got, tenant) {
					t.Errorf("with %v, the server gets X-Tenant: %q", header, got)
				}
			}
		}
		w.wantOwn(t)
	})
}

// wantSessions fails if requests of one legacy session had different values.
func (w *tenants) wantSessions(t *testing.T) {
	t.Helper()
	values := map[string]string{}
	for _, r := range w.Received() {
		session := r.Header.Get("Mcp-Session-Id") + r.Query
		if session == "" {
			continue
		}
		got := fmt.Sprintf("%q %q", r.Header.Values("X-Tenant"), r.Header.Values("X-Region"))
		if before, known := values[session]; known && before != got {
			t.Errorf("%s in a session with %s has %s", r.Message.Method, before, got)
		}
		values[session] = got
	}
	if len(values) < 5 {
		t.Errorf("there are %d sessions, want one for each of five sets of values", len(values))
	}
}

// TestMalformedHeadersOfAClientAreRefused: such a request gets the reason, the server nothing. Other servers are
// called with the same headers.
func TestMalformedHeadersOfAClientAreRefused(t *testing.T) {
	harness.InMemory(t, "nginx refuses the long header itself")
	run(t, upstreamtest.Script{}, func(t *testing.T, w *tenants) {
		c := w.talk(t, "", harness.AllCapabilities)
		for name, row := range map[string]struct {
			values []string
			want   string
		}{
			"two fields":     {[]string{"a", "b"}, "X-Tenant occurs 2 times"},
			"one value":      {[]string{"a", "a"}, "X-Tenant occurs 2 times"},
			"empty":          {[]string{""}, "X-Tenant is empty"},
			"a space":        {[]string{"a b"}, "visible ASCII"},
			"another letter": {[]string{"mü"}, "visible ASCII"},
			"60 KB":          {[]string{strings.Repeat("x", 60<<10)}, "more than 4 KiB together"},
			"just too long":  {[]string{strings.Repeat("x", 4<<10+1)}, "more than 4 KiB together"},
		} {
			a := c.Begin(t, with(harness.Called("up__whoami", `{}`), "X-Tenant", row.values...))
			m := a.Answer(t)
			if m.Error == nil || m.Error.Code != -32600 || !strings.Contains(m.Error.Message, row.want) {
				t.Errorf("%s: the answer is %s, want %q", name, m.Append(nil), row.want)
			}
			if a.Status != http.StatusBadRequest {
				t.Errorf("%s: the status is %d", name, a.Status)
			}
			other := with(harness.Called("rest__whoami", `{}`), "X-Tenant", row.values...)
			if m := c.Begin(t, other).Answer(t); m.Error != nil {
				t.Errorf("%s: another server is called: %s", name, m.Append(nil))
			}
		}
		harness.WantUncalled(t, w.Journal, "tools/call")
		longest := strings.Repeat("x", 4<<10)
		if got := w.echo(t, c, "up", http.Header{"X-Tenant": {longest}}).Get("X-Tenant"); got != longest {
			t.Errorf("of the longest value, %d bytes arrive", len(got))
		}
	})
}

// TestQuestionsStayWithTheHeadersOfTheirCall: the answer to a question reaches the server with the values of the call.
// A client that comes back with others has another request.
func TestQuestionsStayWithTheHeadersOfTheirCall(t *testing.T) {
	run(t, upstreamtest.Script{}, func(t *testing.T, w *tenants) {
		c := w.talk(t, "", harness.AllCapabilities)
		asking := with(harness.Asking(harness.AskForm), "X-Tenant", "acme")
		m, asked := c.Converse(t, asking, harness.AnswersTo)
		if m.Error != nil || len(asked) != 1 {
			t.Errorf("after %d questions, the answer is %s", len(asked), m.Append(nil))
		}
		for _, r := range w.Received() {
			answer := len(r.Body) > 0 && r.Message.IsResponse() || r.Message.Method == "tools/call"
			if got := r.Header.Values("X-Tenant"); answer && !slices.Equal(got, []string{"acme"}) {
				t.Errorf("%s %s has X-Tenant: %q", r.Verb, r.Body, got)
			}
		}
		if w.Client == client.EraLegacy {
			return
		}
		for _, back := range [][]string{{"other"}, nil} {
			m := c.Begin(t, asking).Answer(t)
			if harness.Member(m.Result, "resultType") != `"input_required"` {
				t.Fatalf("the call is answered %s", m.Append(nil))
			}
			again := with(harness.Called("up__ask", ""), "X-Tenant", back...)
			again.Params = harness.Retried(asking.Params, m, `"x":{"action":"cancel"}`)
			if m := c.Begin(t, again).Answer(t); m.Error == nil || !strings.Contains(m.Error.Message, "requestState is unknown") {
				t.Errorf("with X-Tenant: %q, the client comes back to %s", back, m.Append(nil))
			}
		}
	})
}

// TestApprovalIsForTheHeadersOfItsCall: a call with other values is another call, about which the user is asked again.
func TestApprovalIsForTheHeadersOfItsCall(t *testing.T) {
	harness.InMemory(t, "a remembered approval of a modern client holds in one process")
	run(t, upstreamtest.Script{}, func(t *testing.T, w *tenants) {
		const rules = `[{name: a, rules: [{ask: {tools: up__whoami}}, {allow: {upstreams: "*"}}]}]`
		c := w.talk(t, rules, harness.AllCapabilities)
		for i, row := range []struct {
			tenant []string
			asked  int
		}{{[]string{"acme"}, 1}, {[]string{"acme"}, 0}, {[]string{"other"}, 1}, {nil, 1}, {nil, 0}, {[]string{"acme"}, 0}} {
			q := with(harness.Called("up__whoami", `{}`), "X-Tenant", row.tenant...)
			m, asked := c.Converse(t, q, approval("Allow and remember for this exact call"))
			if m.Error != nil || len(asked) != row.asked {
				t.Errorf("call %d with X-Tenant: %q: %d questions, want %d; the answer is %s", i, row.tenant, len(asked), row.asked,
					m.Append(nil))
			}
		}
	})
}

// TestKeptResultIsForTheHeadersOfItsCall: no caller gets the result of a call with other values.
func TestKeptResultIsForTheHeadersOfItsCall(t *testing.T) {
	harness.InMemory(t, "each process keeps results of its own")
	count := json.RawMessage(`{"name":"count","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,` +
		`"idempotentHint":true}}`)
	run(t, upstreamtest.Script{Tools: []json.RawMessage{count}}, func(t *testing.T, w *tenants) {
		w.Config.Cache = time.Hour
		c := w.talk(t, "", harness.AllCapabilities)
		counted := func(values ...string) string {
			m := c.Begin(t, with(harness.Called("up__count", `{}`), "X-Tenant", values...)).Answer(t)
			return string(m.Result)
		}
		first, second, none := counted("acme"), counted("other"), counted()
		if first == second || first == none || second == none {
			t.Errorf("calls with other values get one result: %s, %s, %s", first, second, none)
		}
		if a, b, n := counted("acme"), counted("other"), counted(); a != first || b != second || n != none {
			t.Errorf("the same calls again get %s, %s, %s", a, b, n)
		}
	})
}

// TestTaskStaysWithTheHeadersOfItsCall: requests about a task have the values of the call that has begun it, also if the
// client does not send them again. A request with other values is refused.
func TestTaskStaysWithTheHeadersOfItsCall(t *testing.T) {
	run(t, upstreamtest.Script{Tasks: true}, func(t *testing.T, w *tenants) {
		if w.Client != client.EraModern || w.Upstream != client.EraModern {
			return
		}
		c := w.talk(t, "", harness.WithTasks)
		id := harness.BeginTask(t, c, with(harness.Called("up__task", `{"gate":"end"}`), "X-Tenant", "acme"))
		about := harness.Query{Method: "tasks/get", Params: `"taskId":"` + id + `"`}
		for _, name := range []string{"X-Tenant", "X-Region"} {
			m := c.Begin(t, with(about, name, "other")).Answer(t)
			if m.Error == nil || !strings.Contains(m.Error.Message, "begun with another value of the header "+name) {
				t.Errorf("with another %s, the task is %s", name, m.Append(nil))
			}
		}
		harness.WantUncalled(t, w.Journal, "tasks/get")
		for _, q := range []harness.Query{about, with(about, "X-Tenant", "acme")} {
			if m := c.Begin(t, q).Answer(t); m.Error != nil {
				t.Errorf("with %v, the task is %s", q.Header, m.Append(nil))
			}
		}
		for _, r := range w.Received() {
			if got := r.Header.Values("X-Tenant"); r.Message.Method == "tasks/get" && !slices.Equal(got, []string{"acme"}) {
				t.Errorf("tasks/get has X-Tenant: %q", got)
			}
		}
		if err := w.Release("end"); err != nil {
			t.Fatal(err)
		}
	})
}
