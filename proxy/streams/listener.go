package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// Listener is one stream of notifications.
type Listener struct {
	scope.Caller                      // updated with the snapshot; guarded by Listeners.mu
	Session      *Session             // of the legacy era, whose streams share the notifications; nil otherwise
	First        []byte               // message that is written first, so that the client sees the stream; nil for none
	meta         []byte               // _meta of each notification; nil for none
	Last         []byte               // message that is written when Junction ends the stream; nil for none
	wants        [upstream.Parts]bool // the lists whose changes to send; templates and skills like resources
	pending      []note               // waiting notifications; guarded by Listeners.mu
	Changed      chan struct{}        // 1-buffered: pending has grown
	end          context.CancelFunc   // ends the stream
	passedOn     bool                 // see NewPassedOn
}

// note is a notification. Equal waiting notes merge.
type note struct {
	method string
	uri    string // of the changed resource; "" for none
	params string // JSON params, if uri is ""
}

// NewListener returns the stream of a session, which gets the changes of all lists.
func NewListener(c scope.Caller, s *Session) *Listener {
	l := &Listener{Caller: c, Session: s, Changed: make(chan struct{}, 1)}
	for p := range l.wants {
		l.wants[p] = true // legacy clients cannot choose
	}
	return l
}

// NewSubscription returns the stream of a subscriptions/listen, which gets no changes of lists yet. id is
// that of the request (2026-07-28, basic/patterns/subscriptions).
func NewSubscription(c scope.Caller, id jsonrpc.ID) *Listener {
	l := &Listener{Caller: c, Changed: make(chan struct{}, 1)}
	l.meta = fmt.Appendf(nil, `{"%s":%s}`, mcp.MetaKeySubscriptionID, id)
	l.Last = fmt.Appendf(jsonrpc.ResponseHead(nil, id), `{"resultType":"complete","_meta":%s}}`, l.meta)
	return l
}

// NewPassedOn returns a stream of another member that this process passes on, and which gets nothing here. It ends
// when the rights of its caller change: the other member judges the stream by those that the caller had here, too.
func NewPassedOn(c scope.Caller) *Listener {
	return &Listener{Caller: c, Changed: make(chan struct{}, 1), passedOn: true}
}

// Want adds the changes of a list; with resources, those of templates and skills. Call it before Join.
func (l *Listener) Want(p upstream.Part) {
	l.wants[p] = true
	if p == upstream.PartResources {
		l.wants[upstream.PartTemplates], l.wants[upstream.PartSkills] = true, true
	}
}

// Acknowledge sets the first message, with the members of the accepted subscriptions. Call it before Join.
func (l *Listener) Acknowledge(members []string) {
	l.First = jsonrpc.AppendRequest(nil, "", "notifications/subscriptions/acknowledged",
		fmt.Appendf(nil, `{"notifications":{%s},"_meta":%s}`, strings.Join(members, ","), l.meta))
}

// Join adds a stream, whose notifications Drain returns after a signal on l.Changed. end ends the
// stream, when its caller has lost access. The front must call leave at the end of the stream.
func (ls *Listeners) Join(l *Listener, end context.CancelFunc) (leave func()) {
	l.end = end
	began := l.Snapshot
	ls.add(l, l.Alone())
	ls.catchUp(began)
	return func() { ls.remove(l) }
}

// add is Join with the caller of the stream for subscriptions, which outlive the stream.
func (ls *Listeners) add(l *Listener, alone scope.Caller) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.open[l] = struct{}{}
	for h := range ls.subscribers {
		if l.Session == nil || h.session != l.Session || h.Endpoint.Name != l.Endpoint.Name {
			continue
		}
		h.Caller = alone // the client may have a new token
		waiting := h.waiting
		h.waiting = nil
		for _, n := range waiting {
			if l.Stricter == nil || uses(l.Caller, n.uri) {
				ls.tell(l, n)
			} else {
				h.waiting = append(h.waiting, n)
			}
		}
	}
}

func (ls *Listeners) remove(l *Listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.open, l)
}

// Missed queues a notification of each list. It is for the first stream of a session that another
// member had: the client has missed what changed in between. The stream has not joined yet.
func (ls *Listeners) Missed(l *Listener) {
	for _, method := range listChanged[:upstream.PartTemplates] {
		ls.tell(l, note{method: method})
	}
}

// MissedBy queues a notification of each list for an open stream of a session.
func (ls *Listeners) MissedBy(s *Session) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		if l.Session == s {
			ls.Missed(l)
			return
		}
	}
}

// Notify queues a notification for one stream of a session. Without a stream it is dropped.
func (ls *Listeners) Notify(s *Session, endpoint, method string, params []byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.streamOf(s, endpoint, nil); l != nil {
		ls.tell(l, note{method: method, params: string(params)})
	}
}

// Drain returns the waiting notifications of a stream, and removes them.
func (ls *Listeners) Drain(l *Listener) (messages [][]byte) {
	ls.mu.Lock()
	list := l.pending
	l.pending = nil
	ls.mu.Unlock()
	for _, n := range list {
		messages = append(messages, l.message(n))
	}
	return messages
}

// message returns a note as a message.
func (l *Listener) message(n note) []byte {
	params := n.params
	if params == "" {
		var members []string
		if n.uri != "" {
			members = append(members, `"uri":`+string(raw.Quote(n.uri)))
		}
		if l.meta != nil {
			members = append(members, `"_meta":`+string(l.meta))
		}
		if len(members) > 0 {
			params = "{" + strings.Join(members, ",") + "}"
		}
	}
	return jsonrpc.AppendRequest(nil, "", n.method, []byte(params))
}

// deliver queues a note about a resource for exactly one stream of the subscriber. A session without a stream
// that may have it gets the note on its next stream.
func (ls *Listeners) deliver(h *Subscriber, n note, about *view.Target) {
	l := h.stream
	if l == nil {
		l = ls.streamOf(h.session, h.Endpoint.Name, about)
	}
	if l == nil {
		h.waiting = ls.push(h.waiting, n)
		return
	}
	ls.tell(l, n)
}

// streamOf returns a stream of a session on an endpoint; nil for none. A note about a resource is not for a stream
// that another member passes on, whose policies deny the resource.
func (ls *Listeners) streamOf(s *Session, endpoint string, about *view.Target) *Listener {
	for l := range ls.open {
		if l.Session == s && l.Endpoint.Name == endpoint &&
			(about == nil || l.Stricter == nil || l.Subject.Ruling(about).Visible()) {
			return l
		}
	}
	return nil
}

// tell queues a note for a stream.
func (ls *Listeners) tell(l *Listener, n note) {
	l.pending = ls.push(l.pending, n)
	pace.Wake(l.Changed)
}

// push adds a note unless it is in the list or the list is full.
func (ls *Listeners) push(list []note, n note) []note {
	if slices.Contains(list, n) || len(list) >= ls.options.Queue {
		return list
	}
	return append(list, n)
}
