package front

import (
	"container/heap"
	"container/list"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"junction/auth/seal"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/streams"
	"junction/upstream/bounded"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
)

// session is the state of a legacy client between requests. The negotiated state is in the sealed
// ID, so a session survives its eviction from memory, a restart and a change of replica. Some
// clients never recover from a 404.
type session struct {
	sealedSession
	core    proxy.Session // what the core keeps
	numbers atomic.Uint64 // of server requests
	// narrowed: the policies of another member have decided what the client sees, since MembersAgree was called.
	narrowed atomic.Bool

	mu      sync.Mutex
	calls   map[jsonrpc.ID]context.CancelCauseFunc   // in flight; nil before the first
	streams map[*streams.Listener]context.CancelFunc // open; nil when there are none
	pending map[jsonrpc.ID]*pendingRequest           // server requests without a response; nil before the first
	records []*record                                // of streams that the client can resume
	ended   error                                    // why the session has ended here; nil while it has not
	missed  bool                                     // another member had a part in it; no stream was opened since

}

// sealedSession is the content of a session ID.
type sealedSession struct {
	Version string         `json:"v"`           // of the protocol
	Client  string         `json:"c,omitempty"` // the client's name for itself (unverified)
	Profile client.Profile `json:"p,omitzero"`
	Born    int64          `json:"t"` // Unix seconds
	// Until is when the session expires by the max_age with which it began, in Unix seconds. A larger max_age
	// later makes no expired or deleted ID valid again. 0 in an ID of a version without it.
	Until int64  `json:"u,omitempty"`
	Key   string `json:"k"` // identifies the session for upstreams
	// Principal is the ID of the principal that has the session. For others the session does not exist.
	Principal string `json:"w"`
	// Member is the ID of the process that created the session; "" if it was alone.
	Member string `json:"m,omitempty"`
}

// ends returns the time when the session ID expires.
func (s *sealedSession) ends(maxAge time.Duration) time.Time {
	ends := time.Unix(s.Born, 0).Add(maxAge)
	if own := time.Unix(s.Until, 0); s.Until != 0 && own.Before(ends) {
		return own
	}
	return ends
}

// sessions holds the sessions in memory, bounded in number and idle time, and the deleted IDs.
//
// An account may have at most half of the capacity that the others leave. A further session
// replaces the account's longest idle one. If there is no capacity because there are many accounts,
// an account with the most sessions loses one.
type sessions struct {
	box    *seal.Box
	max    int
	idle   time.Duration
	maxAge time.Duration
	self   func() string // Members.Self; nil if the process is alone

	mu      sync.Mutex
	member  string // the ID of this process when the sessions in memory were created or rebuilt
	byID    map[string]*entry
	order   *list.List // of *entry, the latest used in front
	holders map[budget.Account]*holder
	most    holders        // all holders; one with the most sessions is first
	forget  func(*session) // called with mu held when a session is evicted or ended; may be nil
	deleted *DeletedSessions
	tell    func(principal, session [16]byte, until time.Time) // called for each deleted ID; may be nil
}

// DeletedSessions are deleted sessions: by the hash of their principal, the hashes of their IDs, with the
// time until which each must be remembered.
type DeletedSessions = bounded.Shared[[16]byte, [16]byte, time.Time]

// entry is a session in memory. It is in two lists: one of all sessions, one of its holder's sessions.
type entry struct {
	id       string
	s        *session
	used     time.Time
	holder   *holder
	all, own *list.Element
}

// holder is an account with sessions in memory.
type holder struct {
	account budget.Account
	order   *list.List // of *entry, latest use first
	at      int        // index in sessions.most
}

// holders is a heap.
type holders []*holder

func (h holders) Len() int           { return len(h) }
func (h holders) Less(i, j int) bool { return h[i].order.Len() > h[j].order.Len() }
func (h holders) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *holders) Push(x any)        { x.(*holder).at = len(*h); *h = append(*h, x.(*holder)) }
func (h *holders) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

var (
	errUnknownSession = errors.New("unknown session")
	errInUse          = errors.New("id in use")
	errMoved          = errors.New("another member may have the session") // see members.Members
)

func newSessions(box *seal.Box, max int, c Sessions) *sessions {
	return &sessions{box: box, max: max, idle: c.Idle, maxAge: c.MaxAge,
		byID: map[string]*entry{}, order: list.New(), holders: map[budget.Account]*holder{},
		deleted: &DeletedSessions{Max: max}}
}

