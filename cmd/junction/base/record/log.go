// Package record writes the log (log.go, and outages.go for the states of upstreams) and the audit of
// calls (audit.go), of rejected requests (refused.go), and of events such as sign-ins (event.go).
// chain.go numbers the lines of the audit and links them. The audit never blocks a call; the log may,
// if its reader is slow.
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
	"junction/cmd/junction/base/config"
)

// NewLog returns the log of the program. It writes each record at once, after the pending lines of
// CallLog. FlushLog writes these lines at the end.
func NewLog(w io.Writer, c config.Log) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: hide}
	lines := &lines{w: w}
	if c.Format == config.LogJSON {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration { // slog writes nanoseconds, without their unit
				return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1000)
			}
			return hide(groups, a)
		}
		return slog.New(prompt{slog.NewJSONHandler(lines, o), lines})
	}
	return slog.New(prompt{slog.NewTextHandler(lines, o), lines})
}

// secret is the prefix of every secret that Junction creates.
const secret = "jct_"

// hide redacts secrets that are logged by mistake: attributes with the name of a secret, and texts
// that contain a secret of Junction, such as errors.
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
	switch {
	case text == "":
	case secretKey(strings.ToLower(a.Key)):
		a.Value = slog.StringValue("…")
	case strings.Contains(text, secret):
		a.Value = slog.StringValue(auth.Redact(text))
	}
	return a
}

// secretKey reports whether an attribute, or a key of the configuration, has a secret as its value.
func secretKey(key string) bool {
	for _, end := range []string{"authorization", "cookie", "assertion", "secret", "password", "token"} {
		if strings.HasSuffix(key, end) {
			return true
		}
	}
	return key == "code"
}

// calls writes the lines of calls to the log. They may wait for logDelay, because a system call for
// each line costs more than the line. Their order is kept. If the program is killed, waiting lines
// are lost.
type calls struct {
	slog.Handler
	// for a TextHandler: formats lines without quotes in a fifth of the time; nil for other
	// handlers
	lines *lines
}

// CallLog returns the writer for the lines of calls in a log.
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

// Log writes a line, without a check of the level.
func (c calls) Log(at time.Time, level slog.Level, message string, attrs []slog.Attr) {
	if c.lines != nil {
		var short [400]byte
		if line, ok := c.lines.append(short[:0], at, level, message, attrs); ok &&
			!bytes.Contains(line, []byte(secret)) {
			c.lines.Write(line)
			return
		}
	}
	r := slog.NewRecord(at, level, message, 0)
	r.AddAttrs(attrs...)
	c.Handle(context.Background(), r) // an error of the log cannot be reported
}

// FlushLog writes the pending lines of CallLog.
func FlushLog(log *slog.Logger) {
	if h, ok := log.Handler().(prompt); ok {
		h.lines.flush()
	}
}

const (
	logDelay = 100 * time.Millisecond
	logSize  = 32 << 10 // as many bytes are written without a delay
)

// prompt is a handler that writes each record at once.
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
func (l *lines) append(b []byte, at time.Time, level slog.Level, message string,
	attrs []slog.Attr) (line []byte, ok bool) {
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

// second is the formatted time of one second, without the milliseconds. Formatting it for each line
// would be a third of the work of the line.
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

// unquoted reports whether a text, which is not empty, certainly needs no quotes.
func unquoted(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' {
			return false
		}
	}
	return text != ""
}

// lines collects lines of the log and writes whole lines together: logDelay after the first, or
// when there are logSize bytes.
type lines struct {
	w      io.Writer
	second atomic.Pointer[second] // of the last line

	mu      sync.Mutex
	text    []byte
	timer   *time.Timer // nil before the first line
	waiting bool        // for the timer
}

// Write adds one line. Like every log, it blocks while the reader of the output is slow.
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

// write writes everything and ignores errors; l.mu is held.
func (l *lines) write() {
	if len(l.text) > 0 {
		l.w.Write(l.text)
		l.text = l.text[:0]
	}
}
