package record

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"junction/upstream"
)

// Outages writes the log lines of the upstreams' states: one line when an upstream fails, one when
// the reason changes, and one with the count of failures when the upstream is ready again. The
// attempts between them are logged at the level debug.
type Outages struct {
	mu   sync.Mutex
	open map[string]*outage // by upstream; guarded by mu
}

// outage is the time from the first failure of an upstream until it is ready again.
type outage struct {
	began    time.Time
	failures int
	reason   string    // as logged last
	logged   time.Time // when the reason was logged last
}

// calmReasons is how soon another reason of the same outage is logged: a server that fails with
// other words each time must not fill the log.
const calmReasons = time.Minute

// Changed logs that an upstream has a state, and the error of a failed attempt. shown means that the
// user sees it elsewhere.
func (o *Outages) Changed(log *slog.Logger, c upstream.Change, shown bool) {
	name, s, err := c.Name, c.State, c.Err
	level, attrs := slog.LevelInfo, []any{"upstream", name, "state", s.String()}
	if s == upstream.StateReady {
		attrs = append(attrs, "tools", c.Tools)
	}
	o.mu.Lock()
	down := o.open[name]
	switch {
	case s.Broken():
		reason, now := "", time.Now()
		if err != nil {
			reason = err.Error()
			attrs = append(attrs, "error", err)
		}
		if level = slog.LevelWarn; down == nil {
			down = &outage{began: now, reason: reason, logged: now}
			if o.open == nil {
				o.open = map[string]*outage{}
			}
			o.open[name] = down
		} else if reason == down.reason || now.Sub(down.logged) < calmReasons {
			level = slog.LevelDebug
		} else {
			down.reason, down.logged = reason, now
		}
		down.failures++
	case s == upstream.StateStarting:
		if down != nil {
			level = slog.LevelDebug
		}
	default:
		if delete(o.open, name); down != nil && s == upstream.StateReady {
			attrs = append(attrs, "failures", down.failures, "down", time.Since(down.began).Round(time.Millisecond))
		}
	}
	o.mu.Unlock()
	if shown {
		level = slog.LevelDebug
	}
	log.Log(context.Background(), level, "upstream "+s.String(), attrs...)
}
