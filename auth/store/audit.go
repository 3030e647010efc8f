package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Event is a row of the audit. It contains no secret.
type Event struct {
	ID                  string // set by Audit; ids sort by time
	At                  time.Time
	Event               string
	Principal, ClientID string
	// of the request; "" if there was none, as for commands of an operator
	Address, RequestID string
	Detail             []byte // JSON
	TraceID            string // of the request; "" if it belongs to no trace. Audit stores it in Detail
}

func (e *Event) table() string { return "audit" }

func (e *Event) fields() []field {
	return []field{{"id", &e.ID}, {"at", &e.At}, {"event", &e.Event}, {"principal", &e.Principal},
		{"client_id", &e.ClientID}, {"ip", &e.Address}, {"request_id", &e.RequestID}, {"detail", &e.Detail}}
}

// Unproven returns the events that unauthenticated requests can cause. Rows of these without a
// Principal are kept for a shorter time.
func Unproven() []string {
	return []string{"authorize_refused", "consent_denied", "logout_refused", "sign_in_refused"}
}

// DetailJSON returns the Detail of an event.
func DetailJSON(members map[string]string) []byte {
	text, err := json.Marshal(members)
	if err != nil {
		return nil // strings can always be marshalled
	}
	return text
}

// withMember returns the Detail of an event with one member more.
func withMember(detail []byte, name, text string) []byte {
	members := map[string]string{}
	if detail != nil && json.Unmarshal(detail, &members) != nil {
		return detail
	}
	members[name] = text
	return DetailJSON(members)
}

// Audit stores an event. It ignores ID and At.
func (s *Store) Audit(ctx context.Context, e Event) error {
	if e.TraceID != "" {
		e.Detail = withMember(e.Detail, "trace_id", e.TraceID)
	}
	e.At = s.now()
	e.ID = fmt.Sprintf("%016x-%s", e.At.UnixNano(), NewID())
	err := s.insert(ctx, &e, field{"filed_at", 0})
	if err == nil && s.audited != nil {
		s.audited()
	}
	return err
}

// FiledEvent is an event for an audit file, with its user, who is the zero User if there is none, or
// if another program has changed the user's row.
type FiledEvent struct {
	Event
	User User
}

// fileBatch limits the events of one transaction of FileEvents.
const fileBatch = 200

// FileEvents calls file with events that no process has filed yet, the oldest first, and marks them
// as filed. It returns false if there may be more. Replicas share the events. If the process dies
// before the mark is stored, another call passes the same events again, with the same IDs.
func (s *Store) FileEvents(ctx context.Context, file func(FiledEvent)) (done bool, err error) {
	waiting := false
	err = s.get(ctx, []any{&waiting}, `SELECT EXISTS (SELECT 1 FROM audit WHERE filed_at = 0)`)
	if err != nil || !waiting {
		return err == nil, err
	}
	var all []FiledEvent
	err = s.WithTx(ctx, func(ctx context.Context) error {
		var err error
		if all, err = s.unfiled(ctx); err != nil {
			return err
		}
		for _, e := range all {
			if _, err := s.exec(ctx, `UPDATE audit SET filed_at = $2 WHERE id = $1`, e.ID,
				seconds(s.now())); err != nil {
				return err
			}
		}
		for _, e := range all {
			file(e)
		}
		return nil
	})
	return len(all) < fileBatch, err
}

// unfiled returns and locks the next events to file.
func (s *Store) unfiled(ctx context.Context) (all []FiledEvent, err error) {
	lock := ""
	if s.postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	events, err := list[Event](ctx, s, `WHERE filed_at = 0 ORDER BY id LIMIT $1`+lock, fileBatch)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		var u User
		if e.Principal != "" {
			u, err = s.unlocked(ctx, e.Principal)
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrChanged) {
				return nil, err
			}
		}
		all = append(all, FiledEvent{e, u})
	}
	return all, nil
}

// Events returns the last n events, the newest first.
func (s *Store) Events(ctx context.Context, n int) ([]Event, error) {
	return list[Event](ctx, s, `ORDER BY id DESC LIMIT $1`, n)
}
