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
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds what one subject may use of an endpoint. What policy denies it is not in its view, so that for this subject there is no such thing: not in a
// list, not by name, not in an error, and not in a notification.

// share is what one subject may use of an endpoint. It is immutable.
type share struct {
	rights  *policy.Rights
	guards  *policy.Guards
	limits  policy.Limits
	view    *view // of the endpoint, without what is denied
	rulings map[*target]*policy.Ruling
	private bool      // the lists are not what everybody sees
	redact  *redactor // nil when nothing is taken out
}

// shares are those of one world, or of one person in it, made when they are first asked for.
type shares struct {
	mu    sync.RWMutex
	of    map[shareKey]*share
	alike map[alikeKey][]*share // those that differ: principals who may do the same share one
	views map[viewKey]*view
}

// alikeKey is what subjects with equal rights may still differ in.
type alikeKey struct {
	endpoint string
	local    bool
}

// shareKey is what a share depends on, beside the world.
type shareKey struct {
	endpoint, principal string
	claims              uint64     // of a principal that has some beside its id
	address             netip.Addr // where policy asks for it
}

// viewKey tells what is left of an endpoint's view: subjects who see the same share one.
type viewKey struct{ endpoint, seen string }

// maxShares bounds those that are remembered; with more subjects they are made again.
const maxShares = 4096

// share returns what a principal may use of an endpoint.
func (w *world) share(e *endpoint, p *auth.Principal) *share {
	all := &w.shares
	if e.shares != nil {
		all = e.shares
	}
	key := shareKey{endpoint: e.name, principal: p.ID, claims: claims(p)}
	if w.policy.MatchesAddress() {
		key.address = p.Address
	}
	all.mu.RLock()
	s := all.of[key]
	all.mu.RUnlock()
	if s != nil {
		return s
	}
	rights, likes := w.policy.For(subject(p, e.surface)), alikeKey{e.name, p.Kind == auth.KindLocal}
	all.mu.RLock()
	alike := all.alike[likes]
	all.mu.RUnlock()
	for _, other := range alike {
		if other.rights.Equal(rights) {
			s = other
			break
		}
	}
	known := s != nil
	if !known {
		s = w.newShare(e, rights, likes.local)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if other := all.of[key]; other != nil {
		return other
	}
	if all.of == nil || len(all.of) >= maxShares {
		all.of, all.alike, all.views = map[shareKey]*share{}, map[alikeKey][]*share{}, map[viewKey]*view{}
	}
	if all.of[key] = s; known {
		return s
	}
	all.alike[likes] = append(all.alike[likes], s)
	seen := viewKey{e.name, s.seen(e.view)}
	if same := all.views[seen]; same != nil {
		s.view = same
	} else {
		all.views[seen] = s.view
	}
	return s
}

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

func (w *world) newShare(e *endpoint, rights *policy.Rights, local bool) *share {
	s := &share{rights: rights}
	s.guards, s.limits = s.rights.Guards(), s.rights.Limits()
	var rules []redaction
	for _, r := range s.guards.Redactions {
		rules = append(rules, redaction{r.Name, r.Re})
	}
	s.redact = newRedactor(rules, s.guards.Secrets)
	s.restrict(e.view, w.config.Names)
	s.private = s.view != e.view || !local
	return s
}

// subject is a principal as policy sees it. What a client says of itself is not in it.
func subject(p *auth.Principal, surface string) policy.Subject {
	return policy.Subject{Kind: string(p.Kind), ID: p.ID, Key: p.Key, User: p.User, Issuer: p.Issuer, Email: p.Email, Groups: p.Groups, Scopes: p.Scopes,
		OAuthClient: p.OAuthClient, Address: p.Address, Surface: surface}
}

// restrict makes the view that the rights leave of v: v itself if that is all of it.
func (s *share) restrict(v *view, names Names) {
	s.rulings = map[*target]*policy.Ruling{}
	whole := true
	reaches := func(k policy.Kind, b backend) bool {
		return s.rights.Reaches(k, b.Name(), b.Config().Capabilities, names.full(prefixOf(b), ""))
	}
	for p := range v.parts {
		for _, t := range v.parts[p].targets {
			g := s.rights.Bind(t.policyItem())
			visible := g.Visible() && !(s.guards.Pinned && t.held != "")
			if t.connects { // it is ours, and for all who may use anything there
				visible = reaches(policy.Tool, t.backend) || reaches(policy.Prompt, t.backend) || reaches(policy.Resource, t.backend)
			}
			if visible {
				s.rulings[t] = g
			} else {
				whole = false
			}
		}
	}
	reached := make([]bool, len(v.backends))
	for i, b := range v.backends {
		may := func(k policy.Kind) bool { return reaches(k, b) }
		reached[i] = reads(v.sources[i]) && may(policy.Resource)
		for t := range s.rulings {
			if reached[i] {
				break
			}
			reached[i] = t.backend == b
		}
		if !reached[i] && !offersItems(v, b) { // it is down, or has nothing yet
			reached[i] = may(policy.Tool) || may(policy.Prompt)
		}
		whole = whole && reached[i]
	}
	if s.view = v; !whole {
		s.view = v.restricted(func(t *target) bool { return s.rulings[t] != nil }, reached)
	}
}

// offersItems reports whether the view has an item of the upstream's.
func offersItems(v *view, b backend) bool {
	for p := range v.parts {
		if slices.ContainsFunc(v.parts[p].targets, func(t *target) bool { return t.backend == b }) {
			return true
		}
	}
	return false
}

// seen is a text that is the same for those who see the same of v.
func (s *share) seen(v *view) string {
	if s.view == v {
		return "all"
	}
	var b []byte
	for p := range v.parts {
		for _, t := range v.parts[p].targets {
			if s.rulings[t] != nil {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	for _, u := range v.backends {
		if slices.Contains(s.view.backends, u) {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return string(b)
}

// ruling returns what policy says of a target: one of the view, or a resource that is in no list.
func (s *share) ruling(t *target) *policy.Ruling {
	if g := s.rulings[t]; g != nil {
		return g
	}
	return s.rights.Bind(t.policyItem())
}

// policyItem is the target as policy sees it: by all names under which a rule may speak of it, which are the same on every endpoint.
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

// permit decides about a call of the target. The error is what unknown returns, that of a thing that does not exist, where it is denied; or one of the request itself.
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

// arguments are those of a call, for who has to read them; absent when there are none. What is no object cannot be judged, and an upstream might read it all the same.
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

// named returns the tool or prompt of that name; nil when there is none for the caller. Of one that it is denied the audit has what denies it.
func (x *exchange) named(p upstream.Part, name string, info *CallInfo) *target {
	info.Name = name
	if t := x.share.view.named(p, name); t != nil {
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

// scoped is permit for what has no arguments that policy reads: the error says which scopes the caller's token lacks, if it does.
func (x *exchange) scoped(t *target) error {
	if scopes := x.share.ruling(t).Scopes(); scopes != "" {
		return x.stepUp(scopes)
	}
	return nil
}

// stepUp is the refusal of what the caller may use with a token of more scopes: a client that is told so asks its person for one.
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
		clean, _ := x.share.redact.error(peer)
		return r, clean
	}
	if err == nil {
		if r.Object, _, err = x.share.redact.result(r.Object); err != nil {
			err = x.invalid(err.Error())
		}
	}
	return r, err
}
