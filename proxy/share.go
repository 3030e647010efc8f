package proxy

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/redact"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds what one subject may use of an endpoint. What policy denies it is not in its
// view, so that for this subject there is no such thing: not in a list, not by name, not in an
// error, and not in a notification.

// subjectView is what one subject may use of an endpoint, found out when it is needed. Principals
// who may do the same have one.
type subjectView struct {
	*seen
	limits policy.Limits
	local  bool             // for the principal that everybody is
	redact *redact.Redactor // nil when nothing is taken out

	room  *room // nil where nothing is kept
	likes alikeKey
	refs  int // how many principals have the view in room; guarded by room.mu
	bytes int // guarded by room.mu
}

// shares are those of one endpoint that are kept.
type shares struct {
	of    cache[shareKey, *subjectView]
	alike map[alikeKey][]*subjectView // those in of, which principals who may do the same share; guarded by room.mu
}

// alikeKey is the same for subjects who may do the same.
type alikeKey struct {
	local  bool
	rights uint64 // hash
}

// shareKey is what a share depends on, beside the world and the endpoint.
type shareKey struct {
	principal string
	claims    uint64     // of a principal that has some beside its id
	address   netip.Addr // where policy asks for it
}

// begin makes the shares keep what fits into the room.
func (all *shares) begin(r *room) {
	all.alike = map[alikeKey][]*subjectView{}
	all.of = cache[shareKey, *subjectView]{room: r, came: all.came, left: all.left}
}

// came counts a principal more that has the share.
func (all *shares) came(s *subjectView) {
	if s.refs++; s.refs == 1 {
		all.of.room.used += s.bytes
		all.alike[s.likes] = append(all.alike[s.likes], s)
	}
}

// left counts a principal less.
func (all *shares) left(s *subjectView) {
	if s.refs--; s.refs > 0 {
		return
	}
	all.of.room.used -= s.bytes
	rest := slices.DeleteFunc(all.alike[s.likes], func(o *subjectView) bool { return o == s })
	if all.alike[s.likes] = rest; len(rest) == 0 {
		delete(all.alike, s.likes)
	}
}

// share returns what a principal may use of an endpoint.
func (w *world) share(e *endpoint, p *auth.Principal) *subjectView {
	key := shareKey{principal: p.ID, claims: claims(p)}
	if w.policy.MatchesAddress() {
		key.address = p.Address
	}
	if s, known := e.shares.of.get(key); known {
		return s
	}
	rights := w.policy.For(subject(p, e.surface))
	likes := alikeKey{p.Kind == auth.KindLocal, rights.Hash(claimSeed)}
	key.principal = strings.Clone(p.ID) // it may be part of something long
	return e.shares.of.keep(key, func() (*subjectView, int) {
		for _, other := range e.shares.alike[likes] {
			if other.rights.Equal(rights) {
				return other, len(key.principal) + perShareKey
			}
		}
		return w.newSubjectView(e, rights, likes), len(key.principal) + perShareKey
	})
}

// perShareKey is about what a shareKey takes, in the map and beside its value.
const perShareKey = 200

var claimSeed = maphash.MakeSeed()

// claims tells principals of one id apart who are not the same to policy.
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

func (w *world) newSubjectView(e *endpoint, rights *policy.Rights, likes alikeKey) *subjectView {
	s := &subjectView{local: likes.local, room: e.shares.of.room, likes: likes, limits: rights.Limits()}
	s.seen = newSeen(e.view, rights, w.rulings, s.looked)
	var rules []redact.Rule
	for _, r := range s.guards.Redactions {
		rules = append(rules, redact.Rule{Name: r.Name, Re: r.Re})
	}
	s.redact = redact.New(rules, s.guards.Secrets)
	s.bytes = 300 + rights.Size() + 100*len(rules)
	return s
}

// looked counts the memory of a sight that was made.
func (s *subjectView) looked(made *sight) {
	if s.room == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.bytes += made.bytes(); s.refs > 0 {
		s.room.used += made.bytes()
		s.room.trim()
	}
}

// private reports whether the lists are not what everybody sees.
func (s *subjectView) private() bool { return !s.local || !s.sight().whole }

