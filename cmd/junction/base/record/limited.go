package record

import (
	"sync"
	"time"

	"junction/upstream/bounded"
)

// Limited counts the calls of callers who exceed a limit. Such a caller can send any number of calls, and each of
// them costs no more than a line of the log; so each caller has one line a minute. The zero value is ready to use.
type Limited struct {
	mu      sync.Mutex
	callers map[string]tally
}

// Line reports whether a call of a principal gets a line, and how many other ones that line counts.
func (l *Limited) Line(principal string, now time.Time) (more int, ok bool) {
	const most = 1000 // beyond it, some callers are forgotten, and have a line again
	l.mu.Lock()
	defer l.mu.Unlock()
	over := func(t tally) bool { return now.Sub(t.logged) >= refusalCalm }
	t, known := l.callers[principal]
	if known && !over(t) {
		t.more++
		l.callers[principal] = t
		return 0, false
	}
	bounded.Put(&l.callers, most, principal, tally{logged: now}, over)
	return t.more, true
}
