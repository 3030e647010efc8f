package replicas

import (
	"context"
	"sync"
	"time"

	"junction/proxy/members"
	"junction/upstream/bounded"
)

// This file has the owners of the states of servers. For the table session_owners, a state is a session
// without a first owner: its key is the hash.

// stateKept is how long the row of a state is kept without being renewed. Its owner renews it once a day.
const stateKept = 30 * 24 * time.Hour

// states are the states that this process has.
type states struct {
	mu      sync.Mutex
	self    string // the ID with which it has them
	renewed map[[16]byte]time.Time
}

func (s *states) add(key [16]byte, self string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.self != self {
		s.self, s.renewed = self, nil
	}
	if _, known := s.renewed[key]; !known {
		bounded.Put(&s.renewed, maxKnown, key, time.Now(), nil)
	}
}

func (s *states) remove(key [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.renewed, key)
}

// due returns the states whose rows were not renewed for a day.
func (s *states) due(self string) (list [][16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, at := range s.renewed {
		if s.self == self && time.Since(at) > 24*time.Hour {
			s.renewed[key] = time.Now()
			list = append(list, key)
		}
	}
	return list
}

// State implements members.Members. A state is a session without a first owner.
func (m *Member) State(ctx context.Context, key [16]byte, released string) (owner string, lost bool, err error) {
	owner, lost, err = m.owner(ctx, key, "", released, time.Now().Add(stateKept))
	if self := m.Self(); err == nil && owner == self {
		m.states.add(key, self)
	}
	return owner, lost, err
}

// FreeState implements members.Members.
func (m *Member) FreeState(ctx context.Context, key [16]byte) error {
	self := m.Self()
	if self == "" {
		return members.ErrAlone
	}
	m.states.remove(key)
	m.owners.forget(key)
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	return m.free(ctx, key, self)
}

// free deletes the row of a session or a state if this process is its owner.
func (m *Member) free(ctx context.Context, session [16]byte, self string) error {
	var freed bool
	return m.query(ctx, freeSQL, args{"session": hashOf(session), "owner": self}, &freed)
}

var freeSQL = named(`WITH freed AS (
		DELETE FROM session_owners WHERE session_hash = @session AND owner = @owner RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM freed) AS freed`)

// renewStates keeps the rows of states of this process.
func (m *Member) renewStates(ctx context.Context) error {
	self, keys := m.Self(), []string{}
	for _, key := range m.states.due(self) {
		keys = append(keys, hashOf(key))
	}
	if len(keys) == 0 {
		return nil
	}
	var renewed int
	return m.query(ctx, renewStatesSQL, args{"keys": keys, "owner": self, "keep": stateKept.Microseconds()}, &renewed)
}

var renewStatesSQL = named(`WITH renewed AS (
		UPDATE session_owners SET expires_at = greatest(expires_at, @now + @keep::bigint)
		WHERE session_hash = ANY (@keys::text[]) AND owner = @owner RETURNING 1)
	SELECT count(*) FROM renewed`)