// subject is a principal as policy sees it. What a client says of itself is not in it.
func subject(p *auth.Principal, surface string) policy.Subject {
	return policy.Subject{Kind: string(p.Kind), ID: p.ID, Key: p.Key, User: p.User, Issuer: p.Issuer, Email: p.Email, Groups: p.Groups, Scopes: p.Scopes,
		OAuthClient: p.OAuthClient, Address: p.Address, Surface: surface}
}

// seen is the part of a view that one subject may use, found out when it is needed.
type seen struct {
	rights  *policy.Rights
	guards  *policy.Guards
	view    *view // of the endpoint, with what is denied
	rulings *rulings

	looking sync.Once
	found   *sight
	looked  func(*sight) // called once with found, when it was made; nil does nothing
}

// newSeen returns the part of a view that the rights leave. looked may be nil.
func newSeen(v *view, rights *policy.Rights, rulings *rulings, looked func(*sight)) *seen {
	return &seen{rights: rights, guards: rights.Guards(), view: v, rulings: rulings, looked: looked}
}

// sight returns what the subject sees.
func (s *seen) sight() *sight {
	s.looking.Do(func() {
		if s.found = s.look(); s.looked != nil {
			s.looked(s.found)
		}
	})
	return s.found
}

// look finds out what the subject sees of the view: all of it, if it may use everything there.
func (s *seen) look() *sight {
	v := s.view
	places := make(bitset, len(v.offered))
	reached := make([]bool, len(v.stocks))
	for i, st := range v.stocks {
		its := places[v.begin[i]:v.begin[i+1]]
		st.visible(s.rights, its)
		if t := st.connect(v.bare); t != nil && s.sees(t) {
			its.set(t.place)
		}
		offered, items := false, false
		for k := range its {
			its[k] &= v.offered[v.begin[i]+k]
		}
		if s.guards.Pinned {
			for place, t := range st.face(v.bare).targets {
				if t != nil && t.held != "" {
					its.clear(place)
				}
			}
		}
		for k := range its {
			offered, items = offered || v.offered[v.begin[i]+k] != 0, items || its[k] != 0
		}
		reached[i] = items || reads(st.catalog) && s.reaches(st, policy.Resource)
		if !reached[i] && !offered { // it is down, or has nothing yet
			reached[i] = s.reaches(st, policy.Tool, policy.Prompt)
		}
	}
	if !slices.Contains(reached, false) && string(places) == string(v.offered) {
		return v.whole
	}
	return newSight(v, places, func(i int) bool { return reached[i] })
}

// reaches reports whether some item of an upstream's, of one of those kinds, might be visible.
func (s *seen) reaches(st *stock, kinds ...policy.Kind) bool {
	b := st.backend
	return slices.ContainsFunc(kinds, func(k policy.Kind) bool {
		return s.rights.Reaches(k, b.Name(), b.Config().Capabilities, st.making.names.full(prefixOf(b), ""))
	})
}

// sees reports whether a target of the view's is there for the subject.
func (s *seen) sees(t *target) bool {
	switch {
	case t.connects: // it is ours, and for all who may use anything there
		return s.reaches(t.stock, policy.Tool, policy.Prompt, policy.Resource)
	case s.guards.Pinned && t.held != "":
		return false
	}
	return s.ruling(t).Visible()
}

// named returns the tool or prompt of that name that the subject sees; nil for none. What it does
// not see makes the own name of another item no less sure.
func (s *seen) named(p upstream.Part, name string) *target {
	if t := s.view.exposed(p, name); t != nil && s.sees(t) {
		return t
	}
	sure, among := s.view.owners(p, name)
	if sure != nil && s.sees(sure) {
		return sure
	}
	if len(among) == 0 || s.sight().whole {
		return nil
	}
	var found *target
	for _, t := range among {
		if s.sees(t) {
			if found != nil {
				return nil
			}
			found = t
		}
	}
	return found
}

// ruling returns what policy says of a target: one of the view, or a resource that is in no list.
func (s *seen) ruling(t *target) *policy.Ruling { return s.rulings.of(s.rights, t) }

