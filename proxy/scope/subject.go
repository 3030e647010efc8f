package scope

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"junction/auth"
	"junction/policy"
	"junction/proxy/redact"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
	"junction/upstream/raw"
)

// This file keeps what each subject may use; package view decides it (view/subject.go). A denied item
// does not exist for the subject: not in lists, not by name, not in errors, not in notifications.

// subjectView is the part of an endpoint that one subject may use. Principals with the same rights
// share a subjectView.
type subjectView struct {
	*view.SubjectView
	Limits policy.Limits
	local  bool             // for the single principal without authentication
	Redact *redact.Redactor // nil if there are no redactions

	Search  bool         // lists have only the tools of always and of Junction
	Always  policy.Globs // see search
	listing sync.Once
	kept    *view.Sight // of always

	Unnamed [upstream.Parts]sync.Once // lists whose items without a name were logged

	room  *bounded.Room // nil if the view is not cached
	likes alikeKey
	refs  int // number of principals with the view in room; guarded by room.mu
	bytes int // guarded by room.mu
}

// subjectViews caches the subject views of one endpoint.
type subjectViews struct {
	cache bounded.Cache[subjectKey, *subjectView]
	alike map[alikeKey][]*subjectView // views in cache, by rights; guarded by room.mu
}

// alikeKey is equal for subjects with equal rights.
type alikeKey struct {
	local  bool
	rights uint64 // hash
}

// subjectKey is the key of a subjectView within a snapshot and an endpoint.
type subjectKey struct {
	principal string
	claims    uint64     // hash of claims beside the ID; 0 for none
	address   netip.Addr // if policies match addresses
	stricter  *policy.Policy
}

// begin connects the views to a room.
func (all *subjectViews) begin(r *bounded.Room) {
	all.alike = map[alikeKey][]*subjectView{}
	all.cache = bounded.Cache[subjectKey, *subjectView]{Room: r, Came: all.came, Left: all.left}
}

// came counts another principal with the view.
func (all *subjectViews) came(s *subjectView) {
	if s.refs++; s.refs == 1 {
		all.cache.Room.Used += s.bytes
		all.alike[s.likes] = append(all.alike[s.likes], s)
	}
}

// left counts one principal less with the view.
func (all *subjectViews) left(s *subjectView) {
	if s.refs--; s.refs > 0 {
		return
	}
	all.cache.Room.Used -= s.bytes
	rest := slices.DeleteFunc(all.alike[s.likes], func(o *subjectView) bool { return o == s })
	if all.alike[s.likes] = rest; len(rest) == 0 {
		delete(all.alike, s.likes)
	}
}

// SubjectViewFor returns the part of an endpoint that a principal may use.
func (w *Snapshot) SubjectViewFor(e *Endpoint, p *auth.Principal) *subjectView {
	return w.subjectView(e, p, nil)
}

// subjectView is SubjectViewFor a Caller with stricter policies.
func (w *Snapshot) subjectView(e *Endpoint, p *auth.Principal, stricter *policy.Policy) *subjectView {
	key := subjectKey{principal: p.ID, claims: claims(p), stricter: stricter}
	rules := w.rules(stricter)
	if rules.MatchesAddress() {
		key.address = p.Address
	}
	if s, known := e.subjects.cache.Get(key); known {
		return s
	}
	rights := rules.For(Subject(p, e.Surface))
	likes := alikeKey{p.Kind == auth.KindLocal, rights.Hash(claimSeed)}
	key.principal = strings.Clone(p.ID) // it may be a substring of a long text
	return e.subjects.cache.Keep(key, func() (*subjectView, int) {
		for _, other := range e.subjects.alike[likes] {
			if other.Rights.Equal(rights) {
				return other, len(key.principal) + perSubjectKey
			}
		}
		return w.newSubjectView(e, rights, likes), len(key.principal) + perSubjectKey
	})
}

// rules returns the policies of the snapshot, together with stricter ones if there are some.
func (w *Snapshot) rules(stricter *policy.Policy) *policy.Policy {
	if stricter == nil {
		return w.Config.Policy
	}
	return policy.Both(w.Config.Policy, stricter)
}

// perSubjectKey is the approximate memory of a subjectKey in the cache, in bytes.
const perSubjectKey = 200

var claimSeed = maphash.MakeSeed()

// claims returns a hash of the principal's attributes for policy, beside its ID; 0 for none.
func claims(p *auth.Principal) uint64 {
	if p.Groups == nil && p.Scopes == nil && p.Email == "" && p.OAuthClient == "" {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(claimSeed)
	for _, list := range [...][]string{p.Groups, p.Scopes, {p.Email, p.OAuthClient, p.Issuer}} {
		maphash.WriteComparable(&h, len(list))
		for _, text := range list {
			maphash.WriteComparable(&h, text)
		}
	}
	return h.Sum64()
}

func (w *Snapshot) newSubjectView(e *Endpoint, rights *policy.Rights, likes alikeKey) *subjectView {
	s := &subjectView{local: likes.local, room: e.subjects.cache.Room, likes: likes, Limits: rights.Limits()}
	s.SubjectView = view.NewSubjectView(e.View, rights, w.Rulings, s.looked)
	s.Redact = redact.For(s.Safeguards)
	s.Search, s.Always = e.Search || s.Safeguards.Search, slices.Concat(e.Always, s.Safeguards.Always)
	s.bytes = 300 + rights.Size() + 100*len(s.Safeguards.Redactions)
	return s
}

// looked counts the memory of a new sight.
func (s *subjectView) looked(made *view.Sight) {
	if s.room == nil {
		return
	}
	s.room.Mu.Lock()
	defer s.room.Mu.Unlock()
	if s.bytes += made.Bytes(); s.refs > 0 {
		s.room.Used += made.Bytes()
		s.room.Trim()
	}
}

// Listed returns the items of lists: all that the subject sees, or with search only the tools of
// always.
func (s *subjectView) Listed() *view.Sight {
	if !s.Search {
		return s.Sight()
	}
	s.listing.Do(func() {
		s.kept = s.Sight().Only(s.Always)
		s.looked(s.kept)
	})
	return s.kept
}

// AppendInstructions appends a comma and the member instructions, if there are any. clean redacts them.
func (s *subjectView) AppendInstructions(b []byte, clean *redact.Redactor) []byte {
	text := s.Sight().Instructions(clean.String)
	if text == "" {
		return b
	}
	return raw.AppendQuote(append(b, `,"instructions":`...), text)
}

// Print returns a hash that identifies a list, including Junction's own tools.
func (s *subjectView) Print(p upstream.Part, k view.ListKind) uint64 {
	print := s.Listed().Print(p, k)
	if s.Search && p == upstream.PartTools {
		print = ^print
	}
	return print
}

// Private reports whether the lists of this subject may differ from those of others.
func (s *subjectView) Private() bool { return !s.local || !s.Sight().Whole }

// Subject converts a principal for policy. It contains no unverified data of the client.
func Subject(p *auth.Principal, surface string) policy.Subject {
	return policy.Subject{Kind: string(p.Kind), ID: p.ID, Key: p.Key, User: p.User, Issuer: p.Issuer, Email: p.Email,
		Groups: p.Groups, Scopes: p.Scopes,
		OAuthClient: p.OAuthClient, Address: p.Address, Surface: surface}
}
