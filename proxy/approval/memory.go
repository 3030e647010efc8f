package approval

import (
	"container/heap"
	"maps"
	"strings"
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
	order       queue // all of byPrincipal, by look
}

type memoryOf struct {
	principal string
	given     map[string]time.Time // digests of requests, with their expiry
	spent     map[string]time.Time // approval requests, with their expiry
	last      time.Time            // when the last entry expires
	look      time.Time            // last, as it was when it was put in the queue
}

const (
	kept = time.Hour // lifetime of a modern client's remembered approval
	most = 1000      // per principal; beyond it some are forgotten and requested again

	// looks is how many other principals each new one looks at: one of them may still have entries.
	looks = 2
)

// its returns the approvals of a principal, for an entry that expires at a time; a.mu is held. For a new
// principal, it first removes others whose entries have all expired.
func (a *Memory) its(principal string, until time.Time) *memoryOf {
	if its := a.byPrincipal[principal]; its != nil {
		if until.After(its.last) {
			its.last = until
		}
		return its
	}
	now := time.Now()
	for range looks {
		if len(a.order) == 0 || a.order[0].look.After(now) {
			break
		}
		if its := a.order[0]; its.last.After(now) {
			its.look = its.last
			heap.Fix(&a.order, 0)
		} else {
			heap.Pop(&a.order)
			delete(a.byPrincipal, its.principal)
		}
	}
	if a.byPrincipal == nil {
		a.byPrincipal = map[string]*memoryOf{}
	}
	its := &memoryOf{strings.Clone(principal), map[string]time.Time{}, map[string]time.Time{}, until, until}
	a.byPrincipal[its.principal] = its
	heap.Push(&a.order, its)
	return its
}

// queue is a heap of principals. Those at whom Memory has to look first come first.
type queue []*memoryOf

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].look.Before(q[j].look) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(its any) { *q = append(*q, its.(*memoryOf)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	its := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return its
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
	bounded.Put(&a.its(principal, now.Add(kept)).given, most, request, now.Add(kept), now.After)
}

// Spend marks an approval request as answered. It returns false if the request was answered before.
func (a *Memory) Spend(principal, id string, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	its := a.its(principal, until)
	if len(its.spent) >= most {
		now := time.Now()
		maps.DeleteFunc(its.spent, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	if _, ok := its.spent[id]; ok || len(its.spent) >= most {
		return false // better to ask again than to make a call twice
	}
	its.spent[id] = until
	return true
}
