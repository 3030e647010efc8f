package record

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"junction/auth"
	"junction/proxy"
	"junction/upstream/bounded"
	"junction/upstream/raw"
)

// This file writes the audit of everything that is no call: sign-ins, consents, connections, the use
// of keys, and administration.

// Event is a line of the audit. Name must be set; every other field may be empty.
type Event struct {
	At        time.Time // the zero time is now
	ID        string    // distinguishes events that another process may write again
	Name      string    // such as signed_in
	RequestID string
	TraceID   string // of the request; "" if it belongs to no trace
	Principal string // ID of the user or key that the event concerns
	KeyID     string // distinguishes the keys of one name (auth.Hash.ID)
	Person    string // name of the user, as their provider gave it
	Email     string
	Client    string // client_id of the app
	Address   string
	Detail    string
	Outcome   proxy.Outcome // "" is OK
}

// Event writes the line of an event, if there is an audit. It reports whether there is one.
func (t *Trail) Event(e Event) bool {
	return t.add(func(b []byte, now time.Time) []byte { return appendEvent(b, now, &e) })
}

// On reports whether there is an audit.
func (t *Trail) On() bool { return t.current.Load() != nil }

func appendEvent(b []byte, now time.Time, e *Event) []byte {
	if !e.At.IsZero() {
		now = e.At
	}
	if e.Outcome == "" {
		e.Outcome = proxy.OK
	}
	b = appendTime(b, now)
	for _, field := range [...]struct{ name, value string }{
		{"event", e.Name}, {"event_id", e.ID}, {"request_id", e.RequestID}, {"trace_id", e.TraceID},
		{"principal", e.Principal}, {"key_id", e.KeyID},
		{"person", e.Person}, {"email", e.Email}, {"oauth_client", e.Client}, {"address", e.Address},
		{"detail", e.Detail}, {"outcome", string(e.Outcome)},
	} {
		if text := auth.Redact(field.value); text != "" {
			b = append(append(append(b, `,"`...), field.name...), `":`...)
			b = raw.AppendQuote(b, text[:min(len(text), 2*auditText)])
		}
	}
	return append(b, "}\n"...)
}

// uses remembers which keys were used from which addresses, so that each use is written once per
// keyCalm. The zero value is ready to use.
type uses struct {
	mu   sync.Mutex
	last map[use]time.Time
}

type use struct {
	principal, key string
	address        netip.Addr
}

const (
	keyCalm = time.Hour
	maxUses = 10_000 // beyond it, some entries are forgotten, and their uses are written again
)

// first reports whether the use is the first one within keyCalm.
func (u *uses) first(current use, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, ok := u.last[current]; ok && now.Sub(at) < keyCalm {
		return false
	}
	bounded.Put(&u.last, maxUses, current, now, func(at time.Time) bool { return now.Sub(at) >= keyCalm })
	return true
}

// Authenticated writes a line for the first use of an API key from an address within an hour, if
// there is an audit. Calls have lines of their own.
func (t *Trail) Authenticated(p *auth.Principal, requestID string, r *http.Request) {
	if p.Kind != auth.KindKey || !t.On() || !t.keys.first(use{p.ID, p.KeyID, p.Address}, time.Now()) {
		return
	}
	e := Event{Name: "key_used", RequestID: requestID, TraceID: auth.TraceID(r), Principal: p.ID,
		KeyID: p.KeyID}
	if p.Address.IsValid() {
		e.Address = p.Address.String()
	}
	t.Event(e)
}
