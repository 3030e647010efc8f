package telemetry

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
)

// mustExport starts the program with variables of OpenTelemetry.
func mustExport(t *testing.T, variables ...string) *harness.Program {
	t.Helper()
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\n")
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(append(os.Environ(), "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=100"), variables...)
	p.MustStart(t, cmd)
	return p
}

// TestExport sends the traces and metrics of a running program to a receiver.
func TestExport(t *testing.T) {
	harness.Waits(t)
	r := newReceiver(t)
	secret := "canary-otlp-key"
	authtest.Secret("OTEL_EXPORTER_OTLP_HEADERS", secret)
	p := mustExport(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.url, "OTEL_EXPORTER_OTLP_HEADERS=api-key="+secret,
		"OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_SERVICE_NAME=mine")
	for _, era := range harness.Eras {
		harness.Talk(t, p.URL, era).Succeed(t, "demo__echo", `{"text":"hello"}`)
	}
	r.await(t, "four spans and the metrics of calls and of the state", func() bool {
		kinds := map[string]int{}
		for _, s := range r.spans {
			kinds[s.kind+s.attributes["gen_ai.tool.name"]]++
		}
		return kinds[serverSpan+"demo__echo"] == 2 && kinds[clientSpan+"echo"] == 2 &&
			r.metrics["mcp.server.operation.duration"] && r.metrics["junction.upstream.state"]
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.header.Get("Api-Key") != secret || r.service != "mine" {
		t.Errorf("the key is %q and the service %q", r.header.Get("Api-Key"), r.service)
	}
}

// TestExportNowhere has no receiver: calls go on, and the log has one line.
func TestExportNowhere(t *testing.T) {
	harness.Waits(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := mustExport(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(), "OTEL_EXPORTER_OTLP_TIMEOUT=100",
		"OTEL_METRICS_EXPORTER=none")
	c := harness.Talk(t, p.URL, harness.Eras[0])
	c.Succeed(t, "demo__echo", `{"text":"hello"}`)
	p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="traces are not exported" endpoint=\S+ error=`),
		harness.Patience, p.Done)
	c.Succeed(t, "demo__echo", `{"text":"hello"}`)
	p.MustStop(t)
	if n := len(regexp.MustCompile("traces are not exported").FindAllString(p.Stderr.String(), -1)); n != 1 {
		t.Errorf("the log has %d lines about exports, want 1:\n%s", n, p.Stderr)
	}
}

// TestExportWrongVariable goes on without the signal, and names the variable.
func TestExportWrongVariable(t *testing.T) {
	harness.Waits(t)
	p := mustExport(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	p.Stderr.MustMatch(t, regexp.MustCompile(`msg="traces are not exported: a variable is wrong" `+
		`error="OTEL_EXPORTER_OTLP_PROTOCOL is \\"grpc\\"; set it to http/protobuf, the only protocol that is supported"`),
		harness.Patience, p.Done)
	harness.Talk(t, p.URL, harness.Eras[0]).Succeed(t, "demo__echo", `{"text":"hello"}`)
}