// create begins a session of the account's principal and returns its id. The session is nil if this
// process has just lost its place among the members.
func (ss *sessions) create(version, name string, a budget.Account, p client.Profile) (string, *session) {
	now := time.Now()
	sealed := sealedSession{Version: version, Client: name, Profile: p, Born: now.Unix(),
		Until: now.Add(ss.maxAge).Unix(), Key: rand.Text(), Principal: a.Principal, Member: ss.process()}
	text, _ := json.Marshal(sealed) // cannot fail: strings and a number
	id := ss.box.Seal(text)
	s, _ := ss.load(id, sealed, a)
	return id, s
}

// find returns the session of an ID. It is nil if the session is not in memory, or if this process
// is not its owner now. The error is errUnknownSession if the session has expired, which also ends
// its streams, or if the session is another principal's.
func (ss *sessions) find(id string, a budget.Account) (*session, error) {
	now := time.Now()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	e, ok := ss.byID[id]
	if !ok || !ss.confirmOwner() {
		return nil, nil
	}
	if e.s.Principal != a.Principal {
		return nil, errUnknownSession
	}
	if now.After(e.s.ends(ss.maxAge)) {
		ss.drop(e)
		e.s.expire()
		return nil, errUnknownSession
	}
	ss.use(e, now)
	ss.trim(now)
	return e.s, nil
}

// kept returns the session of an ID if it is in memory and the principal's, also while this process is no
// member. It is nil otherwise.
func (ss *sessions) kept(id string, a budget.Account) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if e, ok := ss.byID[id]; ok && e.s.Principal == a.Principal {
		return e.s
	}
	return nil
}

// open returns the content of the ID of a session that the principal has and that has neither
// expired nor been deleted, as far as this process knows. The error is errUnknownSession.
func (ss *sessions) open(id string, a budget.Account) (sealed sealedSession, err error) {
	plain, err := ss.box.Open(id)
	if err != nil || json.Unmarshal(plain, &sealed) != nil || sealed.Principal != a.Principal ||
		time.Now().After(sealed.ends(ss.maxAge)) {
		return sealed, errUnknownSession
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if _, deleted := ss.deleted.Get(hash(id)); deleted {
		return sealed, errUnknownSession
	}
	return sealed, nil
}

// load puts a new session, or one rebuilt from its ID, into memory. sealed.Member is
// the ID of this process as the caller knows it. The error is errMoved if that has changed.
func (ss *sessions) load(id string, sealed sealedSession, a budget.Account) (*session, error) {
	now := time.Now()
	s := &session{sealedSession: sealed, core: proxy.Session{Version: sealed.Version, Key: sealed.Key}}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.confirmOwner() || ss.member != sealed.Member {
		return nil, errMoved
	}
	if e, ok := ss.byID[id]; ok {
		return e.s, nil // another request was faster
	}
	id = strings.Clone(id) // a substring would keep the whole request in memory
	ss.add(&entry{id: id, s: s, used: now}, a)
	ss.trim(now)
	return s, nil
}

// process returns the ID of this process among the members; "" if it is alone.
func (ss *sessions) process() string {
	if ss.self == nil {
		return ""
	}
	return ss.self()
}

// confirmOwner reports whether this process is the owner of the sessions in memory. While it is no
// member, the result is false and the sessions stay, because the process may get its ID back. If it
// has a new ID, confirmOwner ends the sessions, because other members may have them. ss.mu is held.
func (ss *sessions) confirmOwner() bool {
	member := ss.process()
	if member == "" {
		return ss.self == nil
	}
	if member != ss.member {
		ss.member = member
		for _, e := range ss.byID {
			ss.drop(e)
			e.s.close(errMoved)
		}
	}
	return true
}

// add adds a session and evicts others if necessary; ss.mu is held.
func (ss *sessions) add(e *entry, a budget.Account) {
	h := ss.holders[a]
	if h == nil {
		h = &holder{account: a, order: list.New()}
		ss.holders[a] = h
		heap.Push(&ss.most, h)
	}
	ss.byID[e.id] = e
	e.holder, e.all, e.own = h, ss.order.PushFront(e), h.order.PushFront(e)
	heap.Fix(&ss.most, h.at)
	own, others := h.order.Len(), len(ss.byID)-h.order.Len()
	if own > max(1, (ss.max-others)/2) {
		ss.evict(h, e)
	}
	if len(ss.byID) > ss.max {
		ss.evict(ss.most[0], e)
	}
}

// evict evicts the longest idle session of an account, except newest and sessions in use; ss.mu is
// held. It checks at most 16 sessions and moves those in use to the front.
func (ss *sessions) evict(h *holder, newest *entry) {
	now := time.Now()
	for range min(h.order.Len(), 16) {
		e := h.order.Back().Value.(*entry)
		if e != newest && !e.s.busy() {
			ss.drop(e)
			return
		}
		ss.use(e, now)
	}
}

// use marks a session as used; ss.mu is held.
func (ss *sessions) use(e *entry, now time.Time) {
	e.used = now
	ss.order.MoveToFront(e.all)
	e.holder.order.MoveToFront(e.own)
}

// trim evicts sessions that are idle for too long. Sessions in use stay.
func (ss *sessions) trim(now time.Time) {
	for range 16 {
		last := ss.order.Back()
		if last == nil || now.Sub(last.Value.(*entry).used) < ss.idle {
			return
		}
		if e := last.Value.(*entry); e.s.busy() {
			ss.use(e, now)
		} else {
			ss.drop(e)
		}
	}
}

// drop removes a session from memory; ss.mu is held.
func (ss *sessions) drop(e *entry) {
	ss.order.Remove(e.all)
	delete(ss.byID, e.id)
	h := e.holder
	if h.order.Remove(e.own); h.order.Len() == 0 {
		heap.Remove(&ss.most, h.at)
		delete(ss.holders, h.account)
	} else {
		heap.Fix(&ss.most, h.at)
	}
	if ss.forget != nil {
		ss.forget(e.s)
	}
}

// remove removes a session from memory, if it is still the one of the ID.
func (ss *sessions) remove(id string, s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if e, ok := ss.byID[id]; ok && e.s == s {
		ss.drop(e)
	}
}

// forgetAt returns until when a deletion of now must be remembered. Another process, or this one after a restart,
// may have a larger max_age: for it, the ID is valid until s.Until. An ID without it is remembered for max_age.
func (ss *sessions) forgetAt(now time.Time, s *sealedSession) time.Time {
	forget := now.Add(ss.maxAge)
	if own := time.Unix(s.Until, 0).Add(time.Second); own.After(forget) {
		return own
	}
	return forget
}

// delete ends a session of a principal permanently, with its calls and streams. The deletion is remembered
// until the time of forgetAt.
func (ss *sessions) delete(id, principal string, until time.Time) {
	ss.mu.Lock()
	e, ok := ss.byID[id]
	if ok {
		ss.drop(e)
	}
	principalHash, sessionHash := hash(principal), hash(id)
	ss.deleted.Put(principalHash, sessionHash, until, time.Now().After)
	ss.mu.Unlock()
	if ss.tell != nil {
		ss.tell(principalHash, sessionHash, until)
	}
	if ok {
		e.s.close(errUnknownSession)
	}
}

// hash returns the hash of a session ID, or of a principal.
func hash(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}

// busy reports whether the session has a call or a stream.
func (s *session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || len(s.streams) > 0
}

// release ends the session at this process if it has no call in flight, and reports whether it did.
// No call can begin afterwards.
func (s *session) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) > 0 {
		return false
	}
	s.ended = errReleased
	s.core.Streams.End()
	for _, end := range s.streams {
		end()
	}
	return true
}

