package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/proxy"
)

// scrape returns what Prometheus reads.
func scrape(t *testing.T, h http.Handler) (status int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Code, w.Body.String()
}

// mustScrape is scrape of a Telemetry that answers.
func mustScrape(t *testing.T, x *Telemetry) string {
	t.Helper()
	status, text := scrape(t, x.Handler())
	if status != http.StatusOK {
		t.Fatalf("the scrape is answered %d: %s", status, text)
	}
	return text
}

// linesOf are the lines of a scrape that begin so.
func linesOf(text, prefix string) (list []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			list = append(list, strings.TrimSuffix(line, "\n"))
		}
	}
	return list
}

// TestExpose writes labels that need escapes, and buckets that count those before them.
func TestExpose(t *testing.T) {
	x := mustNew(t)
	for _, took := range []time.Duration{time.Millisecond, 15 * time.Millisecond, time.Hour} {
		x.Requests().End(&proxy.CallInfo{Method: "tools/call", Upstream: "a", Own: "odd", Name: "o\"d\\d\n\xff",
			Version: "2026-07-28", Outcome: outcomeOK, Took: took}, nil)
	}
	text := mustScrape(t, x)
	const labels = `gen_ai_operation_name="execute_tool",gen_ai_tool_name="o\"d\\d\n` + "\ufffd" +
		`",junction_outcome="ok",junction_upstream="a",mcp_method_name="tools/call",` +
		`mcp_protocol_version="2026-07-28",network_transport="tcp"`
	for _, want := range []string{
		"# TYPE mcp_server_operation_duration_seconds histogram\n",
		"mcp_server_operation_duration_seconds_bucket{" + labels + `,le="0.01"} 1` + "\n",
		"mcp_server_operation_duration_seconds_bucket{" + labels + `,le="0.02"} 2` + "\n",
		"mcp_server_operation_duration_seconds_bucket{" + labels + `,le="300"} 2` + "\n",
		"mcp_server_operation_duration_seconds_bucket{" + labels + `,le="+Inf"} 3` + "\n",
		"mcp_server_operation_duration_seconds_sum{" + labels + "} 3600.016\n",
		"mcp_server_operation_duration_seconds_count{" + labels + "} 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the scrape lacks\n%s\nit is\n%s", want, text)
		}
	}
}

// TestExposeOff answers scrapes of a proxy that measures nothing, and of one that has ended.
func TestExposeOff(t *testing.T) {
	var off *Telemetry
	if status, text := scrape(t, off.Handler()); status != http.StatusNotFound {
		t.Errorf("without metrics the scrape is answered %d: %s", status, text)
	}
	if off.Requests() != nil || off.Calls() != nil {
		t.Error("without metrics there are observers")
	}
	ended := mustNew(t)
	if err := ended.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, text := scrape(t, ended.Handler()); status != http.StatusServiceUnavailable {
		t.Errorf("after the end the scrape is answered %d: %s", status, text)
	}
}

// TestBounded sends names that only a client has, and renames a tool for ever.
func TestBounded(t *testing.T) {
	x := mustNew(t)
	end := func(info proxy.CallInfo) { info.Outcome = outcomeOK; x.Requests().End(&info, nil) }
	for range 10 {
		end(proxy.CallInfo{Method: strings.Repeat("x", 10), Principal: "canary-principal"})
		end(proxy.CallInfo{Method: "tools/call", Name: "canary-unknown"})
		end(proxy.CallInfo{Method: "resources/read", Name: "canary://uri", Upstream: "a", Own: "canary://uri"})
	}
	for i := range maxSeries + 500 {
		end(proxy.CallInfo{Method: "tools/call", Name: strings.Repeat("n", i), Upstream: "a", Own: "n", Version: "v"})
	}
	text := mustScrape(t, x)
	if strings.Contains(text, "canary") || strings.Contains(text, "xxx") {
		t.Error("a label has what a client has sent")
	}
	if n := len(linesOf(text, "mcp_server_operation_duration_seconds_count")); n > maxSeries+1 {
		t.Errorf("there are %d series, want at most %d", n, maxSeries+1)
	}
	if !strings.Contains(text, `gen_ai_tool_name="_OTHER"`) {
		t.Error("calls of tools beyond the limit are not counted")
	}
}

// TestShares: a server that renames its tools and invents error codes for ever does not take the names
// from the calls of other servers.
func TestShares(t *testing.T) {
	x := mustNew(t)
	end := func(info proxy.CallInfo) { info.Outcome = outcomeOK; x.Requests().End(&info, nil) }
	for i := range 2 * maxSeries {
		end(proxy.CallInfo{Method: "tools/call", Name: "same", Upstream: "noisy", Own: "n", Code: int64(i + 1)})
	}
	if n := len(linesOf(mustScrape(t, x), "mcp_server_operation_duration_seconds_count")); n != 1 {
		t.Errorf("codes of a server make %d series, want 1", n)
	}
	for i := range 2 * maxSeries {
		end(proxy.CallInfo{Method: "tools/call", Name: fmt.Sprint("n", i), Upstream: "noisy", Own: "n"})
	}
	end(proxy.CallInfo{Method: "tools/call", Name: "quiet__echo", Upstream: "quiet", Own: "echo"})
	if !strings.Contains(mustScrape(t, x), `gen_ai_tool_name="quiet__echo"`) {
		t.Error("the tool of another server has lost its name")
	}
}

// TestOverflow: the attributes that need no name have a limit, too. Beyond it, the series of OpenTelemetry
// counts what all have in common, and no call is lost.
func TestOverflow(t *testing.T) {
	x := mustNew(t)
	const calls = 3 * maxSeries
	for i := range calls {
		x.Requests().End(&proxy.CallInfo{Method: "ping", Version: fmt.Sprint("v", i), Outcome: outcomeOK}, nil)
	}
	list := linesOf(mustScrape(t, x), "mcp_server_operation_duration_seconds_count")
	if n := len(list); n != 2*maxSeries {
		t.Errorf("there are %d series, want %d", n, 2*maxSeries)
	}
	rest := fmt.Sprintf("mcp_server_operation_duration_seconds_count{otel_metric_overflow=\"true\"} %d",
		calls-(2*maxSeries-1))
	if !slices.Contains(list, rest) {
		t.Errorf("the scrape lacks %s", rest)
	}
}

// TestTogether: calls that record at the same time, also the first of their series, are all counted.
func TestTogether(t *testing.T) {
	x := mustNew(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 100 {
				x.Requests().End(&proxy.CallInfo{Method: "ping", Version: fmt.Sprint("v", i), Outcome: outcomeOK}, nil)
				x.Calls().Ignored(fmt.Sprint("u", i))
			}
		})
	}
	all.Wait()
	text := mustScrape(t, x)
	for _, name := range []string{"mcp_server_operation_duration_seconds_count", "junction_upstream_notifications_ignored"} {
		list := linesOf(text, name)
		if len(list) != 100 {
			t.Errorf("%s has %d series, want 100", name, len(list))
		}
		for _, line := range list {
			if !strings.HasSuffix(line, "} 8") {
				t.Errorf("a series of 8 is %s", line)
			}
		}
	}
}
