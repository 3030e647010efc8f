package otlp

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"junction/auth/authtest"
)

// answers is a receiver that answers one after the other, the last one for ever.
type answers struct {
	list  []http.Response
	err   error
	times []time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.times = append(a.times, time.Now())
	if a.err != nil {
		return nil, a.err
	}
	next := a.list[min(len(a.times), len(a.list))-1]
	if next.Body == nil {
		next.Body = io.NopCloser(strings.NewReader("canary-body"))
	}
	return &next, nil
}

func status(code int, retry string) http.Response {
	return http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Retry-After": {retry}}}
}

// TestSend sends again as long as that may help, and not after the timeout. The log has one line for
// each change.
func TestSend(t *testing.T) {
	for name, test := range map[string]struct {
		receiver answers
		attempts int
		took     time.Duration
		fails    bool
	}{
		"accepted":      {answers{list: []http.Response{status(200, "")}}, 1, 0, false},
		"busy once":     {answers{list: []http.Response{status(503, ""), status(200, "")}}, 2, time.Second, false},
		"says when":     {answers{list: []http.Response{status(429, "5"), status(200, "")}}, 2, 5 * time.Second, false},
		"says too late": {answers{list: []http.Response{status(429, "60")}}, 1, 0, true},
		"always busy":   {answers{list: []http.Response{status(502, "")}}, 4, 7 * time.Second, true},
		"refuses":       {answers{list: []http.Response{status(401, "")}}, 1, 0, true},
		"not there":     {answers{err: errors.New("refused")}, 4, 7 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := FromEnvironment("traces", environment("OTEL_EXPORTER_OTLP_ENDPOINT=http://c"))
				if err != nil {
					t.Fatal(err)
				}
				c := New(*s, authtest.Log(t))
				c.http.Transport = &test.receiver
				began := time.Now()
				err = c.send(t.Context(), &collector.ExportTraceServiceRequest{}, &collector.ExportTraceServiceResponse{})
				if (err != nil) != test.fails || len(test.receiver.times) != test.attempts || time.Since(began) != test.took {
					t.Errorf("send = %v after %d attempts and %v, want failure %v after %d and %v", err,
						len(test.receiver.times), time.Since(began), test.fails, test.attempts, test.took)
				}
			})
		})
	}
}

// TestPartly reports spans that the receiver did not take.
func TestPartly(t *testing.T) {
	text, err := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{
		RejectedSpans: 2, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := FromEnvironment("traces", environment("OTEL_EXPORTER_OTLP_ENDPOINT=http://c"))
	if err != nil {
		t.Fatal(err)
	}
	c := New(*s, authtest.Log(t))
	full := status(200, "")
	full.Body = io.NopCloser(strings.NewReader(string(text)))
	c.http.Transport = &answers{list: []http.Response{full}}
	var answer collector.ExportTraceServiceResponse
	if err := c.send(context.Background(), &collector.ExportTraceServiceRequest{}, &answer); err != nil {
		t.Fatal(err)
	}
	err = rejected(answer.GetPartialSuccess().GetRejectedSpans(), "spans", answer.GetPartialSuccess().GetErrorMessage())
	if err == nil || err.Error() != `the receiver rejected 2 spans: "too old"` {
		t.Errorf("the error is %v", err)
	}
}

// environment returns a getenv for lines NAME=value.
func environment(lines ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, line := range lines {
			if n, v, _ := strings.Cut(line, "="); n == name {
				return v, true
			}
		}
		return "", false
	}
}

// TestFromEnvironment reads the variables. A signal's own one goes before that of all signals.
func TestFromEnvironment(t *testing.T) {
	const all = "OTEL_EXPORTER_OTLP_ENDPOINT=https://c.example:4318/otlp/"
	for _, test := range []struct {
		name string
		set  []string
		want string // of the endpoint; "" is off
	}{
		{"nothing", nil, ""},
		{"endpoint", []string{all}, "https://c.example:4318/otlp/v1/traces"},
		{"own endpoint", []string{all, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t/x"}, "http://t/x"},
		{"own endpoint without a path", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t"}, "http://t/"},
		{"other endpoint", []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://m"}, ""},
		{"exporter", []string{"OTEL_TRACES_EXPORTER=otlp"}, "http://localhost:4318/v1/traces"},
		{"no exporter", []string{all, "OTEL_TRACES_EXPORTER=none"}, ""},
		{"disabled", []string{all, "OTEL_SDK_DISABLED=true"}, ""},
	} {
		s, err := FromEnvironment("traces", environment(test.set...))
		got := ""
		if s != nil {
			got = s.Endpoint.String()
		}
		if err != nil || got != test.want {
			t.Errorf("%s: the endpoint is %q (%v), want %q", test.name, got, err, test.want)
		}
	}
	s, err := FromEnvironment("traces", environment(all, "OTEL_EXPORTER_OTLP_HEADERS=a=1, b = x%2Cy",
		"OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_EXPORTER_OTLP_TIMEOUT=500", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=250"))
	if err != nil || !maps.Equal(s.Headers, map[string]string{"a": "1", "b": "x,y"}) || !s.Gzip ||
		s.Timeout != 250*time.Millisecond {
		t.Errorf("the settings are %+v (%v)", s, err)
	}
}

// TestWrongEnvironment names the variable, and not its value where that may be a secret.
func TestWrongEnvironment(t *testing.T) {
	const all = "OTEL_EXPORTER_OTLP_ENDPOINT=http://c"
	for line, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin": `OTEL_TRACES_EXPORTER is "zipkin"; set it to otlp or none`,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=canary-host": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no URL; " +
			"set it to one such as http://localhost:4318",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; set it to http/protobuf, the only protocol that is supported`,
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=br":        `OTEL_EXPORTER_OTLP_TRACES_COMPRESSION is "br"; set it to gzip or none`,
		"OTEL_EXPORTER_OTLP_TIMEOUT=soon":                 `OTEL_EXPORTER_OTLP_TIMEOUT is "soon"; set it to a number of milliseconds`,
		"OTEL_EXPORTER_OTLP_HEADERS=a=b,canary-secret":    "OTEL_EXPORTER_OTLP_HEADERS: entry 2 is no header; write name=value, with %2C for a comma",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere":         "OTEL_EXPORTER_OTLP_CERTIFICATE: open /nowhere: no such file or directory",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/nowhere1": "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: open /nowhere1: no such file or directory",
	} {
		if _, err := FromEnvironment("traces", environment(line, all)); err == nil || err.Error() != want {
			t.Errorf("%s: the error is %v, want %s", line, err, want)
		}
	}
}
