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

// eventLoop writes stored events to the audit. It runs in one goroutine until ctx ends.
func (p *program) eventLoop(ctx context.Context) error {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.events:
			select {
			case <-time.After(fileDelay):
			case <-ctx.Done():
			}
		case <-tick.C:
		}
		p.fileEvents(ctx, fileLimit)
	}
}

// fileEvents writes the stored events that are in no audit yet. Without an audit they wait.
func (p *program) fileEvents(ctx context.Context, limit time.Duration) {
	s := p.storage()
	if s == nil || !p.recording.audit.On() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, err := s.FileEvents(ctx, func(e store.FiledEvent) { p.recording.audit.Event(eventOf(e)) })
		if err != nil && ctx.Err() == nil {
			p.log.Error("events of sign-ins are not in the audit yet; they stay in the storage", "error", err)
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
