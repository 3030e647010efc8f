package store

import (
	"context"
	"encoding/json"
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
}

// Unproven returns the events that unauthenticated requests can cause. Rows of these without a
// Principal are kept for a shorter time.
func Unproven() []string { return []string{"authorize_refused", "consent_denied", "sign_in_refused"} }

// DetailJSON returns the Detail of an event.
func DetailJSON(members map[string]string) []byte {
	text, err := json.Marshal(members)
	if err != nil {
		return nil // strings can always be marshalled
	}
	return text
}

// Audit stores an event. It ignores ID and At.
func (s *Store) Audit(ctx context.Context, e Event) error {
	now := s.now()
	_, err := s.exec(ctx,
		`INSERT INTO audit (id, at, event, principal, client_id, ip, request_id, detail)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		fmt.Sprintf("%016x-%s", now.UnixNano(),
			NewID()), seconds(now), e.Event, e.Principal, e.ClientID, e.Address, e.RequestID, e.Detail)
	return err
}

// Events returns the last n events, the newest first.
func (s *Store) Events(ctx context.Context, n int) (all []Event, err error) {
	err = s.all(ctx, func(row scanner) error {
		var e Event
		err := row.Scan(&e.ID, moment{&e.At}, &e.Event, &e.Principal, &e.ClientID, &e.Address, &e.RequestID, &e.Detail)
		all = append(all, e)
		return err
	}, `SELECT id, at, event, principal, client_id, ip, request_id, detail FROM audit ORDER BY id DESC LIMIT $1`, n)
	return all, err
}
