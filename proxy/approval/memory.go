package approval

import (
	"maps"
	"sync"
	"time"

	"junction/upstream/bounded"
)

// Memory stores the remembered approvals of modern clients, which have no session, and the
// answered approval requests. Each principal has its own limit. The zero value is empty.
//
// Each member remembers its own approvals: at another member the user is asked again. Answered
// requests count at all members.
type Memory struct {
	mu          sync.Mutex
	byPrincipal map[string]*memoryOf
}

type memoryOf struct {
	given map[string]time.Time // digests of requests, with their expiry
	spent map[string]time.Time // approval requests, with their expiry
}

const (
	kept = time.Hour // lifetime of a modern client's remembered approval
	most = 1000      // per principal; beyond it some are forgotten and requested again
)

// its returns the approvals of a principal; a.mu is held. If there are many principals, it first
// removes those without entries.
func (a *Memory) its(principal string) *memoryOf {
	if its := a.byPrincipal[principal]; its != nil {
		return its
	}
	if a.byPrincipal == nil || len(a.byPrincipal) >= most {
		now := time.Now()
		maps.DeleteFunc(a.byPrincipal, func(_ string, its *memoryOf) bool {
			its.end(now)
			return len(its.given)+len(its.spent) == 0
		})
	}
	if a.byPrincipal == nil {
		a.byPrincipal = map[string]*memoryOf{}
	}
	its := &memoryOf{map[string]time.Time{}, map[string]time.Time{}}
	a.byPrincipal[principal] = its
	return its
}

// end removes expired entries.
func (its *memoryOf) end(now time.Time) {
	for _, m := range [...]map[string]time.Time{its.given, its.spent} {
		maps.DeleteFunc(m, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
}

// Has reports whether an approval of the request is remembered.
func (a *Memory) Has(principal, request string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	its := a.byPrincipal[principal]
	return its != nil && time.Now().Before(its.given[request])
}

// Give remembers an approval of the request for an hour.
func (a *Memory) Give(principal, request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	bounded.Put(&a.its(principal).given, most, request, now.Add(kept), now.After)
}

// Spend marks an approval request as answered. It returns false if the request was answered before.
func (a *Memory) Spend(principal, id string, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	its := a.its(principal)
	if len(its.spent) >= most {
		its.end(time.Now())
	}
	if _, ok := its.spent[id]; ok || len(its.spent) >= most {
		return false // better to ask again than to make a call twice
	}
	its.spent[id] = until
	return true
}
