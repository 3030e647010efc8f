package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"go.opentelemetry.io/otel/sdk/resource"

	"junction/auth/authtest"
)

// sink takes log records, and answers with a status until a time.
type sink struct {
	status int
	until  time.Time

	mu       sync.Mutex
	lines    []string
	messages int
}

func (s *sink) RoundTrip(r *http.Request) (*http.Response, error) {
	code := http.StatusOK
	if time.Now().Before(s.until) {
		code = s.status
	}
	text, err := io.ReadAll(r.Body)
	var in collector.ExportLogsServiceRequest
	if err = errors.Join(err, proto.Unmarshal(text, &in)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.messages++; code == http.StatusOK {
		for _, l := range in.ResourceLogs[0].ScopeLogs[0].LogRecords {
			s.lines = append(s.lines, l.Body.GetStringValue())
		}
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(""))}, nil
}

// inLines runs a story of a Lines whose receiver answers with a status for a while.
func inLines(t *testing.T, status int, wait time.Duration, story func(t *testing.T, l *Lines, s *sink)) {
	synctest.Test(t, func(t *testing.T) {
		settings, err := FromEnvironment("logs", environment("OTEL_EXPORTER_OTLP_ENDPOINT=http://c"))
		if err != nil {
			t.Fatal(err)
		}
		s := &sink{status: status, until: time.Now().Add(wait)}
		c := New(*settings, authtest.Log(t))
		c.http.Transport = s
		story(t, NewLines(c, resource.Empty(), "audit", authtest.Log(t)), s)
	})
}

// add adds the lines of the numbers from first to last, one after the other.
func add(l *Lines, first, last int) {
	for n := first; n <= last; n++ {
		l.Add(fmt.Appendf(nil, "{\"n\":%d}\n", n))
	}
}

// mustHave requires the lines of the numbers from 1 to n, in their order.
func (s *sink) mustHave(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, line := range s.lines {
		if line != fmt.Sprintf(`{"n":%d}`, i+1) {
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
	if len(s.lines) != n {
		t.Fatalf("the receiver has %d lines, want %d", len(s.lines), n)
	}
}

// sent returns the number of messages.
func (s *sink) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages
}

// TestLines sends each line once and in order, with few messages, also after ten minutes without
// the receiver.
func TestLines(t *testing.T) {
	for name, wait := range map[string]time.Duration{"answers": 0, "is away for ten minutes": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inLines(t, http.StatusServiceUnavailable, wait, func(t *testing.T, l *Lines, s *sink) {
				add(l, 1, 1000)
				time.Sleep(wait + time.Minute)
				s.mustHave(t, 1000)
				if n := s.sent(); wait == 0 && n != 2 {
					t.Errorf("1000 lines take %d messages, want 2", n)
				}
				add(l, 1001, 1001)
				if err := l.Close(t.Context()); err != nil {
					t.Error(err)
				}
				s.mustHave(t, 1001)
			})
		})
	}
}

// TestLinesRefused does not send again what the receiver will never accept.
func TestLinesRefused(t *testing.T) {
	inLines(t, http.StatusBadRequest, time.Minute, func(t *testing.T, l *Lines, s *sink) {
		add(l, 1, 3)
		time.Sleep(2 * time.Minute)
		add(l, 1, 2)
		time.Sleep(time.Minute)
		s.mustHave(t, 2)
		if err := l.Close(t.Context()); err != nil || s.sent() != 2 {
			t.Errorf("%d messages, %v; want 2", s.sent(), err)
		}
	})
}

// TestLinesBound keeps no more than its limit while the receiver is away, and Close does not wait
// for the receiver.
func TestLinesBound(t *testing.T) {
	inLines(t, http.StatusServiceUnavailable, time.Hour, func(t *testing.T, l *Lines, s *sink) {
		long := []byte(`"` + strings.Repeat("x", 1<<20) + "\"\n")
		for range 20 {
			l.Add(long)
		}
		l.mu.Lock()
		if len(l.waiting) > linesQueue || l.dropped != 13 {
			t.Errorf("%d bytes wait, and %d lines are dropped; want 13", len(l.waiting), l.dropped)
		}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Close(ctx); err == nil || !strings.HasPrefix(err.Error(), "7 lines were not sent") {
			t.Errorf("Close = %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// TestRecord: the body of a record is the line, byte for byte. Its attributes are the texts and numbers
// of a line that is not too long.
func TestRecord(t *testing.T) {
	l := &Lines{event: "audit"}
	for line, want := range map[string]string{
		`{"time":"1970-01-01T00:00:01Z","Name":"A\u0042","n":1.50,"deep":{"a":1}}`: "1 audit.Name audit.n",
		`{"trace_id":"0102030405060708090a0b0c0d0e0f10"}`:                          "0 audit.trace_id of 0102030405060708090a0b0c0d0e0f10",
		`{"trace_id":"01"}`: "0 audit.trace_id",
		`no JSON `:          "0",
		`{"long":"` + strings.Repeat("x", longestLine) + `"}`: "0",
	} {
		r := l.record([]byte(line))
		got := fmt.Sprint(r.TimeUnixNano / uint64(time.Second))
		for _, a := range r.Attributes {
			got += " " + a.Key
		}
		if len(r.TraceId) > 0 {
			got += fmt.Sprintf(" of %x", r.TraceId)
		}
		if r.Body.GetStringValue() != line || got != want {
			t.Errorf("the record of %.80s is %.80s with %q, want %q", line, r.Body.GetStringValue(), got, want)
		}
	}
}
