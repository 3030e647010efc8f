// Package record writes what the program leaves behind about its work: the log (log.go), and the audit
// of calls (audit.go) and of rejected requests (refused.go). Neither blocks a call.
package record

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"junction/auth"
	"junction/cmd/junction/config"
)

// NewLog returns the log of the program. A record is written at once, and those of CallLog before
// it; FlushLog writes the latter at the end.
func NewLog(w io.Writer, c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: hide}
	lines := &lines{w: w}
	if c.Format == config.LogJSON {
		return slog.New(prompt{slog.NewJSONHandler(lines, o), lines})
	}
	return slog.New(prompt{slog.NewTextHandler(lines, o), lines})
}

// secret begins everything of ours that is one.
const secret = "jct_"

// hide keeps secrets out of the log where somebody writes one by mistake: what goes by the name of
// one, and what looks like one of ours, also in the text of an error.
func hide(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			text = err.Error()
		}
	}
	switch key := strings.ToLower(a.Key); {
	case text == "":
	case key == "authorization", key == "cookie", key == "set-cookie", key == "code", key == "client_assertion", key == "client_secret", key == "password", strings.HasSuffix(key, "_token"):
		a.Value = slog.StringValue("…")
	case strings.Contains(text, secret):
		a.Value = slog.StringValue(auth.Redact(text))
	}
	return a
}

// calls is where the lines of calls go: to the same place as a log, but they may wait for logDelay,
// because one system call for each call's line costs more than the line. The order stays. A program
// that is killed loses them.
type calls struct {
	slog.Handler
	// of a TextHandler, for the lines in which nothing needs quotes, which take a fifth of the time
	// here; nil for another
	lines *lines
}

// CallLog returns where the lines of calls go beside those of a log.
func CallLog(log *slog.Logger) calls {
	h, ok := log.Handler().(prompt)
	if !ok {
		return calls{log.Handler(), nil}
	}
	if _, text := h.Handler.(*slog.TextHandler); text {
		return calls(h)
	}
	return calls{h.Handler, nil}
}

// Log writes a line, at whatever level.
func (c calls) Log(at time.Time, level slog.Level, message string, attrs []slog.Attr) {
	if c.lines != nil {
		var short [400]byte
		if line, ok := c.lines.append(short[:0], at, level, message, attrs); ok && !bytes.Contains(line, []byte(secret)) {
			c.lines.Write(line)
			return
		}
	}
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(attrs...)
	c.Handle(context.Background(), r) // there is nobody to tell when that fails
}

// FlushLog writes what CallLog holds back.
func FlushLog(log *slog.Logger) {
	if h, ok := log.Handler().(prompt); ok {
		h.lines.flush()
	}
}

const (
	logDelay = 100 * time.Millisecond
	logSize  = 32 << 10 // as many bytes are written without a delay
)

// prompt is a handler whose records are written at once.
type prompt struct {
	slog.Handler
	lines *lines
}

func (h prompt) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	h.lines.flush()
	return err
}

func (h prompt) WithAttrs(attrs []slog.Attr) slog.Handler {
	return prompt{h.Handler.WithAttrs(attrs), h.lines}
}
func (h prompt) WithGroup(name string) slog.Handler {
	return prompt{h.Handler.WithGroup(name), h.lines}
}

// append appends a line to b as a TextHandler would write it. It returns false if it cannot.
func (l *lines) append(b []byte, at time.Time, level slog.Level, message string, attrs []slog.Attr) (line []byte, ok bool) {
	if at.IsZero() || !unquoted(message) {
		return nil, false
	}
	b = l.appendTime(append(b, "time="...), at)
	b = append(append(append(append(b, " level="...), level.String()...), " msg="...), message...)
	for i := range attrs {
		a := &attrs[i]
		if !unquoted(a.Key) {
			return nil, false
		}
		b = append(append(append(b, ' '), a.Key...), '=')
		switch a.Value.Kind() {
		case slog.KindString:
			text := a.Value.String()
			switch {
			case text == "":
				b = append(b, '"', '"')
			case unquoted(text):
				b = append(b, text...)
			default:
				return nil, false
			}
		case slog.KindInt64:
			b = strconv.AppendInt(b, a.Value.Int64(), 10)
		case slog.KindDuration:
			b = append(b, a.Value.Duration().String()...)
		default:
			return nil, false
		}
	}
	return append(b, '\n'), true
}

// second is the text of all times within one, but for the milliseconds: to take a time apart is a
// third of the work of a line.
type second struct {
	unix        int64
	location    *time.Location
	begin, zone string
}

// appendTime appends a time as slog's handlers write it.
func (l *lines) appendTime(b []byte, at time.Time) []byte {
	s := l.second.Load()
	if s == nil || s.unix != at.Unix() || s.location != at.Location() {
		s = &second{at.Unix(), at.Location(), at.Format("2006-01-02T15:04:05."), at.Format("Z07:00")}
		l.second.Store(s)
	}
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(append(append(b, s.begin...), byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10)), s.zone...)
}

// unquoted reports whether a text certainly needs no quotes; it is not empty.
func unquoted(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' {
			return false
		}
	}
	return text != ""
}

// lines collects lines of the log and writes them together, whole lines only, logDelay after the
// first or when there are enough.
type lines struct {
	w      io.Writer
	second atomic.Pointer[second] // of the last line

	mu      sync.Mutex
	text    []byte
	timer   *time.Timer // nil before the first line
	waiting bool        // for the timer
}

// Write takes one line. Like every log it is written at the speed of who reads it: it blocks while
// that one is behind.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	switch {
	case len(l.text) >= logSize:
		l.write()
	case l.timer == nil:
		l.timer = time.AfterFunc(logDelay, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.waiting = false
			l.write()
		})
		l.waiting = true
	case !l.waiting:
		l.timer.Reset(logDelay)
		l.waiting = true
	}
	return len(line), nil
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write()
}

// write writes everything; l.mu is held. There is nobody to tell when that fails.
func (l *lines) write() {
	if len(l.text) > 0 {
		l.w.Write(l.text)
		l.text = l.text[:0]
	}
}
