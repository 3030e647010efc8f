package streams

import (
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

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

// catchUp renews the streams if the snapshot was replaced while a stream or a subscription was added,
// whose caller has the snapshot began.
func (ls *Listeners) catchUp(began *scope.Snapshot) {
	if w := ls.options.Snapshot(); w != began {
		ls.renew(w)
	}
}

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
	return ruling.Visible() && ruling.Scopes() == "" &&
		(sub.folders == nil || c.Folders(sub.backend).Permits(sub.folders.Path()))
}

// uses reports whether the caller may use a resource.
func uses(c scope.Caller, uri string) bool {
	_, err := c.Subject.Resource(uri)
	return err == nil
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

// listNote is a notification of a changed list, which a session gets on one of its streams.
type listNote struct {
	session *Session
	method  string
}

// move gives a stream its caller of a new snapshot and notifies it of changed lists; ls.mu is held.
func (ls *Listeners) move(l *Listener, m *callerMove, told map[listNote]bool) {
	if m.now.Subject == nil || l.passedOn && !l.Subject.Rights.Equal(m.now.Subject.Rights) {
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
