package front

import (
	"slices"

	"junction/proxy/budget"
)

// This file bounds the events that wait for the client of a call, in number and in bytes.

// eventKind says what is dropped if a client reads more slowly than the server sends.
type eventKind uint8

const (
	lasting    eventKind = iota // a question, or the end of one: never dropped for bytes
	progressed                  // progress: the newest event replaces those that wait
	logged                      // a log message, or another notification of the server
	eventKinds
)

// waiting are the events of one stream that were not written yet. The account of the request pays for
// their bytes. The mutex of the reply guards it.
type waiting struct {
	events  []waitingEvent
	held    budget.Grant
	counts  bool // held is a grant of the request's account
	dropped [eventKinds]int
}

type waitingEvent struct {
	text []byte
	kind eventKind
	size int64 // that held has for the event
}

// eventFrame is more than the bytes that an event has beside its message.
const eventFrame = 64

// begin makes the account of a request pay; nil counts nothing.
func (w *waiting) begin(of *budget.Grant) {
	if of != nil && !w.counts {
		w.held, w.counts = of.Empty(), true
	}
}

// admit makes room for an event of a size, of at most most. It drops earlier events if the kind permits
// that. size is then what held has for the event, and add follows. ok is false if the event itself must be
// dropped.
func (w *waiting) admit(kind eventKind, bytes int64, most int) (size int64, ok bool) {
	if len(w.events) < most && w.reserve(bytes) {
		return bytes, true
	}
	switch kind {
	case progressed:
		var older int64
		n := 0
		for _, e := range w.events {
			if e.kind == progressed {
				older, n = older+e.size, n+1
			}
		}
		if n > 0 && (bytes <= older || w.reserve(bytes-older)) {
			w.events = slices.DeleteFunc(w.events, func(e waitingEvent) bool { return e.kind == progressed })
			w.dropped[progressed] += n
			w.give(max(0, older-bytes))
			return bytes, true
		}
	case lasting:
		for {
			i := slices.IndexFunc(w.events, func(e waitingEvent) bool { return e.kind != lasting })
			if i < 0 {
				return 0, len(w.events) < most // not counted
			}
			w.dropped[w.events[i].kind]++
			w.give(w.events[i].size)
			w.events = slices.Delete(w.events, i, i+1)
			if w.reserve(bytes) {
				return bytes, true
			}
		}
	}
	w.dropped[kind]++
	return 0, false
}

func (w *waiting) add(e waitingEvent) { w.events = append(w.events, e) }

// take returns the events, whose bytes stay reserved until written.
func (w *waiting) take() []waitingEvent {
	list := w.events
	w.events = nil
	return list
}

// written returns the bytes of events that were written, or cannot be.
func (w *waiting) written(list []waitingEvent) {
	var size int64
	for _, e := range list {
		size += e.size
	}
	w.give(size)
}

func (w *waiting) reserve(n int64) bool {
	return !w.counts || w.held.Reserve(budget.Bytes, n) == nil
}

func (w *waiting) give(n int64) {
	if w.counts && n > 0 {
		w.held.Give(budget.Bytes, n)
	}
}
