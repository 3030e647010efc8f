package proxy

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/redact"
	"junction/proxy/view"
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
	*view.SubjectView
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
			if other.Rights.Equal(rights) {
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
	s.SubjectView = view.NewSubjectView(e.view, rights, w.rulings, s.looked)
	var rules []redact.Rule
	for _, r := range s.Guards.Redactions {
		rules = append(rules, redact.Rule{Name: r.Name, Re: r.Re})
	}
	s.redact = redact.New(rules, s.Guards.Secrets)
	s.bytes = 300 + rights.Size() + 100*len(rules)
	return s
}

// looked counts the memory of a sight that was made.
func (s *subjectView) looked(made *view.Sight) {
	if s.room == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.bytes += made.Bytes(); s.refs > 0 {
		s.room.used += made.Bytes()
		s.room.trim()
	}
}

// private reports whether the lists are not what everybody sees.
func (s *subjectView) private() bool { return !s.local || !s.Sight().Whole }

// subject is a principal as policy sees it. What a client says of itself is not in it.
func subject(p *auth.Principal, surface string) policy.Subject {
	return policy.Subject{Kind: string(p.Kind), ID: p.ID, Key: p.Key, User: p.User, Issuer: p.Issuer, Email: p.Email, Groups: p.Groups, Scopes: p.Scopes,
		OAuthClient: p.OAuthClient, Address: p.Address, Surface: surface}
}

// permit decides about a call of the target. The error is what unknown returns, that of a thing
// that does not exist, where it is denied; or one of the request itself.
func (x *exchange) permit(t *view.Target, info *CallInfo, unknown func() error) error {
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
func (x *exchange) decide(t *view.Target, info *CallInfo) error {
	info.Upstream, info.Own = t.Backend.Name(), t.Name
	g := x.share.Ruling(t)
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
func (x *exchange) named(p upstream.Part, name string, info *CallInfo) *view.Target {
	info.Name = name
	if t := x.share.Named(p, name); t != nil {
		if t.ForApps && x.who.profile.UI == "" {
			return nil
		}
		return t
	}
	if t := x.endpoint.view.Named(p, name); t != nil {
		x.decide(t, info) // an error would be about the arguments of a call that is not made
		info.Verdict = policy.Deny.String()
		if t.Held != "" && x.share.Guards.Pinned {
			info.Rule = "pinned"
		}
	}
	return nil
}

// scoped is permit for what has no arguments that policy reads: the error says which scopes the
// caller's token lacks, if it does.
func (x *exchange) scoped(t *view.Target) error {
	if scopes := x.share.Ruling(t).Scopes(); scopes != "" {
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
