package pages

import (
	"slices"
	"sync"
	"time"

	"junction/upstream"
	"junction/upstream/prose"
)

// mostStates is the most states that a History keeps for each server.
const mostStates = 50

// History is the last states of each server, in memory: 15 KB for a server that has had many. The zero value is ready.
type History struct {
	mu sync.Mutex
	of map[string][]Past // by server, the oldest first
}

// Past is a state that a server had.
type Past struct {
	Time   time.Time // when it began
	State  string
	Reason string // in one line, and cut; "" if there was none
	Times  int    // how often attempts have ended so, one after the other
}

// Note notes a change. Attempts that fail again for the same reason are one state.
func (h *History) Note(c upstream.Change) {
	next := Past{Time: time.Now(), State: c.State.String(), Times: 1}
	if c.Err != nil && c.State.Broken() {
		next.Reason = prose.Cut(prose.Flat(c.Err.Error()), mostReason)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string][]Past{}
	}
	list := h.of[c.Name]
	if last := len(list) - 1; last >= 0 {
		switch {
		case c.State == upstream.StateStarting && list[last].Reason != "":
			return // the next attempt
		case list[last].State == next.State && list[last].Reason == next.Reason:
			list[last].Times++
			return
		}
	}
	h.of[c.Name] = append(list[max(0, len(list)+1-mostStates):], next)
}

// Keep forgets the servers that are not in a list.
func (h *History) Keep(names func(string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.of {
		if !names(name) {
			delete(h.of, name)
		}
	}
}

// Of returns the states of a server, the newest first.
func (h *History) Of(name string) []Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.of[name])
	slices.Reverse(list)
	return list
}

// Last returns the last state of a server; the zero value if it had none.
func (h *History) Last(name string) (p Past) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if list := h.of[name]; len(list) > 0 {
		p = list[len(list)-1]
	}
	return p
}
