// Package health checks the parts outside of the process that Junction depends on, such as the
// database. It checks in the background, so that a probe gets its answer at once and causes no
// work. notify.go tells systemd about the state of the process.
package health

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"junction/upstream/pace"
)

// Part is something outside of the process, such as a database.
type Part struct {
	Name  string
	InUse func() bool // must not block; a part that is not in use is neither checked nor listed
	// Check returns nil if the part works. It returns when ctx ends.
	Check func(ctx context.Context) error
	Every time.Duration // between two checks
	// Changed receives when the part is to be checked before that; nil never does.
	Changed <-chan struct{}
	// Degrades reports whether the last failure leaves the program ready. With nil, no failure does.
	Degrades func() bool
}

// IdentityProviders is the name of the part at which users sign in.
const IdentityProviders = "identity_providers"

// State is the result of the last check of a part.
type State struct {
	Name  string    `json:"name"`
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since"` // of OK; zero before the first check has ended
	Ready bool      `json:"-"`     // the part does not make the program unready
}

const (
	limit = 3 * time.Second // for one check
	again = 5 * time.Second // the longest pause after a failure
)

// Monitor checks parts. Create it with NewMonitor.
type Monitor struct {
	parts []Part
	log   *slog.Logger

	mu     sync.Mutex
	states []State // by part
	used   []bool  // by part: it was in use at the last check
}

// NewMonitor returns a Monitor that does not check anything before Run is called.
func NewMonitor(log *slog.Logger, parts ...Part) *Monitor {
	m := &Monitor{parts: parts, log: log, states: make([]State, len(parts)), used: make([]bool, len(parts))}
	for i, p := range parts {
		m.states[i], m.used[i] = State{Name: p.Name, Error: "not checked yet"}, p.InUse()
	}
	return m
}

// Run checks the parts until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	for i := range m.parts {
		tasks.Go(func() { m.watch(ctx, i) })
	}
	tasks.Wait()
}

// watch checks one part until ctx ends.
func (m *Monitor) watch(ctx context.Context, i int) {
	p := &m.parts[i]
	for pause := time.Duration(0); pace.Sleep(ctx, pause, p.Changed); {
		pause = p.Every
		if !p.InUse() {
			m.unused(i)
			continue
		}
		checking, cancel := context.WithTimeout(ctx, limit)
		err := p.Check(checking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		m.note(i, err, time.Now())
		if err != nil {
			pause = min(p.Every, again)
		}
	}
}

func (m *Monitor) unused(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used[i] = false
}

// note stores the result of a check, and logs a change.
func (m *Monitor) note(i int, err error, now time.Time) {
	p := &m.parts[i]
	degrades := err != nil && p.Degrades != nil && p.Degrades()
	m.mu.Lock()
	defer m.mu.Unlock()
	s, before := &m.states[i], m.states[i]
	m.used[i] = true
	s.OK, s.Error = err == nil, ""
	if err != nil {
		s.Error = err.Error()
	}
	s.Ready = s.OK || degrades
	if s.OK == before.OK && s.Ready == before.Ready && !before.Since.IsZero() {
		return
	}
	if s.Since = now; !s.OK {
		m.log.Error("a part that Junction depends on fails", "part", p.Name, "ready", s.Ready, "error", err)
	} else if !before.Since.IsZero() {
		m.log.Info("a part that Junction depends on works again", "part", p.Name)
	}
}

// States returns the parts that are in use.
func (m *Monitor) States() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []State{}
	for i, s := range m.states {
		if m.used[i] {
			list = append(list, s)
		}
	}
	return list
}
