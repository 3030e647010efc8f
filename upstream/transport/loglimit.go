package transport

import (
	"log/slog"
	"sync"
	"time"
)

// LogLimit is a rate limit for messages about a server's protocol violations, which otherwise could
// fill the disk: it passes at most logLimit messages per logWindow, and counts the rest. The zero
// value is ready to use, and is safe for concurrent use.
type LogLimit struct {
	mu      sync.Mutex
	since   time.Time
	n       int
	dropped int
}

const (
	logLimit  = 5
	logWindow = 10 * time.Second
)

// Warn logs text unless the limit is reached. It adds the number of messages that were dropped
// before.
func (f *LogLimit) Warn(log *slog.Logger, text string, about ...any) {
	if show, before := f.allow(time.Now()); show {
		log.Warn(text, append(about, "not_shown", before)...)
	}
}

// allow reports whether another message may pass, and how many were dropped since the last one that
// passed.
func (f *LogLimit) allow(now time.Time) (ok bool, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= logWindow {
		f.since, f.n = now, 0
	}
	if f.n >= logLimit {
		f.dropped++
		return false, 0
	}
	f.n++
	dropped, f.dropped = f.dropped, 0
	return true, dropped
}
