package proxy

import (
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
	"junction/upstream"
	"junction/upstream/jsonrpc"
)

// session is what we remember of a legacy client between two requests. All that was negotiated is in its id, sealed, so that a client whose session we have
// forgotten, or that comes back after our restart or to another replica, goes on as if nothing had happened: some clients never recover from a 404.
type session struct {
	key     string // for upstreams: what tells this session from others
	version string // of the protocol
	client  string // the name that the client gave itself
	profile upstream.Profile
	// principal is whose session it is: for everybody else there is no such session.
	principal string
	numbers   atomic.Uint64 // of questions

	mu      sync.Mutex
	calls   map[jsonrpc.ID]context.CancelCauseFunc // in flight; nil before the first
	streams map[*listener]context.CancelFunc       // open; nil when there are none
	asked   map[jsonrpc.ID]*asked                  // questions to the client; nil before the first
	level   string                                 // of log messages, as the client has set it; "" when it has not
	records []*record                              // of streams that the client can come back for
	gone    bool                                   // the client has deleted the session

	approved map[string]bool // digests of requests that need no asking any more
}

// sealedSession is what a session id says.
type sealedSession struct {
	Version string           `json:"v"`
	Client  string           `json:"c,omitempty"`
	Profile upstream.Profile `json:"p,omitzero"`
	Born    int64            `json:"t"`
	Key     string           `json:"k"`
	Owner   string           `json:"w"`
}

// sessions are the sessions in memory, bounded in number and idle time, and the ids that were deleted.
type sessions struct {
	box    *seal.Box
	max    int
	idle   time.Duration
	maxAge time.Duration

	mu      sync.Mutex
	byID    map[string]*list.Element             // of order
	order   *list.List                           // of *entry, the latest used in front
	over    func(*session)                       // called with mu held when one is forgotten or ended; nil does nothing
	deleted map[[16]byte]time.Time               // hashes of ids, and when their age ends them anyway
	tell    func(hash [16]byte, until time.Time) // called for each id that is deleted; nil does nothing
}

type entry struct {
	id   string
	s    *session
	born time.Time
	used time.Time
}

var (
	errUnknownSession = errors.New("unknown session")
	errInUse          = errors.New("id in use")
)

func newSessions(box *seal.Box, max int, c Sessions) *sessions {
	return &sessions{box: box, max: max, idle: c.Idle, maxAge: c.MaxAge,
		byID: map[string]*list.Element{}, order: list.New(), deleted: map[[16]byte]time.Time{}}
}

// open begins a session and returns its id.
func (ss *sessions) open(version, client, principal string, p upstream.Profile) (string, *session) {
	now := time.Now()
	said, _ := json.Marshal(sealedSession{version, client, p, now.Unix(), rand.Text(), principal}) // strings and a number: this cannot fail
	id := ss.box.Seal(said)
	s, _ := ss.find(id)
	return id, s
}

// find returns the session of an id; the error is errUnknownSession.
func (ss *sessions) find(id string) (*session, error) {
	now := time.Now()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if e, ok := ss.byID[id]; ok {
		entry := e.Value.(*entry)
		if now.Sub(entry.born) > ss.maxAge {
			ss.drop(e)
			return nil, errUnknownSession
		}
		entry.used = now
		ss.order.MoveToFront(e)
		ss.trim(now)
		return entry.s, nil
	}
	plain, err := ss.box.Open(id)
	if err != nil {
		return nil, errUnknownSession
	}
	var said sealedSession
	if json.Unmarshal(plain, &said) != nil {
		return nil, errUnknownSession
	}
	born := time.Unix(said.Born, 0)
	if _, gone := ss.deleted[hash(id)]; gone || now.Sub(born) > ss.maxAge {
		return nil, errUnknownSession
	}
	id = strings.Clone(id) // it is part of what the client has sent, which may be long
	s := &session{key: said.Key, version: said.Version, client: said.Client, profile: said.Profile, principal: said.Owner}
	ss.byID[id] = ss.order.PushFront(&entry{id, s, born, now})
	ss.trim(now)
	return s, nil
}

// trim forgets the sessions that are idle for too long, or too many. One that is in use stays.
func (ss *sessions) trim(now time.Time) {
	for e, looked := ss.order.Back(), 0; e != nil && looked < 16; looked++ {
		before := e.Prev()
		entry := e.Value.(*entry)
		if len(ss.byID) <= ss.max && now.Sub(entry.used) < ss.idle {
			return
		}
		if entry.s.busy() {
			entry.used = now
			ss.order.MoveToFront(e)
		} else {
			ss.drop(e)
		}
		e = before
	}
}

func (ss *sessions) drop(e *list.Element) {
	ss.order.Remove(e)
	delete(ss.byID, e.Value.(*entry).id)
	if ss.over != nil {
		ss.over(e.Value.(*entry).s)
	}
}

// delete ends a session for good, with its calls and streams.
func (ss *sessions) delete(id string) {
	s, err := ss.find(id)
	if err != nil {
		return
	}
	now := time.Now()
	ss.mu.Lock()
	if e, ok := ss.byID[id]; ok {
		ss.drop(e)
	}
	for h, until := range ss.deleted { // a few at random are enough to keep the map small
		if now.After(until) || len(ss.deleted) >= ss.max {
			delete(ss.deleted, h)
		}
		if len(ss.deleted) < ss.max {
			break
		}
	}
	gone, until := hash(id), now.Add(ss.maxAge)
	ss.deleted[gone] = until
	ss.mu.Unlock()
	if ss.tell != nil {
		ss.tell(gone, until)
	}
	s.close()
}

// hash is the key under which a deleted id is remembered.
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

// register remembers how to cancel the call of that id; the error is errInUse when the session has such a call already, and
// errUnknownSession when it was deleted meanwhile.
func (s *session) register(id jsonrpc.ID, cancel context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errUnknownSession
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

// join remembers how to end a stream of the session; leave must follow. The error is errUnknownSession when the session was deleted meanwhile.
func (s *session) join(l *listener, end context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return errUnknownSession
	}
	if s.streams == nil {
		s.streams = map[*listener]context.CancelFunc{}
	}
	s.streams[l] = end
	return nil
}

func (s *session) leave(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.streams, l); len(s.streams) == 0 {
		s.streams = nil
	}
}

// over reports whether the client has deleted the session.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// close ends the session's calls and streams.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, cancel := range s.calls {
		cancel(nil)
	}
	for _, end := range s.streams {
		end()
	}
}