// register stores the cancel function of a call. The error is errInUse if the session has a call
// with that ID, or the reason for which the session has ended.
func (s *session) register(id jsonrpc.ID, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	if _, ok := s.calls[id]; ok {
		return errInUse
	}
	if s.calls == nil {
		s.calls = map[jsonrpc.ID]context.CancelCauseFunc{}
	}
	s.calls[id] = cancel
	return nil
}

func (s *session) unregister(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, id)
}

// cancel cancels the call of that id, if it is in flight.
func (s *session) cancel(id jsonrpc.ID) {
	s.mu.Lock()
	cancel := s.calls[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// join stores the end function of a stream; leave must follow. The error is the reason for which
// the session has ended.
func (s *session) join(l *streams.Listener, end context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	if s.streams == nil {
		s.streams = map[*streams.Listener]context.CancelFunc{}
	}
	s.streams[l] = end
	return nil
}

func (s *session) leave(l *streams.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.streams, l); len(s.streams) == 0 {
		s.streams = nil
	}
}

// expire ends the session's streams. Its calls still get their answers.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = errUnknownSession
	s.core.Streams.End()
	for _, end := range s.streams {
		end()
	}
}

// close ends the session's calls and streams. why is errUnknownSession or errMoved.
func (s *session) close(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = why
	s.core.Streams.End()
	var cause error
	if why == errMoved {
		cause = proxy.CutOff{Why: "this process has lost its connection to the others before the answer came; " +
			"the call may have been executed"}
	}
	for _, cancel := range s.calls {
		cancel(cause)
	}
	for _, end := range s.streams {
		end()
	}
}
