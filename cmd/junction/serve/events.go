package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/store"
	"junction/cmd/junction/base/record"
	"junction/proxy"
)

// This file writes events of the storage and of the program to the audit. Sign-ins, consents and
// connections are stored by this process, administration by commands beside it. Both go through the
// storage, so that each event is in one file, whichever replica or command has caused it.

const (
	fileEvery = 5 * time.Second        // events of other processes
	fileDelay = 100 * time.Millisecond // events of this process, whose transactions end first
	fileLimit = 10 * time.Second

	lastEvents = time.Second // for the events that the program's end has caused
)

// Run writes stored events to the audit until ctx ends.
func (s *storage) Run(ctx context.Context) error {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stored:
			select {
			case <-time.After(fileDelay):
			case <-ctx.Done():
			}
		case <-tick.C:
		}
		s.fileEvents(ctx, fileLimit)
	}
}

// fileEvents writes the stored events that are in no audit yet. Without an audit they wait.
func (s *storage) fileEvents(ctx context.Context, limit time.Duration) {
	db := s.store()
	if db == nil || !s.recording.audit.On() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, err := db.FileEvents(ctx, func(e store.FiledEvent) { s.recording.audit.Event(eventOf(e)) })
		if err != nil && ctx.Err() == nil {
			s.log.Error("events of sign-ins are not in the audit yet; they stay in the storage", "error", err)
		}
		if done || err != nil {
			return
		}
	}
}

// eventOf returns the line of a stored event.
func eventOf(e store.FiledEvent) record.Event {
	var detail struct {
		Detail, Key string
		TraceID     string `json:"trace_id"`
	}
	_ = json.Unmarshal(e.Detail, &detail)
	r := record.Event{At: e.At, ID: e.ID, Name: e.Event.Event, RequestID: e.RequestID, TraceID: detail.TraceID,
		Client: e.ClientID, Address: e.Address, Detail: cmp.Or(detail.Detail, detail.Key),
		Outcome: outcomeOfEvent(e.Event.Event)}
	if e.User.ID != "" {
		r.Principal, r.Person, r.Email = auth.UserID(e.User.Issuer, e.User.Subject), e.User.Display, e.User.Email
	}
	return r
}

// outcomeOfEvent returns the outcome that the name of a stored event means.
func outcomeOfEvent(name string) proxy.Outcome {
	switch {
	case name == "consent_denied":
		return proxy.Declined
	case strings.HasSuffix(name, "_refused"), strings.HasSuffix(name, "_reuse"), name == "not_granted":
		return proxy.Denied
	case strings.HasSuffix(name, "_failed"):
		return proxy.Error
	}
	return proxy.OK
}
