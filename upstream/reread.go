package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
)

// This file decides when the lists of a server are read again: after an announced change, when their
// TTL ends or an interval has passed, and for a caller that names an item which they do not have, or
// whose headers, made from the definition of a tool, the server rejects.

// The minimum time between two readings of a catalog: calm after change notifications, askedPause for
// callers that ask for a reading, and minRefresh for servers with a short TTL, or after
// maxRereads readings. Each change of a list ends the paging of all clients that read it, also for the
// items of other servers.
const (
	calm       = 250 * time.Millisecond
	askedPause = time.Second
	minRefresh = 10 * time.Second
	maxRereads = 20
)

// announcedPace is how many times slower the lists are read again if the server declares that it
// announces changes. Some servers declare it and announce nothing.
const announcedPace = 2

// askedShare is how many times longer than the last reading the pause before a reading is that a caller
// asks for: a slow server spends a tenth of its time on them.
const askedShare = 10

// askedPatience bounds the wait of a caller for a reading that it asked for.
const askedPatience = minRefresh

// reread reads the catalog again. If that fails, the last good one stays in use.
func (l *link) reread(ctx context.Context, c client.Conn) {
	if !l.readsCatalog {
		return
	}
	begun := time.Now()
	defer func() { l.pool.lists.took(time.Since(begun)) }()
	limited, cancel := context.WithTimeout(ctx, l.pool.connConfig.ConnectTimeout)
	defer cancel()
	err := l.pool.readCatalog(limited, l.key, c)
	if ctx.Err() == nil {
		l.wasReread(c, err)
	}
	switch {
	case err == nil || ctx.Err() != nil || signIn(err):
	case limited.Err() != nil: // so an unused server that does not answer is noticed, too
		l.silence.suspect()
	default:
		l.log.Warn("catalog not refreshed; the last one is served", "error", l.pool.shown(err))
	}
}

// refreshIn returns the time until the next unprompted reading of the catalog. It is up to an eighth
// shorter than the interval, so that many servers are not asked at the same moment.
func (l *link) refreshIn() time.Duration {
	cat := l.pool.catalogOf(l.key)
	every, rest := cat.Interval, l.pool.lists.checks.pause()
	switch {
	case !l.readsCatalog:
	case cat.Unchecked:
		return max(calm, rest)
	case every > 0:
		return max(every-rand.N(every/8+1), rest)
	}
	return 365 * 24 * time.Hour
}

// deadline is a timer that can be brought forward.
type deadline struct {
	timer *time.Timer
	at    time.Time
}

func newDeadline(d time.Duration) *deadline { return &deadline{time.NewTimer(d), time.Now().Add(d)} }

func (e *deadline) set(d time.Duration) {
	e.at = time.Now().Add(d)
	e.timer.Reset(d)
}

// within sets the deadline to d from now, or to now if d is negative, unless it is earlier already.
func (e *deadline) within(d time.Duration) {
	if d = max(0, d); time.Now().Add(d).Before(e.at) {
		e.set(d)
	}
}

// asking is what callers and the goroutine of a link share, so that callers can wait for a reading
// of the catalog.
type asking struct {
	wake chan struct{} // 1-buffered; receives when a caller waits

	mu      sync.Mutex
	serving bool
	next    reading // of the callers that wait for the next reading; nil for none
}

// reading is closed when a reading has ended. The zero value has no waiters.
type reading chan struct{}

func (r reading) done() {
	if r != nil {
		close(r)
	}
}

// open states whether the link reads the catalog again when it is asked.
func (a *asking) open(serving bool) {
	a.mu.Lock()
	a.serving = serving
	a.mu.Unlock()
	if !serving {
		a.take().done()
	}
}

// join returns the next reading that begins; nil if there will be none.
func (a *asking) join() reading {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.serving {
		return nil
	}
	if a.next == nil {
		a.next = make(reading)
		pace.Wake(a.wake)
	}
	return a.next
}

// waited reports whether a caller waits for the next reading.
func (a *asking) waited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next != nil
}

// take returns the reading that begins now. Callers that join from now on wait for another one.
func (a *asking) take() reading {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.next
	a.next = nil
	return r
}

// Reread reads the lists again for a caller that has seen that they are out of date, and waits for
// it, at most for ten seconds. A connection that is just being opened reads them itself. Reread
// returns false at once if the server is not connected: its lists are read when it is connected again.
// A pool reads at most once a second for all callers, less often if the server is slow, and at most
// every ten seconds if its lists change all the time.
func (p *pool) Reread(ctx context.Context, own client.Profile, session, principal string) bool {
	keys := []linkKey{p.reading()}
	if p.Separates() {
		keys = []linkKey{p.key(own, session, principal, false), p.reading()}
	}
	for _, key := range keys {
		p.mu.Lock()
		l := p.links[key]
		p.mu.Unlock()
		if l == nil || l.degraded() != nil {
			continue
		}
		if l.awaitStart(ctx) {
			return true
		}
		if next := l.asking.join(); next != nil {
			return pace.Sleep(ctx, askedPatience, next)
		}
	}
	return false
}

// awaitStart waits for a link of some callers that is being opened, and reports whether it read its
// catalog. It returns false at once for other links.
func (l *link) awaitStart(ctx context.Context) bool {
	l.mu.Lock()
	starting := l.state == StateStarting && !l.readsShared && l.readsCatalog
	failed := l.attempts
	if starting {
		l.calls++
	}
	l.mu.Unlock()
	if !starting {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askedPatience)
	defer cancel()
	if _, err := l.acquire(ctx, failed, nil); err != nil {
		return false
	}
	l.release()
	return true
}
