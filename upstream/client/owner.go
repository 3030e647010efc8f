package client

import (
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// This file finds the calls that a message of the server can belong to. If no task is named, a message
// on a shared stream does not identify its call. A server request must reach only the user who caused
// it (2025-11-25, client/elicitation). Junction passes it on only if every call that can have caused
// it is of one window.

// window is where a call comes from: a window of an agent, which is the session of a legacy client. A modern
// request names no session, and an agent sends those of all its windows alike. So without a session, each
// call is a window of its own, which equals no other.
type window struct{ principal, session string }

func (w window) is(other window) bool { return w.session != "" && w == other }

// window returns the window of the call.
func (c *Call) window() window { return window{c.Principal, c.Session} }

// abandonedGrace is the time in which a server may still send messages about a call that was
// abandoned, lost or answered. Servers need not report when they have finished with a call.
const abandonedGrace = time.Minute

// doubt is a request that was abandoned, or whose response was lost. The server may still send messages
// about it, until it answers or the time is over.
type doubt struct {
	window
	until time.Time
}

// mostDoubts bounds the abandoned requests of a connection that are told apart.
const mostDoubts = 256

// unfinished reports whether the server may still process a request that failed with err: it was sent, and
// the server has not responded with an error. A gateway may have sent a status, such as 504.
func unfinished(err error) bool {
	_, rejected := errors.AsType[*jsonrpc.Error](asRPCError(err))
	return !rejected && !errors.Is(err, transport.ErrNotSent)
}

// abandoned records that a request of the call will not be waited for any more. b.mu is not held.
func (b *base) abandoned(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.answered {
		return
	}
	until := time.Now().Add(abandonedGrace)
	b.forgetDoubts()
	if len(b.doubts) >= mostDoubts {
		b.doubtful = until
		return
	}
	if b.doubts == nil {
		b.doubts = map[jsonrpc.ID]doubt{}
	}
	b.doubts[f.id] = doubt{f.window, until}
}

// answered takes a response that no call waits for: the server has finished with that request, unless it
// has begun a task. Then answered cancels the task, and the doubt stays.
func (b *base) answered(m *jsonrpc.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := m.ID
	if value := id.Value(); value != "" {
		id = value
	}
	f := b.flights[id] // it is being abandoned
	if _, known := b.doubts[id]; (known || f != nil) && b.cancelBegun(m) {
		return
	}
	delete(b.doubts, id)
	if f != nil {
		f.answered = true
	}
	b.ease()
}

// forgetDoubts removes doubts whose time is over. b.mu is held.
func (b *base) forgetDoubts() {
	now := time.Now()
	for id, d := range b.doubts {
		if !now.Before(d.until) {
			delete(b.doubts, id)
		}
	}
}

// crowded reports whether a call of another principal has ended within abandonedGrace. b.mu is
// held.
func (b *base) crowded(principal string) bool {
	for _, l := range b.recent {
		if l.principal != principal && !l.at.IsZero() && time.Since(l.at) < abandonedGrace {
			return true
		}
	}
	return false
}

// newest returns the call that was sent last, if possible one whose client can answer a request of
// the method. alike reports whether all calls in flight and all doubts are of one window. b.mu is
// held, and there is a call.
func (b *base) newest(method string) (newest *flight, alike bool) {
	able := false
	for _, f := range b.flights {
		can := f.profile.Answers(method)
		if newest == nil || can && !able || can == able && f.order > newest.order {
			newest, able = f, can
		}
	}
	for _, f := range b.flights {
		if f != newest && !f.window.is(newest.window) {
			return newest, false
		}
	}
	for _, d := range b.doubts {
		if !d.window.is(newest.window) {
			return newest, false
		}
	}
	return newest, true
}

// Answers reports whether a client with the profile answers requests of the method. Each client answers
// a method that needs no capability.
func (p *Profile) Answers(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodElicitationCreate:
		return p.Form || p.URL
	case mcp.MethodSamplingCreateMessage:
		return p.Sampling
	case mcp.MethodListRoots:
		return p.Roots
	}
	return true
}

// byID returns the entry of an id or of a progress token in a message of the server: that with the same
// text, or else that with the same value. It returns nil if there is none.
func byID[V any](entries map[jsonrpc.ID]*V, id []byte) *V {
	if entry := entries[jsonrpc.ID(id)]; entry != nil {
		return entry
	}
	return entries[jsonrpc.ID(id).Value()]
}
