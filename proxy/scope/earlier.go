package scope

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// earlierTime is how long a client can go on with the pages of a list that has changed.
	earlierTime = time.Minute
	// maxEarlier bounds the snapshots that are kept for that, and maxEarlierBytes the memory of the
	// catalogs that only they have. The latest ones stay.
	maxEarlier      = 8
	maxEarlierBytes = 64 << 20
)

// Earlier keeps the latest snapshots whose catalogs have changed since, so that a client that reads a
// list page by page gets the rest of the list that it began. The zero value is empty.
type Earlier struct {
	mu   sync.Mutex
	kept []earlier // the oldest first
	next *time.Timer
}

type earlier struct {
	*Snapshot
	until time.Time
	bytes int
}

// Keep keeps a snapshot that next replaces, without its caches, if a list has changed.
func (all *Earlier) Keep(w, next *Snapshot) {
	w.Close()
	same := func(e, now *Endpoint) bool { return now != nil && now.View == e.View }
	if maps.EqualFunc(w.Endpoints, next.Endpoints, same) {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.kept = append(all.kept, earlier{w, time.Now().Add(earlierTime), w.bytesBeside(next)})
	all.drop(len(all.kept) - maxEarlier)
	bytes, first := 0, len(all.kept)
	for first > 0 && bytes+all.kept[first-1].bytes <= maxEarlierBytes {
		first--
		bytes += all.kept[first].bytes
	}
	all.drop(first)
	if all.next == nil {
		all.next = time.AfterFunc(earlierTime, all.expire)
	}
}

// bytesBeside returns the memory of what w has and next does not have.
func (w *Snapshot) bytesBeside(next *Snapshot) (bytes int) {
	for b, st := range w.stocks {
		if next.stocks[b] != st {
			bytes += 2 * st.Bytes() // the definitions of the server, and those with the names of clients
		}
	}
	return bytes
}

// expire forgets the snapshots whose time is over.
func (all *Earlier) expire() {
	all.mu.Lock()
	defer all.mu.Unlock()
	n := 0
	for n < len(all.kept) && !time.Now().Before(all.kept[n].until) {
		n++
	}
	all.drop(n)
	if all.next = nil; len(all.kept) > 0 {
		all.next = time.AfterFunc(time.Until(all.kept[0].until), all.expire)
	}
}

// drop forgets the first n snapshots; mu is held.
func (all *Earlier) drop(n int) {
	if n > 0 {
		all.kept = slices.Clone(all.kept[n:]) // the old array would hold what was dropped
	}
}

// Clear forgets all snapshots, because the configuration has changed: what it has removed must not be
// listed any more.
func (all *Earlier) Clear() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.drop(len(all.kept))
	if all.next != nil {
		all.next.Stop()
		all.next = nil
	}
}

// Find returns the caller in the latest snapshot in which has returns true. The rights are those of
// now, since the configuration has not changed.
func (all *Earlier) Find(c Caller, has func(Caller) bool) (Caller, bool) {
	all.mu.Lock()
	kept := slices.Clone(all.kept)
	all.mu.Unlock()
	last := c.Endpoint.View
	for _, e := range slices.Backward(kept) {
		then := e.see(c)
		if then.Subject == nil || then.Endpoint.View == last || !time.Now().Before(e.until) {
			continue
		}
		if last = then.Endpoint.View; has(then) {
			return then, true
		}
	}
	return Caller{}, false
}
