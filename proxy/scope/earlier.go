package scope

import (
	"maps"
	"slices"
	"sync"
	"time"

	"junction/upstream"
	"junction/upstream/client"
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

// Whole returns the print of a list with the items of all callers who share the endpoint, for the kind of
// the caller's client; 0 if the endpoint is the caller's own.
func (c Caller) Whole(p upstream.Part, era client.Era) uint64 {
	return c.Snapshot.whole(c, p, era)
}

func (w *Snapshot) whole(c Caller, p upstream.Part, era client.Era) uint64 {
	shared := w.Endpoints[c.Endpoint.Name]
	if shared == nil {
		return 0
	}
	return shared.View.Print(p, shared.View.Kind(p, era, c.Who.Profile))
}

// Find returns the caller in an earlier snapshot, if has returns true there. whole is the print of the
// list of all callers in that snapshot (Whole). If no snapshot has it, the oldest one counts, which may
// have the same list for the caller. Find looks at one snapshot, because its subject views are made
// again for each look. The caller has its present rights, since the configuration has not changed.
func (all *Earlier) Find(
	c Caller, p upstream.Part, era client.Era, whole uint64, has func(Caller) bool,
) (Caller, bool) {
	if whole == 0 { // all snapshots have the present catalogs of a user
		return Caller{}, false
	}
	all.mu.Lock()
	kept := slices.Clone(all.kept)
	all.mu.Unlock()
	var found *Snapshot
	for _, e := range slices.Backward(kept) {
		if !time.Now().Before(e.until) {
			break
		}
		if found = e.Snapshot; e.whole(c, p, era) == whole {
			break
		}
	}
	if found == nil {
		return Caller{}, false
	}
	then := found.see(c)
	return then, then.Subject != nil && has(then)
}
