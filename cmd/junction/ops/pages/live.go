package pages

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"junction/cmd/junction/ops/pages/frame"
)

// This file tells open pages what has changed. All of them share one look at the proxy a second; without an open
// page, nothing is looked at.

const (
	every = time.Second // the time between two looks
	quiet = 15          // times every, after which a stream without changes sends a comment
	// the most streams of one session, and of all open pages together: a browser has six connections to a host, and
	// both kinds of pages may be open in it. The other pages ask for changes.
	ownStreams  = 3
	openStreams = 2
)

// live is what the pages know of the last change of each part. The zero value knows none.
type live struct {
	versions func(adder) // calls its argument for each part; does not block

	mu      sync.Mutex
	at      time.Time         // of the last look
	seed    maphash.Seed      // of hashes
	hashes  map[string]uint64 // of the parts at the last look
	last    look              // guarded by mu; its map is replaced, never changed
	streams map[string]int    // open streams by the base of their pages
}

// look is the state of all parts at one time.
type look struct {
	seq     uint64            // of the last change
	changed map[string]uint64 // seq of the last change of each part
}

// now returns the present state, which is at most a second old.
func (l *live) now() look {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.hashes != nil && now.Sub(l.at) < every {
		return l.last
	}
	if l.hashes == nil {
		l.seed = maphash.MakeSeed()
	}
	l.at = now
	hashes, changed := map[string]uint64{}, map[string]uint64{}
	next := l.last.seq + 1
	l.versions(func(part string, values ...any) {
		var h maphash.Hash
		h.SetSeed(l.seed)
		_ = json.NewEncoder(&h).Encode(values) // a hash takes everything
		hashes[part], changed[part] = h.Sum64(), next
		if old, there := l.hashes[part]; there && old == hashes[part] {
			changed[part] = l.last.changed[part]
		} else {
			l.last.seq = next
		}
	})
	l.hashes, l.last.changed = hashes, changed
	return l.last
}

// since returns the parts that have changed after a number, sorted.
func (l look) since(seq uint64) (parts []string) {
	for name, at := range l.changed {
		if at > seq {
			parts = append(parts, name)
		}
	}
	slices.Sort(parts)
	return parts
}

// changesData is an event of the stream, and the answer of changes.
type changesData struct {
	Seq   uint64   `json:"seq"`
	Parts []string `json:"parts"`
}

// changesSince returns the changes after the number in a request.
func (s *Site) changesSince(seq uint64) changesData {
	look := s.live.now()
	return changesData{look.seq, append([]string{}, look.since(seq)...)}
}

// seqOf returns the number that a request has.
func seqOf(r *http.Request) uint64 {
	seq, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64) // 0 has all
	return seq
}

// changes answers a page that has no stream.
func (s *Site) changes(w http.ResponseWriter, r *http.Request) {
	frame.Secure(w.Header())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.changesSince(seqOf(r))) // the browser has gone
}

// begin counts a stream. It returns false if there are too many.
func (l *live) begin(v View) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := openStreams
	if v.Owner {
		most = ownStreams
	}
	if l.streams[v.Base] >= most {
		return false
	}
	if l.streams == nil {
		l.streams = map[string]int{}
	}
	l.streams[v.Base]++
	return true
}

func (l *live) end(v View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.streams[v.Base]--; l.streams[v.Base] == 0 {
		delete(l.streams, v.Base)
	}
}

// events names the parts that have changed, whenever some have.
func (s *Site) events(w http.ResponseWriter, r *http.Request) {
	v := viewOf(r)
	if !s.live.begin(v) {
		http.Error(w, "Too many pages have a stream; this one asks for changes.", http.StatusServiceUnavailable)
		return
	}
	defer s.live.end(v)
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		s.Log.Error("cannot open the event stream of a page", "error", err)
		return
	}
	var ended <-chan struct{} // never for the open pages
	if v.Ended != nil {
		ended = v.Ended.Done()
	}
	frame.Secure(w.Header())
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(every)
	defer tick.Stop()
	seq, text := seqOf(r), ":\n\n"
	for unchanged := 0; ; unchanged++ {
		if now := s.changesSince(seq); len(now.Parts) > 0 {
			line, err := json.Marshal(now)
			if err != nil {
				s.Log.Error("cannot write to a page", "error", err)
				return
			}
			seq, text = now.Seq, "data: "+string(line)+"\n\n"
		}
		if text != "" || unchanged == quiet {
			if c.SetWriteDeadline(time.Now().Add(10*time.Second)) != nil {
				return
			}
			if _, err := w.Write([]byte(cmp.Or(text, ":\n\n"))); err != nil || c.Flush() != nil {
				return
			}
			text, unchanged = "", 0
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.Stopping.Done():
			return
		case <-ended:
			return
		case <-tick.C:
			if v.Lasts != nil && !v.Lasts() {
				return
			}
		}
	}
}
