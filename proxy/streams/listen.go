package streams

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
}

// Session identifies a legacy session for its streams and subscriptions, by its address.
type Session struct{ ended atomic.Bool }

// End records that the session has ended. Later subscriptions of its requests end at once.
func (s *Session) End() { s.ended.Store(true) }

// note is a notification. Equal waiting notes merge.
type note struct {
	method string
	uri    string // of the changed resource; "" for none
	params string // JSON params, if uri is ""
}

// Options are what the listeners need of the process.
type Options struct {
	Snapshot func() *scope.Snapshot // the current snapshot; does not block
	Queue    int                    // maximum of waiting notifications per client
	Ending   context.Context        // ends when the streams end: no subscription moves any more
	Log      *slog.Logger
}

// Listeners are the open streams and the subscribers to resources.
type Listeners struct {
	options     Options
	mu          sync.Mutex
	open        map[*Listener]struct{}
	subscribers map[*Subscriber]struct{}
	moving      sync.WaitGroup // goroutines of release and follow
}

// New returns Listeners without streams. Close must follow.
func New(o Options) *Listeners {
	return &Listeners{options: o, open: map[*Listener]struct{}{}, subscribers: map[*Subscriber]struct{}{}}
}

// Close waits for the goroutines. Options.Ending must have ended.
func (ls *Listeners) Close() { ls.moving.Wait() }

func (ls *Listeners) add(l *Listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.open[l] = struct{}{}
	for h := range ls.subscribers {
		if l.Session == nil || h.session != l.Session || h.Endpoint.Name != l.Endpoint.Name {
			continue
		}
		h.Caller = l.Caller // the client may have a new token
		if len(h.waiting) > 0 {
			l.pending, h.waiting = append(l.pending, h.waiting...), nil
			pace.Wake(l.Changed)
		}
	}
}

func (ls *Listeners) remove(l *Listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.open, l)
}

// Renew moves the streams and subscriptions to a new snapshot and notifies those whose lists
// changed. It ends streams of removed endpoints or rejected principals, and subscriptions to denied
// resources. Subscriptions of replaced upstreams move in the background.
func (ls *Listeners) Renew(w *scope.Snapshot) {
	ls.renew(w)
	ls.follow()
}

// renew is Renew without the upstreams of the subscriptions.
func (ls *Listeners) renew(w *scope.Snapshot) {
	moves := map[scope.Caller]*callerMove{}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for round := 0; ; round++ {
		if ls.options.Snapshot() != w {
			return // a newer snapshot renews the streams
		}
		open := ls.undecided(moves)
		if len(open) == 0 {
			break
		}
		if round == maxUnlocked { // streams come faster than they are decided about
			decide(w, open, moves)
			continue
		}
		ls.mu.Unlock()
		decide(w, open, moves)
		ls.mu.Lock()
	}
	told := map[listNote]bool{}
	for l := range ls.open {
		ls.move(l, moves[l.Caller], told)
	}
	for h := range ls.subscribers {
		if gone := h.move(moves[h.Caller]); len(gone) > 0 {
			defer ls.moving.Go(func() { ls.release(h, func(k resourceKey) bool { return !slices.Contains(gone, k) }) })
		}
	}
}

// maxUnlocked is how often renew decides about streams without the lock of listeners.
const maxUnlocked = 10

// callerMove is what a new snapshot changes for a caller. renew computes it without the lock of
// listeners, because that takes long: policies may judge each item for each caller.
type callerMove struct {
	now     scope.Caller         // its subject is nil if the caller is rejected or may use nothing
	lapsed  scope.Caller         // of a session whose token has expired: see Subscriber.move
	lists   [upstream.Parts]bool // changed was computed
	changed [upstream.Parts]bool // lists
	allowed map[resourceKey]bool // whether the caller may follow a resource
	usable  map[string]bool      // whether the caller may use the URI of a waiting note
}

// undecided is what renew has to decide about a caller.
type undecided struct {
	lists     [upstream.Parts]bool // that streams of the caller want
	resources map[resourceKey]subscription
	uris      []string // of waiting notes
}

// undecided returns what moves do not have; ls.mu is held.
func (ls *Listeners) undecided(moves map[scope.Caller]*callerMove) map[scope.Caller]*undecided {
	all := map[scope.Caller]*undecided{}
	entry := func(c scope.Caller) *undecided {
		if all[c] == nil {
			all[c] = &undecided{resources: map[resourceKey]subscription{}}
		}
		return all[c]
	}
	look := func(c scope.Caller, notes []note) (m *callerMove) {
		if m = moves[c]; m == nil {
			entry(c)
			m = &callerMove{}
		}
		for _, n := range notes {
			if _, known := m.usable[n.uri]; n.uri != "" && !known {
				entry(c).uris = append(entry(c).uris, n.uri)
			}
		}
		return m
	}
	for l := range ls.open {
		m := look(l.Caller, l.pending)
		for p, wanted := range l.wants {
			if wanted && !m.lists[p] {
				entry(l.Caller).lists[p] = true
			}
		}
	}
	for h := range ls.subscribers {
		m := look(h.Caller, h.waiting)
		for key, sub := range h.resources {
			if _, known := m.allowed[key]; !known {
				entry(h.Caller).resources[key] = sub
			}
		}
	}
	return all
}

