package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file has the invitations and sessions of the owner. It knows no HTTP.

const (
	mostInvitations = 8
	mostSessions    = 16
	inviteTime      = 5 * time.Minute // to open the page and to answer
	unusedTime      = time.Hour       // after which an unused session ends
	sessionTime     = 12 * time.Hour  // after which every session ends
)

// Stage is how far an invitation is. The zero value is that of no invitation.
type Stage int

const (
	Gone   Stage = iota // never made, refused, replaced or too old
	Sent                // nobody has opened its page
	Opened              // one browser has opened its page, and has the code
	Agreed              // it is a session
)

// Sessions are the invitations of the owner, and the sessions that came from them. They end with the
// process. The zero value has none.
type Sessions struct {
	mu     sync.Mutex
	places []*place // the oldest first; guarded by mu
}

// place is an invitation, and later the session that it has become. All but made and name are guarded by
// Sessions.mu.
type place struct {
	name   string // the random part of its path
	made   time.Time
	stage  Stage
	code   string // which page and terminal compare
	secret string // of the cookie; "" before a browser has opened the page
	token  string // of its forms
	begun  time.Time
	used   time.Time
	ctx    context.Context // ends with the session
	end    context.CancelFunc
}

// over reports whether an invitation or a session has ended by its age.
func (p *place) over(now time.Time) bool {
	if p.stage != Agreed {
		return now.Sub(p.made) >= inviteTime
	}
	return now.Sub(p.used) >= unusedTime || now.Sub(p.begun) >= sessionTime
}

// letters of codes: none looks like another one.
const letters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// newCode returns a code such as KQ7-4MX.
func newCode() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b[:3]) + "-" + string(b[3:])
}

// Invite makes an invitation, and returns the random part of its path. Of too many, it ends the oldest.
func (s *Sessions) Invite() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clean()
	p := &place{name: strings.ToLower(rand.Text()), made: time.Now(), stage: Sent}
	p.ctx, p.end = context.WithCancel(context.Background())
	s.bound(mostInvitations, func(p *place) bool { return p.stage != Agreed })
	s.places = append(s.places, p)
	return p.name
}

// Stage returns how far an invitation is, and its code if a browser has it.
func (s *Sessions) Stage(name string) (Stage, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(name)
	switch {
	case p == nil:
		return Gone, ""
	case p.stage == Opened:
		return Opened, p.code
	}
	return p.stage, ""
}

// Answer is what the owner says at the terminal: whether the page shows the code. No ends the invitation. It
// returns false if there is none that was opened.
func (s *Sessions) Answer(name, code string, same bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(name)
	if p == nil || p.stage != Opened || p.code != code {
		return false
	}
	if !same {
		s.drop(func(other *place) bool { return other == p })
		return true
	}
	s.bound(mostSessions, func(p *place) bool { return p.stage == Agreed })
	p.stage, p.code = Agreed, ""
	p.begun = time.Now()
	p.used = p.begun
	return true
}

// EndAll ends all invitations and sessions, and returns the number of sessions.
func (s *Sessions) EndAll() (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clean()
	for _, p := range s.places {
		if p.stage == Agreed {
			ended++
		}
	}
	s.drop(func(*place) bool { return true })
	return ended
}

// Open is the request of a browser for the page of an invitation. The first browser gets a secret for its
// cookie, and the code. Later ones get neither: the code is never shown twice, so that a browser that was given the
// cookie of another one shows no code.
func (s *Sessions) Open(name string) (secret, code string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(name)
	if p == nil || p.stage != Sent {
		return "", "", false
	}
	p.stage, p.secret, p.token, p.code = Opened, rand.Text(), rand.Text(), newCode()
	return p.secret, p.code, true
}

// session is what one request has of a session.
type session struct {
	Name, Token string
	ctx         context.Context // ends with the session
}

// Of returns the session of a request with a cookie, and how far it is: Gone without the right cookie. used
// counts the request as a use.
func (s *Sessions) Of(name, secret string, used bool) (session, Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.find(name)
	if p == nil || p.secret == "" || subtle.ConstantTimeCompare([]byte(p.secret), []byte(secret)) != 1 {
		return session{}, Gone
	}
	if used && p.stage == Agreed {
		p.used = time.Now()
	}
	return session{p.name, p.token, p.ctx}, p.stage
}

// Known reports whether a name is that of an invitation or session.
func (s *Sessions) Known(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(name) != nil
}

// End ends one session.
func (s *Sessions) End(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(func(p *place) bool { return p.name == name })
}

// find returns the invitation or session with a name that is not over. The caller holds mu.
func (s *Sessions) find(name string) *place {
	s.clean()
	if i := slices.IndexFunc(s.places, func(p *place) bool { return p.name == name }); i >= 0 {
		return s.places[i]
	}
	return nil
}

// clean ends what is over. The caller holds mu.
func (s *Sessions) clean() {
	now := time.Now()
	s.drop(func(p *place) bool { return p.over(now) })
}

// bound ends the oldest of a kind until there is room for one more. The caller holds mu.
func (s *Sessions) bound(most int, kind func(*place) bool) {
	n := 0
	for _, p := range s.places {
		if kind(p) {
			n++
		}
	}
	s.drop(func(p *place) bool {
		if n < most || !kind(p) {
			return false
		}
		n--
		return true
	})
}

// drop ends places, and wakes their streams. The caller holds mu.
func (s *Sessions) drop(which func(*place) bool) {
	s.places = slices.DeleteFunc(s.places, func(p *place) bool {
		if !which(p) {
			return false
		}
		p.end()
		return true
	})
}
