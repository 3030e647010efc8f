package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// needPrometheus skips the test where Debian's package prometheus is not installed.
func needPrometheus(t *testing.T) {
	t.Helper()
	needs.Promtool.Require(t)
	needs.Server.Require(t)
}

// promtool runs a command of promtool.
func promtool(ctx context.Context, in string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(ctx, "promtool", args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &said, &said
	err = cmd.Run()
	return said.String(), err
}

// mustScrape returns the metrics of a running program.
func mustScrape(t *testing.T, p *harness.Program) string {
	t.Helper()
	return mustGet(t, p.Admin+"/metrics")
}

// mustGet returns what is at a URL.
func mustGet(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s is answered %d: %s (%v)", url, resp.StatusCode, text, err)
	}
	return string(text)
}

const metricsNeed = `
audit: { file: audit.jsonl }
upstreams:
  demo: { command: [junction, demo] }
  missing: { command: [/nowhere/program] }
`

// TestPrometheusAcceptsTheScrape has promtool parse and check the metrics of a running program.
func TestPrometheusAcceptsTheScrape(t *testing.T) {
	harness.Waits(t)
	needPrometheus(t)
	p := harness.MustProgram(t, metricsNeed)
	for _, era := range harness.Eras {
		harness.Talk(t, p.URL, era).Succeed(t, "demo__echo", `{"text":"hello"}`)
	}
	text := mustScrape(t, p)
	if out, err := promtool(t.Context(), text, "check", "metrics"); err != nil || out != "" {
		t.Errorf("promtool: %v\n%s\nthe metrics are\n%s", err, out, text)
	}
	if n := value(t, text, "mcp_server_operation_duration_seconds_count", `gen_ai_tool_name="demo__echo"`,
		`mcp_protocol_version="2026-07-28"`); n != "1" {
		t.Errorf("the modern client's call was counted %q times", n)
	}
}

// expressions of the dashboard and of the alert rules.
func expressions(t *testing.T) (dashboard, alerts []string) {
	t.Helper()
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(mustRead(t, "cmd/junction/deploy/grafana.json")), &board); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", "junction", "$upstream", ".*")
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			dashboard = append(dashboard, fill.Replace(target.Expr))
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(mustRead(t, "cmd/junction/deploy/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Expr)
		}
	}
	if len(dashboard) < 20 || len(alerts) < 10 {
		t.Fatalf("there are %d expressions of the dashboard and %d of alerts", len(dashboard), len(alerts))
	}
	return dashboard, alerts
}

// TestRecipesNameMetrics has the dashboard and the alerts use documented metrics and labels only.
func TestRecipesNameMetrics(t *testing.T) {
	harness.Waits(t)
	dashboard, alerts := expressions(t)
	readme := mustRead(t, "cmd/junction/base/telemetry/README.md")
	names := regexp.MustCompile(`\b(?:mcp|gen_ai|junction|go|process|error|network)_\w+`)
	for _, expr := range append(dashboard, alerts...) {
		for _, name := range names.FindAllString(expr, -1) {
			if family := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, ""); !strings.Contains(readme, "`"+family+"`") {
				t.Errorf("%s is not documented; it is in %s", name, expr)
			}
		}
	}
}

// TestPrometheus runs Prometheus with the recipes beside a running program. Every expression works,
// every panel shows something, and the alert of a missing upstream is pending.
func TestPrometheus(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	needPrometheus(t)
	p := harness.MustProgram(t, metricsNeed)
	for _, era := range harness.Eras {
		harness.Talk(t, p.URL, era).Succeed(t, "demo__echo", `{"text":"hello"}`)
	}
	server := mustPrometheus(t, p)
	// without data: no operation on a storage of sign-ins, no failed call, and no replicas
	empty := regexp.MustCompile(`junction_store_duration|error_type!=|junction_outcome=~|junction_replicas`)
	dashboard, alerts := expressions(t)
	for _, expr := range dashboard {
		mustQuery(t, server, expr, !empty.MatchString(expr))
	}
	for _, expr := range alerts {
		mustQuery(t, server, expr, false)
	}
	mustQuery(t, server, `ALERTS{alertname="JunctionUpstreamDown",junction_upstream="missing",alertstate="pending"}`, true)
}