// policyItem is the target as policy sees it: by all names under which a rule may speak of it,
// which are the same on every endpoint.
func (t *target) policyItem() policy.Item {
	it := policy.Item{Kind: policy.Resource, Upstream: t.backend.Name(), Names: t.names, Requires: t.requires}
	switch t.part {
	case upstream.PartTools:
		it.Kind = policy.Tool
	case upstream.PartPrompts:
		it.Kind = policy.Prompt
	default:
		it.Names, it.Requires = []string{t.name, exposeURI(t.backend.Name(), t.name)}, t.backend.Config().Capabilities
	}
	return it
}

// permit decides about a call of the target. The error is what unknown returns, that of a thing
// that does not exist, where it is denied; or one of the request itself.
func (x *exchange) permit(t *target, info *CallInfo, unknown func() error) error {
	if err := x.decide(t, info); err != nil {
		return err
	}
	switch {
	case x.decision.Scopes != "":
		return x.stepUp(x.decision.Scopes)
	case x.decision.Verdict == policy.Deny:
		return unknown()
	}
	return nil
}

// decide finds out what policy says of a call of the target.
func (x *exchange) decide(t *target, info *CallInfo) error {
	info.Upstream, info.Own = t.backend.Name(), t.name
	g := x.share.ruling(t)
	var arguments raw.Object
	if g.Reads() {
		var err error
		if arguments, err = x.arguments(); err != nil {
			return err
		}
	}
	d, err := g.Decide(arguments)
	if err != nil {
		return err
	}
	x.decision = d
	info.Verdict, info.Policy, info.Rule, info.Missing = d.Verdict.String(), d.Policy, d.Rule, cmp.Or(d.Missing, d.Scopes)
	if d.Verdict == policy.Ask { // a person reads the arguments: what two readers may read in two ways is shown to nobody
		_, err = x.arguments()
	}
	return err
}

// arguments are those of a call, for who has to read them; absent when there are none. What is no
// object cannot be judged, and an upstream might read it all the same.
func (x *exchange) arguments() (raw.Object, error) {
	v, err := x.params.Get("arguments")
	switch {
	case err == raw.ErrAbsent, err == nil && string(v) == "null":
		return raw.Object{}, nil
	case err != nil:
		return raw.Object{}, err
	case v[0] != '{':
		return raw.Object{}, invalidParams("Invalid params: arguments is no object")
	}
	return x.params.Object("arguments")
}

// named returns the tool or prompt of that name; nil when there is none for the caller. Of one that
// it is denied the audit has what denies it.
func (x *exchange) named(p upstream.Part, name string, info *CallInfo) *target {
	info.Name = name
	if t := x.share.named(p, name); t != nil {
		if t.forApps && x.who.profile.UI == "" {
			return nil
		}
		return t
	}
	if t := x.endpoint.view.named(p, name); t != nil {
		x.decide(t, info) // an error would be about the arguments of a call that is not made
		info.Verdict = policy.Deny.String()
		if t.held != "" && x.share.guards.Pinned {
			info.Rule = "pinned"
		}
	}
	return nil
}

// scoped is permit for what has no arguments that policy reads: the error says which scopes the
// caller's token lacks, if it does.
func (x *exchange) scoped(t *target) error {
	if scopes := x.share.ruling(t).Scopes(); scopes != "" {
		return x.stepUp(scopes)
	}
	return nil
}

// stepUp is the refusal of what the caller may use with a token of more scopes: a client that is
// told so asks its person for one.
func (x *exchange) stepUp(scopes string) error {
	e := refuse(http.StatusForbidden, mcp.INVALID_REQUEST, "The token lacks a scope; needed are: %s", scopes)
	e.challenge = x.world.guard.Resources.StepUp(x.request.URL.Path, strings.Fields(scopes))
	return e
}

// fit takes out of what an upstream answered what policy does not let the caller read.
func (x *exchange) fit(r upstream.Result, err error) (upstream.Result, error) {
	if x.share.redact == nil {
		return r, err
	}
	if peer, ok := err.(*jsonrpc.Error); ok { // others are ours
		clean, _ := x.share.redact.Error(peer)
		return r, clean
	}
	if err == nil {
		if r.Object, _, err = x.share.redact.Result(r.Object); err != nil {
			err = x.invalid(err.Error())
		}
	}
	return r, err
}
