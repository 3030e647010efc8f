package telemetry

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// mustAudit starts the program with an audit that is also sent as OTLP.
func mustAudit(t *testing.T, variables ...string) (p *harness.Program, file string) {
	t.Helper()
	p = harness.NewProgram(t)
	file = filepath.Join(t.TempDir(), "audit.jsonl")
	p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\naudit: { file: "+file+", otlp: true }\n")
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), variables...)
	p.MustStart(t, cmd)
	return p, file
}

// TestAuditAsLogs sends each line of the audit, byte for byte, to a receiver of logs. The end of the
// program loses none.
func TestAuditAsLogs(t *testing.T) {
	harness.Waits(t)
	r := newReceiver(t)
	p, file := mustAudit(t, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="+r.url+"/v1/logs")
	for _, era := range harness.Eras {
		harness.Talk(t, p.URL, era).Succeed(t, "demo__echo", `{"text":"hello"}`)
	}
	p.MustStop(t)
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// A request that the stop has cut off is sent again, and may have arrived before.
	sent, calls := "", map[string]bool{}
	for i, line := range r.lines {
		if !slices.Contains(r.lines[:i], line) {
			sent += line + "\n"
		}
	}
	if sent != string(written) {
		t.Errorf("the receiver has\n%sand the file\n%s", sent, written)
	}
	for _, l := range r.labels {
		if l["junction.audit.name"] == "demo__echo" && l["junction.audit.outcome"] == "ok" {
			calls[l["junction.audit.number"]] = true
		}
	}
	if len(calls) != 2 {
		t.Errorf("%d records have the attributes of the call, want 2: %v", len(calls), r.labels)
	}
}

// TestAuditAsLogsNowhere names no receiver, or a wrong one: the program does not start, because it
// does nothing that it cannot audit as its file says.
func TestAuditAsLogsNowhere(t *testing.T) {
	harness.Waits(t)
	for variable, want := range map[string]string{
		"OTEL_X=": "set OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318": "audit.otlp: OTEL_EXPORTER_OTLP_ENDPOINT is no URL",
	} {
		p := harness.NewProgram(t)
		p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\naudit: { file: stderr, otlp: true }\n")
		cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
		cmd.Env = append(os.Environ(), variable)
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(want)) {
			t.Errorf("with %s it ends with %v, and says %s; want %q", variable, err, out, want)
		}
	}
}

// TestAuditAsLogsUnreachable has a receiver that is not there: calls go on, and the file has them.
func TestAuditAsLogsUnreachable(t *testing.T) {
	harness.Waits(t)
	p, file := mustAudit(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT=100",
		"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none")
	harness.Talk(t, p.URL, harness.Eras[0]).Succeed(t, "demo__echo", `{"text":"hello"}`)
	p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="logs are not exported" endpoint=\S+ error=`),
		harness.Patience, p.Done)
	p.MustStop(t)
	p.Stderr.MustMatch(t, regexp.MustCompile(`msg="the last lines of the audit were not sent; its file has them"`),
		harness.Patience, p.Done)
	if written, err := os.ReadFile(file); err != nil || !bytes.Contains(written, []byte(`"name":"demo__echo"`)) {
		t.Errorf("the file has %s, %v", written, err)
	}
}

// TestTraceAndRequestMeet: from a line of the audit or of the log one finds the trace, and from a span
// the lines.
func TestTraceAndRequestMeet(t *testing.T) {
	harness.Waits(t)
	r := newReceiver(t)
	p, file := mustAudit(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.url, "OTEL_BSP_SCHEDULE_DELAY=50")
	harness.Talk(t, p.URL, client.EraModern).Succeed(t, "demo__echo", `{"text":"hello"}`)
	p.MustStop(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.kind != serverSpan || s.attributes["gen_ai.tool.name"] != "demo__echo" {
			continue
		}
		request := s.attributes["junction.request.id"]
		line := fmt.Sprintf(`"request_id":"%s","trace_id":"%s"`, request, s.trace)
		if request == "" || !strings.Contains(string(text), line) {
			t.Errorf("no line of the audit has %s:\n%s", line, text)
		}
		if log := p.Stderr.String(); !strings.Contains(log, "request_id="+request+" trace_id="+s.trace) {
			t.Errorf("the log has no line of the span:\n%s", log)
		}
		return
	}
	t.Errorf("no span of the call was sent: %v", r.spans)
}
