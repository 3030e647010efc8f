package record

import (
	"net/netip"
	"strconv"
	"sync"
	"time"

	"junction/auth"
	"junction/upstream/bounded"
	"junction/upstream/raw"
)

// This file writes rejected requests to the log and to the audit.

// Refused writes the line of a rejected request, if the source, or a known key, has had no line within
// this minute.
func (t *Trail) Refused(r auth.Refusal) {
	more, ok := t.refusals.line(r.Address, r.KeyID, time.Now())
	if !ok {
		return
	}
	if t.Log != nil {
		about := []any{"address", r.Address, "path", pathOf(&r), "status", r.Status, "error", r.Code}
		if r.KeyID != "" {
			about = append(about, "principal", r.Principal, "key_id", r.KeyID, "reason", r.Reason)
		}
		if more > 0 {
			about = append(about, "more", more)
		}
		t.Log.Info("request rejected", append(about, auth.LoggedIDs(r.RequestID, r.TraceID))...)
	}
	t.add(func(b []byte, now time.Time) []byte { return appendRefusal(b, now, &r, more) })
}

// refusalLog rate-limits the lines of rejected requests, because clients can cause any number of
// them without authentication. Each source gets one line a minute, with the number of its other
// requests since the previous line. If there are too many sources, the additional ones share one
// line.
//
// A key that is or was in the configuration also gets one line a minute, whatever else comes from its
// address: only a sender with the whole key can cause that line. The zero value is ready to use.
type refusalLog struct {
	mu      sync.Mutex
	sources map[netip.Prefix]*tally
	keys    map[string]time.Time // by the ID of a key: its last line
}

type tally struct {
	logged time.Time
	more   int // since then
}

const (
	refusalCalm    = time.Minute
	refusalSources = 100
	refusalKeys    = 1000 // beyond it, some are forgotten, and have a line again
)

// line reports whether a rejected request gets a line, and how many other requests that line
// counts. key is the ID of a known key, or "".
func (r *refusalLog) line(from netip.Addr, key string, now time.Time) (more int, ok bool) {
	bits := 32
	if from.Is6() {
		bits = 64 // a client usually has all addresses of a /64
	}
	source, _ := from.Prefix(bits) // the zero prefix if there is no address
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sources == nil {
		r.sources = map[netip.Prefix]*tally{{}: {}}
	}
	others := r.sources[netip.Prefix{}]
	if r.sources[source] == nil && len(r.sources) > refusalSources {
		for s, t := range r.sources {
			if t != others && now.Sub(t.logged) >= refusalCalm {
				others.more += t.more
				delete(r.sources, s)
			}
		}
		if len(r.sources) > refusalSources {
			source = netip.Prefix{}
		}
	}
	t := r.sources[source]
	if t == nil {
		t = &tally{}
		r.sources[source] = t
	}
	due := t.logged.IsZero() || now.Sub(t.logged) >= refusalCalm
	if key != "" {
		logged, known := r.keys[key]
		due = due || !known || now.Sub(logged) >= refusalCalm
	}
	if !due {
		t.more++
		return 0, false
	}
	more, t.logged, t.more = t.more, now, 0
	if key != "" {
		bounded.Put(&r.keys, refusalKeys, key, now, func(at time.Time) bool { return now.Sub(at) >= refusalCalm })
	}
	return more, true
}

// appendRefusal appends the line of a rejected request.
func appendRefusal(b []byte, now time.Time, r *auth.Refusal, more int) []byte {
	b = appendTime(b, now)
	b = raw.AppendQuote(append(b, `,"request_id":`...), r.RequestID)
	if r.TraceID != "" {
		b = raw.AppendQuote(append(b, `,"trace_id":`...), r.TraceID)
	}
	if r.Address.IsValid() {
		b = append(r.Address.AppendTo(append(b, `,"address":"`...)), '"')
	}
	if r.KeyID != "" {
		b = raw.AppendQuote(append(b, `,"principal":`...), r.Principal)
		b = raw.AppendQuote(append(b, `,"key_id":`...), r.KeyID)
		b = raw.AppendQuote(append(b, `,"detail":`...), r.Reason)
	}
	b = raw.AppendQuote(append(b, `,"path":`...), pathOf(r))
	b = strconv.AppendInt(append(b, `,"event":"request_refused","outcome":"denied","status":`...), int64(r.Status), 10)
	b = raw.AppendQuote(append(b, `,"error":`...), r.Code)
	if method := auth.Redact(r.Method); method != "" {
		b = raw.AppendQuote(append(b, `,"method":`...), method[:min(len(method), auditText)])
	}
	if more > 0 {
		b = strconv.AppendInt(append(b, `,"more":`...), int64(more), 10)
	}
	return append(b, "}\n"...)
}

// pathOf returns the path of a rejected request without secrets, and no longer than other texts.
func pathOf(r *auth.Refusal) string {
	path := auth.Redact(r.Path)
	return path[:min(len(path), auditText)]
}