// decide adds the decisions about callers to moves.
func decide(w *scope.Snapshot, open map[scope.Caller]*undecided, moves map[scope.Caller]*callerMove) {
	for c, o := range open {
		m := moves[c]
		if m == nil {
			m = &callerMove{now: w.Adopt(c), allowed: map[resourceKey]bool{}, usable: map[string]bool{}}
			if m.now.Subject == nil && m.now.Endpoint != nil {
				m.lapsed = m.now
				m.lapsed.Subject = w.SubjectViewFor(m.now.Endpoint, m.now.Principal)
			}
			moves[c] = m
		}
		for p, wanted := range o.lists {
			if wanted {
				m.lists[p] = true
				m.changed[p] = m.now.Subject != nil && !c.SameList(m.now, upstream.Part(p))
			}
		}
		for key, sub := range o.resources {
			m.allowed[key] = m.now.Subject != nil && follows(m.now, key, sub)
		}
		user := m.now
		if user.Subject == nil {
			user = m.lapsed
		}
		for _, uri := range o.uris {
			m.usable[uri] = user.Subject != nil && uses(user, uri)
		}
	}
}

// follows reports whether the caller may subscribe to a resource.
func follows(c scope.Caller, key resourceKey, sub subscription) bool {
	ruling := c.Subject.Ruling(view.NewResource(sub.backend, key.uri, sub.exposed, false))
	return ruling.Visible() && ruling.Scopes() == ""
}

// uses reports whether the caller may use a resource.
func uses(c scope.Caller, uri string) bool {
	_, err := c.Subject.Resource(uri)
	return err == nil
}

// listNote is a notification of a changed list, which a session gets on one of its streams.
type listNote struct {
	session *Session
	method  string
}

// move gives a stream its caller of a new snapshot and notifies it of changed lists; ls.mu is held.
func (ls *Listeners) move(l *Listener, m *callerMove, told map[listNote]bool) {
	if m.now.Subject == nil {
		l.end()
		return
	}
	l.Caller = m.now
	l.pending = m.still(l.pending)
	for p, method := range listChanged {
		about := listNote{l.Session, method}
		if !l.wants[p] || !m.changed[p] || l.Session != nil && told[about] {
			continue
		}
		told[about] = true
		ls.tell(l, note{method: method})
	}
}

// move gives a subscriber its caller of a new snapshot. It returns the resources that the caller may
// not follow any more; the mu of listeners is held.
func (h *Subscriber) move(m *callerMove) (gone []resourceKey) {
	if m.lapsed.Subject != nil && h.lapsed() {
		// otherwise the old snapshot would stay in memory as long as the session
		h.Caller, h.waiting = m.lapsed, m.still(h.waiting)
		return nil
	}
	for key := range h.resources {
		if !m.allowed[key] {
			gone = append(gone, key)
		}
	}
	if m.now.Subject != nil {
		h.Caller = m.now
	}
	h.waiting = m.still(h.waiting)
	return gone
}

// lapsed reports whether the token of a session has expired. Its subscriptions then wait for the
// client to return with a new token, without notifications.
func (h *Subscriber) lapsed() bool {
	ends := h.Principal.Expires
	return h.session != nil && !ends.IsZero() && !time.Now().Before(ends)
}

// still returns the notes without those about resources that the caller may no longer use.
func (m *callerMove) still(list []note) []note {
	return slices.DeleteFunc(list, func(n note) bool { return n.uri != "" && !m.usable[n.uri] })
}

// catchUp renews the streams if the snapshot was replaced while a stream or a subscription was added,
// whose caller has the snapshot began.
func (ls *Listeners) catchUp(began *scope.Snapshot) {
	if w := ls.options.Snapshot(); w != began {
		ls.renew(w)
	}
}

// listChanged are the notifications of list changes; resources and templates share one, and skills
// have none of their own.
var listChanged [upstream.Parts]string = [...]string{
	upstream.PartTools:     mcp.MethodNotificationToolsListChanged,
	upstream.PartPrompts:   mcp.MethodNotificationPromptsListChanged,
	upstream.PartResources: mcp.MethodNotificationResourcesListChanged,
	upstream.PartTemplates: mcp.MethodNotificationResourcesListChanged,
	upstream.PartSkills:    mcp.MethodNotificationResourcesListChanged,
}

// push adds a note unless it is in the list or the list is full.
func (ls *Listeners) push(list []note, n note) []note {
	if slices.Contains(list, n) || len(list) >= ls.options.Queue {
		return list
	}
	return append(list, n)
}

// Missed queues a notification of each list. It is for the first stream of a session that another
// member had: the client has missed what changed in between. The stream has not joined yet.
func (ls *Listeners) Missed(l *Listener) {
	for _, method := range listChanged[:upstream.PartTemplates] {
		ls.tell(l, note{method: method})
	}
}

// tell queues a note for a stream.
func (ls *Listeners) tell(l *Listener, n note) {
	l.pending = ls.push(l.pending, n)
	pace.Wake(l.Changed)
}

// streamOf returns a stream of a session on an endpoint; nil for none.
func (ls *Listeners) streamOf(s *Session, endpoint string) *Listener {
	for l := range ls.open {
		if l.Session == s && l.Endpoint.Name == endpoint {
			return l
		}
	}
	return nil
}

// deliver queues a note for exactly one stream of the subscriber. A session without a stream gets
// the note on its next stream.
func (ls *Listeners) deliver(h *Subscriber, n note) {
	l := h.stream
	if l == nil {
		l = ls.streamOf(h.session, h.Endpoint.Name)
	}
	if l == nil {
		h.waiting = ls.push(h.waiting, n)
		return
	}
	ls.tell(l, n)
}

// Notify queues a notification for one stream of a session. Without a stream it is dropped.
func (ls *Listeners) Notify(s *Session, endpoint, method string, params []byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.streamOf(s, endpoint); l != nil {
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
	ls.add(l)
	ls.catchUp(began)
	return func() { ls.remove(l) }
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