// mustPrometheus starts Prometheus with our files, which it reads every second, and returns its URL.
func mustPrometheus(t *testing.T, p *harness.Program) string {
	t.Helper()
	dir, address := t.TempDir(), process.FreePort(t)
	config := strings.NewReplacer("127.0.0.1:8421", strings.TrimPrefix(p.Admin, "http://"),
		"scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s").
		Replace(mustRead(t, "cmd/junction/deploy/prometheus.yaml"))
	for name, text := range map[string]string{"prometheus.yaml": config,
		"alerts.yaml": mustRead(t, "cmd/junction/deploy/alerts.yaml")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool(t.Context(), "", "check", "config", filepath.Join(dir, "prometheus.yaml")); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	process.MustStartServer(t, exec.CommandContext(t.Context(), "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address),
		regexp.MustCompile(`Server is ready to receive web requests`))
	return "http://" + address
}

// mustQuery evaluates an expression; with wanted it waits until there is a result.
func mustQuery(t *testing.T, server, expr string, wanted bool) {
	t.Helper()
	ctx := harness.Patient(t)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var found struct {
			Data struct{ Result []any }
		}
		text := mustGet(t, server+"/api/v1/query?query="+url.QueryEscape(expr)) // a wrong expression is answered 400
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Fatalf("%s: %v\n%s", expr, err, text)
		}
		if !wanted || len(found.Data.Result) > 0 {
			return
		}
		select {
		case <-tick.C: // the next scrape
		case <-ctx.Done():
			t.Fatalf("%s has no result", expr)
		}
	}
}

// TestScrapeWhileStartingAndStopping reads the metrics before the upstream has answered for the first
// time, and while the program waits for the last call.
func TestScrapeWhileStartingAndStopping(t *testing.T) {
	harness.Waits(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, address := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  silent: { url: %q }\n  up: { url: %q }\n",
		"http://"+silent.Addr().String(), address))
	text := mustScrape(t, p)
	if value(t, text, "junction_upstream_state", `junction_state="starting"`, `junction_upstream="silent"`) != "1" {
		t.Errorf("the upstream that is silent is not starting:\n%s", text)
	}
	c := harness.Talk(t, p.URL, client.EraLegacy)
	last := c.Begin(t, harness.Called("up__gate", `{"gate":"end"}`))
	if _, err := s.Journal.Await(harness.Patient(t), upstreamtest.Method("tools/call")); err != nil {
		t.Fatal(err)
	}
	process.Terminate(p.Cmd.Process.Pid)
	p.Stderr.MustMatch(t, regexp.MustCompile(`msg="shutting down"`), harness.Patience, p.Done)
	text = mustScrape(t, p)
	if value(t, text, "junction_upstream_calls", `junction_upstream="up"`) != "1" {
		t.Errorf("the last call is not in progress:\n%s", text)
	}
	s.Release("end")
	if m := last.Answer(t); m.Error != nil {
		t.Errorf("the last call failed: %v", m.Error)
	}
	<-p.Done
	if _, err := http.Get(p.Admin + "/metrics"); !errors.As(err, new(net.Error)) {
		t.Errorf("after the end the scrape has the error %v", err)
	}
}

// TestEachAlertHasARunbook: the annotation of each alert names a section, and each section an alert. What the alert
// about failed calls counts is in the panel that its section names.
func TestEachAlertHasARunbook(t *testing.T) {
	harness.Waits(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(mustRead(t, "cmd/junction/deploy/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	const file = "cmd/junction/deploy/RUNBOOK.md"
	text, sections := mustRead(t, file), 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			sections++
			if r.Alert == "JunctionCallsFail" {
				wantInPanel(t, "Failed calls", r.Expr)
			}
			if r.Annotations["runbook"] != file+"#"+strings.ToLower(r.Alert) || !strings.Contains(text, "\n## "+r.Alert+"\n") {
				t.Errorf("%s has the runbook %q, and %s no such section", r.Alert, r.Annotations["runbook"], file)
			}
		}
	}
	if n := strings.Count(text, "\n## "); n != sections {
		t.Errorf("%s has %d sections for %d alerts", file, n, sections)
	}
}

// wantInPanel reports each outcome of requests that an alert counts, and that a panel of the board does not show.
func wantInPanel(t *testing.T, title, expr string) {
	t.Helper()
	outcomes := func(expr string) (words []string) {
		for _, m := range regexp.MustCompile(`junction_outcome=~?"([a-z_|]+)"`).FindAllStringSubmatch(expr, -1) {
			words = append(words, strings.Split(m[1], "|")...)
		}
		return words
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(mustRead(t, "cmd/junction/deploy/grafana.json")), &board); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			if panel.Title == title {
				shown = append(shown, outcomes(target.Expr)...)
			}
		}
	}
	counted := outcomes(expr)
	if len(counted) == 0 {
		t.Errorf("%s counts no outcome", expr)
	}
	for _, outcome := range counted {
		if !slices.Contains(shown, outcome) {
			t.Errorf("the panel %s does not show the outcome %s, which its alert counts", title, outcome)
		}
	}
}
