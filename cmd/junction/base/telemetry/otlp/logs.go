package otlp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"

	"junction/upstream/pace"
)

const (
	linesQueue  = 8 << 20                // limit of the waiting bytes
	linesBatch  = 512                    // lines in one message
	linesDelay  = 200 * time.Millisecond // how long a line waits for others
	linesPause  = 5 * time.Second        // after a message that was not accepted
	longestLine = 64 << 10               // of a line, in bytes, with attributes; a longer one has only its body
)

// Lines sends lines of JSON as log records, in their order. It waits for a receiver that does not
// answer, within a limit of memory. Its methods may be called concurrently.
type Lines struct {
	client   *Client
	log      *slog.Logger
	resource *resource.Resource
	event    string // the name of each record's event

	wake   chan struct{} // 1-buffered: lines are waiting
	ending context.Context
	end    context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	waiting []byte // whole lines
	dropped int    // lines that found no room since the last message
}

// NewLines returns a Lines, which Close ends.
func NewLines(c *Client, r *resource.Resource, event string, log *slog.Logger) *Lines {
	l := &Lines{client: c, log: log, resource: r, event: event, wake: make(chan struct{}, 1),
		ended: make(chan struct{})}
	l.ending, l.end = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Add accepts whole lines. It does not block: without room it drops the lines and counts them for
// the log. It copies the lines.
func (l *Lines) Add(lines []byte) {
	l.mu.Lock()
	if len(l.waiting)+len(lines) > linesQueue && len(l.waiting) > 0 {
		l.dropped += bytes.Count(lines, []byte("\n"))
	} else {
		l.waiting = append(l.waiting, lines...)
	}
	l.mu.Unlock()
	pace.Wake(l.wake)
}

// Close tries once to send the waiting lines, until ctx ends, and ends the Lines. The error says
// how many were not sent.
func (l *Lines) Close(ctx context.Context) error {
	l.end()
	<-l.ended
	defer l.client.Close()
	l.mu.Lock()
	left := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for len(left) > 0 {
		batch := firstLines(left)
		if err := l.send(ctx, batch); err != nil {
			return errors.Join(fmt.Errorf("%d lines were not sent", bytes.Count(left, []byte("\n"))), err)
		}
		left = left[len(batch):]
	}
	return nil
}

// run sends until Close. Lines that were not accepted stay in front of the queue, unless the
// receiver rejects them permanently.
func (l *Lines) run() {
	defer close(l.ended)
	for wait := linesDelay; ; {
		select {
		case <-l.wake:
		case <-l.ending.Done():
			return
		}
		if !sleep(l.ending, wait) {
			return
		}
		l.mu.Lock()
		batch, dropped := bytes.Clone(firstLines(l.waiting)), l.dropped
		l.dropped = 0
		l.mu.Unlock()
		if dropped > 0 {
			l.log.Error("the receiver of logs takes fewer lines than there are: some are not sent", "lines", dropped,
				"endpoint", l.client.settings.Endpoint.Redacted())
		}
		if len(batch) == 0 {
			continue
		}
		err := l.send(l.ending, batch)
		if l.ending.Err() != nil {
			return // Close tries again
		}
		_, refused := errors.AsType[refusedError](err)
		if refused {
			l.log.Error("the receiver of logs refuses lines: they are not sent again", "lines",
				bytes.Count(batch, []byte("\n")), "error", err)
		}
		if wait = linesPause; err == nil || refused {
			wait = l.sent(len(batch))
		}
		pace.Wake(l.wake) // for the rest
	}
}

// sent removes bytes from the queue, and returns how long the next lines wait: not at all if there
// are enough for a message.
func (l *Lines) sent(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = l.waiting[n:]
	if len(l.waiting) > 0 {
		return 0
	}
	l.waiting = nil // the memory of a backlog is not kept
	return linesDelay
}

// send sends the lines as one message.
func (l *Lines) send(ctx context.Context, lines []byte) error {
	scope := &logs.ScopeLogs{Scope: scopeOf(instrumentation.Scope{Name: "junction"})}
	for line := range bytes.Lines(lines) {
		scope.LogRecords = append(scope.LogRecords, l.record(bytes.TrimSuffix(line, []byte("\n"))))
	}
	var answer collector.ExportLogsServiceResponse
	err := l.client.send(ctx, &collector.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource: resourceOf(l.resource), ScopeLogs: []*logs.ScopeLogs{scope}}}}, &answer)
	if ctx.Err() == nil {
		p := answer.GetPartialSuccess()
		l.client.note(cmp.Or(err, rejected(p.GetRejectedLogRecords(), "lines", p.GetErrorMessage())))
	}
	return err
}

// record returns the record of a line. Its body is the line, byte for byte, so that a chain of
// hashes can be verified. Its attributes are the members that have a text or a number. The member
// trace_id is also the trace of the record.
func (l *Lines) record(line []byte) *logs.LogRecord {
	r := &logs.LogRecord{ObservedTimeUnixNano: nanos(time.Now()), EventName: l.event,
		SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		Body: text(string(line))}
	var members map[string]any
	if len(line) > longestLine || json.Unmarshal(line, &members) != nil {
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var v *common.AnyValue
		switch m := members[name].(type) {
		case string:
			if at, err := time.Parse(time.RFC3339, m); err == nil && name == "time" {
				r.TimeUnixNano = nanos(at)
				continue
			}
			if id, err := hex.DecodeString(m); name == "trace_id" && err == nil && len(id) == 16 {
				r.TraceId = id
			}
			v = text(m)
		case float64:
			v = &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: m}}
		default:
			continue
		}
		r.Attributes = append(r.Attributes, &common.KeyValue{Key: l.event + "." + name, Value: v})
	}
	return r
}

// firstLines returns the lines of the next message.
func firstLines(lines []byte) []byte {
	n := 0
	for range linesBatch {
		end := bytes.IndexByte(lines[n:], '\n')
		if end < 0 {
			break
		}
		if n += end + 1; n > 1<<20 {
			break
		}
	}
	return lines[:n]
}
