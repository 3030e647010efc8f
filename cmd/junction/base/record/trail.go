package record

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"junction/cmd/junction/base/config"
	"junction/proxy"
)

// A Trail holds the audit in force, which a reload may replace. Its zero value writes nothing.
type Trail struct {
	Second Sink         // for configurations with OTLP; nil if there is none. Set it before Next
	Log    *slog.Logger // gets rejected requests, too; nil for none. Set it before Refused is called

	current  atomic.Pointer[Audit] // nil without an audit
	refusals refusalLog
	keys     uses
}

// Call writes the line of a call, if there is an audit.
func (t *Trail) Call(c *proxy.CallInfo) {
	// record returns false if the audit was closed; then its successor is in force.
	for a := t.current.Load(); a != nil && !a.record(c); a = t.current.Load() {
	}
}

// add writes a line, if there is an audit. It reports whether there is one.
func (t *Trail) add(line func(b []byte, now time.Time) []byte) bool {
	a := t.current.Load()
	for ; a != nil && !a.add(line); a = t.current.Load() {
	}
	return a != nil
}

// State is what an operator may have to know of an audit.
type State struct {
	Err     error // why lines cannot be written; nil if they can
	Waiting int64 // bytes of lines that are not written yet
	Dropped int64 // lines that were not written, since the audit is in force
}

// State returns the state of the audit in force; the zero State if there is none.
func (t *Trail) State() (s State) {
	if a := t.current.Load(); a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		s = State{a.failure, int64(len(a.waiting) + a.held), a.droppedLines}
	}
	return s
}

// Reopen opens the file again after a log rotation has renamed it.
func (t *Trail) Reopen() {
	if a := t.current.Load(); a != nil {
		a.Reopen()
	}
}

// Use puts a in force and closes the previous audit. A nil a disables the audit. a starts after that
// end, because both may have the same file: then it takes the open file over.
func (t *Trail) Use(a *Audit) {
	old := t.current.Swap(a)
	if old == a {
		return
	}
	switch {
	case old == nil:
	case a != nil && a.before == old:
		old.handOver()
	default:
		old.Close()
	}
	if a != nil && a.before != old {
		a.before = nil
	}
	if a != nil {
		a.start()
	}
}

// Next returns the audit for a configuration, to be passed to Use or to Drop: the one in force if the
// configuration is unchanged, nil if it names no file.
func (t *Trail) Next(c config.Audit, stderr io.Writer, log *slog.Logger) (*Audit, error) {
	now := t.current.Load()
	switch {
	case c.File == "":
		return nil, nil
	case now != nil && now.config == c:
		return now, nil
	case c.OTLP && t.Second == nil:
		return nil, errNoReceiver
	}
	a, err := openAudit(c, now, stderr, log)
	if err == nil && c.OTLP {
		a.second = t.Second
	}
	return a, err
}

// Drop closes the file of an audit that Next has returned, and that will not be used. It leaves the audit in
// force as it is.
func (t *Trail) Drop(a *Audit) {
	if a == nil || a == t.current.Load() {
		return
	}
	a.end()
	if f, ok := a.out.(*os.File); ok && a.info != nil { // otherwise it is the file of the audit in force, or stderr
		f.Close()
	}
}

var errNoReceiver = errors.New("audit.otlp is true, but no variable names the receiver; set " +
	"OTEL_EXPORTER_OTLP_ENDPOINT, such as http://localhost:4318, or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
