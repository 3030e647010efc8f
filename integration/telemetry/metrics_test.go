package telemetry

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/authtest"
	"junction/cmd/junction/base/telemetry"
	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// measured is a junction over one upstream, up, with metrics.
type measured struct {
	*harness.Served
	*harness.Junction
	all *telemetry.Telemetry
}

// mustMeasure starts it; change changes its configuration.
func mustMeasure(t *testing.T, p harness.Pair, change ...func(*measured, *harness.Setup)) measured {
	t.Helper()
	x := measured{Served: p.Serve(t, upstreamtest.Script{})}
	var err error
	x.all, err = telemetry.New(telemetry.Options{Metrics: true, Version: "test", Log: authtest.Log(t),
		Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.all.Close(t.Context()) })
	setup := harness.Setup{Requests: x.all.Requests(), Calls: x.all.Calls()}
	for _, f := range change {
		f(&x, &setup)
	}
	setup.Upstreams = map[string]upstream.Config{"up": x.Config}
	x.Junction = harness.Start(t, p, setup)
	x.Offers(t, "up")
	if err := x.all.Watch(telemetry.Source{Server: x.Server, Upstreams: x.Junction.Set.All,
		Degraded: func() map[string]int { return map[string]int{"personal": 2} },
		Parts:    func() map[string]bool { return map[string]bool{"storage": true, "disk": false} },
		Credentials: func() map[string]telemetry.Credential {
			return map[string]telemetry.Credential{
				"own":  {Renewals: 8, Failures: 9, Expires: true, Left: 90 * time.Second},
				"user": {Renewals: 10},
			}
		},
		Audit: func() (waiting, dropped int64) { return 7, 3 }, Expiring: func() int { return 2 },
		Certificate: func() (time.Duration, bool) { return 90 * time.Second, true },
		Connections: func() telemetry.Connections {
			return telemetry.Connections{Open: 5, Limit: 6, Waiting: true, Closed: map[string]int64{"too_many": 4}}
		},
		Replicas: func() telemetry.Replicas {
			return telemetry.Replicas{Members: 3, Differing: map[string]int64{"policies": 1}}
		},
		Stale: func() bool { return false }}); err != nil {
		t.Fatal(err)
	}
	return x
}

// scrape returns what Prometheus reads.
func (x *measured) scrape(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	x.all.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape is answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// value returns the value of the only series with this name and these labels, in any order.
func value(t *testing.T, text, name string, labels ...string) string {
	t.Helper()
	found := ""
	for line := range strings.Lines(text) {
		series, v, _ := strings.Cut(strings.TrimSpace(line), "} ")
		own, rest, _ := strings.Cut(series, "{")
		if own != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		if found != "" {
			t.Fatalf("there are several series %s with %q:\n%s", name, labels, text)
		}
		found = v
	}
	return found
}

// TestMetricsOfCalls counts requests and calls in each pair of eras over each transport.
func TestMetricsOfCalls(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p)
		c := x.Talk(t)
		for range 3 {
			c.Succeed(t, "up__echo", `{}`)
		}
		c.Begin(t, harness.Called("up__echo", `{"result":{"content":[],"isError":true}}`)).Answer(t)
		c.Begin(t, harness.Called("up__canary", `{}`)).Answer(t)
		text := x.scrape(t)
		const requests, calls = "mcp_server_operation_duration_seconds_count", "mcp_client_operation_duration_seconds_count"
		for want, got := range map[string]string{
			"3 answered": value(t, text, requests, `gen_ai_tool_name="up__echo"`, `junction_outcome="ok"`),
			"1 failed":   value(t, text, requests, `gen_ai_tool_name="up__echo"`, `junction_outcome="tool_error"`),
			"1 unknown":  value(t, text, requests, `mcp_method_name="tools/call"`, `error_type="-32602"`),
			"1 error":    value(t, text, calls, `gen_ai_tool_name="echo"`, `error_type="tool_error"`),
		} {
			if got != want[:1] {
				t.Errorf("%s: the count is %q", want, got)
			}
		}
		if strings.Contains(text, "canary") {
			t.Error("a label has a name that only a client has sent")
		}
	})
}

