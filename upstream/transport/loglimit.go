package transport

import (
	"log/slog"
	"sync"
	"time"
)

// LogLimit lets limit things through in a window of time, and counts the others. It is safe for
// concurrent use.
type LogLimit struct {
	limit  int
	window time.Duration

	mu      sync.Mutex
	since   time.Time
	n       int
	dropped int
}

// NewLogLimit returns the pace at which the log is told of what a server should not send: one that
// sends it without end would fill the disk.
func NewLogLimit() LogLimit { return LogLimit{limit: 5, window: 10 * time.Second} }

// Warn logs text as long as it may, with how many were not logged since the last.
func (f *LogLimit) Warn(log *slog.Logger, text string, about ...any) {
	if show, before := f.allow(time.Now()); show {
		log.Warn(text, append(about, "not_shown", before)...)
	}
}

// allow reports whether one more may pass, and how many did not since the last that did.
func (f *LogLimit) allow(now time.Time) (ok bool, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= f.window {
		f.since, f.n = now, 0
	}
	if f.n >= f.limit {
		f.dropped++
		return false, 0
	}
	f.n++
	dropped, f.dropped = f.dropped, 0
	return true, dropped
}