// TestMetricsOfState reads the state of upstreams, sessions and streams.
func TestMetricsOfState(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p)
		x.Talk(t).HearTools(t)
		text := x.scrape(t)
		sessions := map[client.Era]string{client.EraLegacy: "1", client.EraModern: "0"}[p.Client]
		for name, want := range map[string]string{`junction_sessions`: sessions, `junction_streams`: "1",
			"junction_config_stale": "0", `junction_part_up{junction_part="disk"}`: "0",
			"junction_audit_waiting_bytes": "7", "junction_audit_dropped": "3", "junction_keys_expiring": "2",
			"junction_tls_certificate_expiry_seconds":                       "90",
			`junction_credentials_renewals_total{junction_upstream="own"}`:  "8",
			`junction_credentials_failures_total{junction_upstream="own"}`:  "9",
			`junction_credentials_expiry_seconds{junction_upstream="own"}`:  "90",
			`junction_credentials_renewals_total{junction_upstream="user"}`: "10",
			"junction_calls_parked":                                         "0",
			"junction_connections":                                          "5", "junction_connections_limit": "6", "junction_connections_waiting": "1",
			`junction_connections_closed_total{junction_reason="too_many"}`:   "4",
			`junction_connections_closed_total{junction_reason="unfinished"}`: "0",
			`junction_limits_exceeded_total{junction_limit="limits.streams"}`: "0",
			"junction_replicas": "3", "junction_replicas_lease_seconds": "0"} {
			if !strings.Contains(text, "\n"+name+" "+want+"\n") {
				t.Errorf("%s is not %s:\n%s", name, want, text)
			}
		}
		if strings.Contains(text, `junction_credentials_expiry_seconds{junction_upstream="user"}`) {
			t.Error("tokens that callers do not share have an expiry")
		}
		for state, want := range map[string]string{"ready": "1", "retrying": "0"} {
			if got := value(t, text, "junction_upstream_state", `junction_upstream="up"`, `junction_state="`+state+`"`); got != want {
				t.Errorf("the state %s is %q, want %s", state, got, want)
			}
		}
		for name, want := range map[string]string{"up": "0", "personal": "2"} {
			if got := value(t, text, "junction_upstream_degraded", `junction_upstream="`+name+`"`); got != want {
				t.Errorf("%s has %q degraded connections, want %s", name, got, want)
			}
		}
		if n := value(t, text, "junction_catalog_items", `junction_kind="tool"`); n == "" || n == "0" {
			t.Errorf("the upstream has %q tools", n)
		}
	})
}

// TestMetricsOfRefusals sends requests that are refused, each for another reason.
func TestMetricsOfRefusals(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraModern, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p)
		client := &http.Client{}
		for reason, change := range map[string]func(*http.Request){
			"origin":       func(r *http.Request) { r.Header.Set("Origin", "https://canary.example") },
			"host":         func(r *http.Request) { r.Host = "canary.example" },
			"proxy":        func(r *http.Request) { r.Header.Set("Via", "1.1 canary") },
			"content_type": func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
			"parse":        func(r *http.Request) { body(r, "{") },
			"session":      func(r *http.Request) { body(r, `{"jsonrpc":"2.0","id":1,"method":"ping"}`) },
			"endpoint":     func(r *http.Request) { r.URL.Path = "/mcp/canary" },
			"version": func(r *http.Request) {
				r.Header.Set("Mcp-Protocol-Version", "2027-01-01")
				r.Header.Set("Mcp-Method", "ping")
				body(r, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{`+
					`"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`)
			},
			"header_mismatch": func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "2026-07-28") },
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			body(r, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
			r.Header.Set("Content-Type", "application/json")
			if reason == "session" {
				r.Header.Set("Mcp-Session-Id", "none")
			}
			change(r)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := value(t, x.scrape(t), "junction_requests_refused_total", `junction_reason="`+reason+`"`); got != "1" {
				t.Errorf("%s (HTTP %d) was counted %q times, want 1", reason, resp.StatusCode, got)
			}
		}
		if strings.Contains(x.scrape(t), "canary") {
			t.Error("a label has what a client has sent")
		}
	})
}

// TestMetricsOfTokens counts keys that are accepted and rejected, without their names.
func TestMetricsOfTokens(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraModern, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		guard, keys := harness.Keyring(t, "canary-name")
		x := mustMeasure(t, p, func(x *measured, s *harness.Setup) {
			guard.Checked = x.all.Checked
			s.Guard = guard
		})
		x.As(t, keys["canary-name"]).Succeed(t, "up__echo", `{}`)
		for _, wrong := range []string{auth.NewKey(), auth.NewKey()} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+wrong)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		text := x.scrape(t)
		for result, want := range map[string]string{"accepted": "1", "invalid_token": "2", "temporarily_unavailable": "0"} {
			if got := value(t, text, "junction_tokens_checked_total", `junction_result="`+result+`"`); got != want {
				t.Errorf("%s: the count is %q, want %s", result, got, want)
			}
		}
		if strings.Contains(text, "canary") {
			t.Error("a label has the name of a key")
		}
	})
}

// TestMetricsOfQueue has one call in progress and one that waits, because of the concurrency.
func TestMetricsOfQueue(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p, func(x *measured, _ *harness.Setup) { x.Config.Concurrency = 1 })
		c := x.Talk(t)
		first := c.Begin(t, harness.Called("up__gate", `{"gate":"end"}`))
		harness.CallsOf(t, x.Journal, 1)
		second := c.Begin(t, harness.Called("up__echo", `{}`))
		ctx, tick := harness.Patient(t), time.NewTicker(10*time.Millisecond)
		defer tick.Stop()
		for value(t, x.scrape(t), "junction_upstream_waiting", `junction_upstream="up"`) != "1" {
			select {
			case <-tick.C: // the second call is on its way
			case <-ctx.Done():
				t.Fatalf("no call waits:\n%s", x.scrape(t))
			}
		}
		if n := value(t, x.scrape(t), "junction_upstream_calls", `junction_upstream="up"`); n != "1" {
			t.Errorf("%q calls are in progress, want 1", n)
		}
		x.OpenGate(t, "end")
		for _, call := range []*harness.Answering{first, second} {
			if m := call.Answer(t); m.Error != nil {
				t.Errorf("error %v", m.Error)
			}
		}
	})
}

func body(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// TestMetricsAreDocumented compares the metrics with the table of the README, in both directions.
func TestMetricsAreDocumented(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraModern, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p)
		x.Talk(t).Succeed(t, "up__echo", `{}`)
		x.all.Store("read", time.Millisecond, true)
		x.all.Checked("invalid_token")
		x.all.Calls().Ignored("up")
		x.all.StateChanged(upstream.Change{Name: "up", State: upstream.StateReady})
		x.all.StateChanged(upstream.Change{Name: "up", State: upstream.StateRetrying})
		x.all.Requests().End(&proxy.CallInfo{Method: "tools/call", Upstream: "up", Cached: true, Outcome: proxy.OK}, nil)
		text := x.scrape(t)
		types, labels := map[string]string{}, map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
			types[m[1]] = m[2]
		}
		for _, m := range regexp.MustCompile(`(?m)[{,](\w+)="`).FindAllStringSubmatch(text, -1) {
			labels[m[1]] = m[1] != "le"
		}
		for _, what := range authserver.Limitable() {
			if n := value(t, text, "junction_signin_limited_total", `junction_page="`+what+`"`); n != "0" {
				t.Errorf("the count of %s is %q before the first, want 0", what, n)
			}
		}
		if n := value(t, text, "junction_store_failures_total", `junction_store_operation="read"`); n != "1" {
			t.Errorf("%q failed reads of the storage are counted, want 1", n)
		}
		readme := mustRead(t, "cmd/junction/base/telemetry/README.md")
		documented := map[string]string{}
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (histogram|counter|gauge) \\| ").FindAllStringSubmatch(readme, -1) {
			documented[m[1]] = m[2]
		}
		if !maps.Equal(types, documented) {
			t.Errorf("the metrics and the README differ:\n%s", difference(types, documented))
		}
		for label, own := range labels {
			if own && !strings.Contains(readme, "\n| `"+label+"`") && !strings.Contains(readme, ", `"+label+"` | ") {
				t.Errorf("the label %s is not in the README", label)
			}
		}
	})
}

// TestSpansAreDocumented compares the spans of calls, questions and connections with the table of the
// README.
func TestSpansAreDocumented(t *testing.T) {
	harness.Waits(t)
	documented := documentedSpans(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil, func(c *upstream.Config) {
			c.Questions = upstream.QuestionsExact
		})
		for _, question := range []string{harness.AskForm, harness.AskSampling, harness.AskRoots} {
			x.Converse(t, harness.Asking(question), harness.AnswersTo)
		}
		if p.Upstream == client.EraLegacy {
			x.Served.Listened(t, p)
			x.Served.Ask(t, "ping", "{}")
		}
		x.flush(t)
		for _, s := range x.spans {
			method, _, _ := strings.Cut(s.name, " ")
			if s.kind == serverSpan && s.attributes["junction.outcome"] != "" && method != "initialize" {
				method = "tools/call" // any method
			}
			if !documented[s.kind+" "+method] {
				t.Errorf("the span %s of kind %s is not in the README", s.name, s.kind)
			}
		}
	})
}

// documentedSpans reads the table of spans: kind and method.
func documentedSpans(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	row := regexp.MustCompile(`(?m)^\| (.*) \| (SERVER|CLIENT) \| `)
	for _, m := range row.FindAllStringSubmatch(mustRead(t, "cmd/junction/base/telemetry/README.md"), -1) {
		for _, name := range regexp.MustCompile("`([\\w/]+)`").FindAllStringSubmatch(m[1], -1) {
			all["SPAN_KIND_"+m[2]+" "+name[1]] = true
		}
	}
	return all
}

// difference names what is in one map alone, or differs.
func difference(a, b map[string]string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			text += fmt.Sprintf("%s is a %s, documented as %q\n", name, a[name], b[name])
		}
	}
	for name := range b {
		if a[name] == "" {
			text += fmt.Sprintf("%s is documented and does not exist\n", name)
		}
	}
	return text
}

// mustRead reads a file of the tree.
func mustRead(t *testing.T, name string) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(root + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
