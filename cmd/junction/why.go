package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/cmd/junction/prose"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
)

// This file answers why somebody sees an item, or does not, for /why of the admin address.
// why_command.go asks it, and shows the answer to a person.

// account is what /why says.
type account struct {
	As       string `json:"as"`       // the principal's id
	Endpoint string `json:"endpoint"` // its path
	Name     string `json:"name"`
	// why whoever that is gets no further than the door; "" when they are let in
	Refused string        `json:"refused,omitempty"`
	Items   []itemAccount `json:"items"` // that the name may mean there
	Hints   []string      `json:"hints"` // where there is none: what may be the matter
}

// itemAccount is about one item.
type itemAccount struct {
	Upstream string `json:"upstream"`
	Kind     string `json:"kind"`
	Own      string `json:"own_name"`
	Exposed  string `json:"name,omitempty"`
	Visible  bool   `json:"visible"`
	Listed   bool   `json:"listed"`
	Verdict  string `json:"verdict,omitempty"`    // of a call without arguments
	Reads    bool   `json:"depends_on_arguments"` // whether that of others may differ
	Held     string `json:"held,omitempty"`       // why a pinned policy holds it back
	Problem  string `json:"problem,omitempty"`    // why it is offered to nobody, or not to all clients
	State    string `json:"upstream_state"`
	Since    string `json:"upstream_since"`
	Error    string `json:"upstream_error,omitempty"`

	Reasons []reasonJSON `json:"reasons"`
	Advice  []string     `json:"advice"`
}

type reasonJSON struct {
	Missing  string `json:"missing,omitempty"` // a capability
	Scopes   string `json:"scopes,omitempty"`  // that a token needs, and theirs has not all of
	Layer    string `json:"layer,omitempty"`
	Policy   string `json:"policy,omitempty"`
	Enforced bool   `json:"enforced,omitempty"` // the policy
	Rule     string `json:"rule,omitempty"`
	Verdict  string `json:"verdict,omitempty"`
	Where    string `json:"where,omitempty"`
	Note     string `json:"note,omitempty"`
}

// question is what an operator wants to know.
type question struct {
	as, endpoint, name  string
	groups, scopes      []string
	email, issuer, from string
	oauthClient         string
}

func (q *question) query() url.Values {
	return url.Values{"as": {q.as}, "endpoint": {q.endpoint}, "name": {q.name}, "group": q.groups, "scope": q.scopes, "email": {q.email}, "issuer": {q.issuer},
		"from": {q.from}, "oauth_client": {q.oauthClient}}
}

func questionOf(v url.Values) question {
	return question{as: v.Get("as"), endpoint: v.Get("endpoint"), name: v.Get("name"), groups: v["group"], scopes: v["scope"], email: v.Get("email"),
		issuer: v.Get("issuer"), from: v.Get("from"), oauthClient: v.Get("oauth_client")}
}

// subject returns who is asked about. The error says what would be right.
func (q *question) subject() (policy.Subject, error) {
	s := policy.Subject{Groups: q.groups, Scopes: q.scopes, Email: q.email, Issuer: q.issuer, OAuthClient: q.oauthClient}
	if q.from != "" {
		address, err := netip.ParseAddr(q.from)
		if err != nil {
			return s, usagef("--from %q is no address; write it like 10.1.2.3", q.from)
		}
		s.Address = address.Unmap()
	}
	kind, rest, found := strings.Cut(q.as, ":")
	switch {
	case strings.Contains(q.as, "jct_"):
		return s, usagef("--as wants the name of the key, as in the file, and not the key itself")
	case q.as == "":
		return s, usagef("say for whom: --as NAME-OF-A-KEY, --as user:NAME or --as local")
	case q.as == "local":
		s.Kind, s.ID = string(auth.KindLocal), "local"
		if !s.Address.IsValid() {
			s.Address = auth.Local.Address
		}
	case !found:
		s.Kind, s.ID, s.Key = string(auth.KindKey), "key:"+q.as, q.as
	case kind == "key" && rest != "":
		s.Kind, s.ID, s.Key = string(auth.KindKey), q.as, rest
	case kind == "user" && rest != "":
		s.Kind, s.ID, s.User = string(auth.KindUser), q.as, rest
	default:
		return s, usagef("--as %q is nobody; write the name of a key, user:NAME or local", q.as)
	}
	return s, nil
}

// endpoints returns what the word may mean, as the proxy calls endpoints: "", an upstream's name,
// or the name of another one and a slash.
func endpoints(word string) []string {
	if u, err := url.Parse(word); err == nil && u.Host != "" {
		word = u.Path
	}
	word = strings.Trim(word, "/")
	switch rest, ok := strings.CutPrefix(word, "mcp/"); {
	case word == "" || word == "mcp":
		return []string{""}
	case ok:
		return []string{rest}
	}
	if name, ok := strings.CutSuffix(word, "/mcp"); ok {
		return []string{name + "/"}
	}
	return []string{word + "/", word}
}

// endpointPath is the path of an endpoint.
func endpointPath(endpoint string) string {
	if name, ok := strings.CutSuffix(endpoint, "/"); ok {
		return "/" + name + "/mcp"
	}
	return path.Join("/mcp", endpoint)
}

// explain answers the question. The error says what is wrong with it.
func (p *program) explain(q question, now time.Time) (account, error) {
	who, err := q.subject()
	if err != nil {
		return account{}, err
	}
	p.server.Settle()
	var found []proxy.Explanation
	endpoint, known := "", false
	for _, e := range endpoints(q.endpoint) {
		list, ok := p.server.Explain(who, e, q.name)
		if ok && known {
			return account{}, fmt.Errorf("%s may be %s or %s; write which", prose.Quote(q.endpoint), endpointPath(endpoint), endpointPath(e))
		}
		if ok {
			found, endpoint, known = list, e, true
		}
	}
	if !known {
		return account{}, fmt.Errorf("there is no endpoint %s; there is /mcp, /mcp/UPSTREAM for each upstream, and /NAME/mcp for each of endpoints", prose.Quote(q.endpoint))
	}
	a := account{As: who.ID, Endpoint: endpointPath(endpoint), Name: q.name, Refused: p.refused(&who, now), Items: []itemAccount{}, Hints: []string{}}
	statuses := map[string]upstream.Status{}
	for _, s := range p.statuses() {
		statuses[s.Name] = s
	}
	for i := range found {
		a.Items = append(a.Items, accountOf(&found[i], statuses[found[i].Upstream], who, now))
	}
	if len(found) == 0 {
		a.Hints = p.hints(who, endpoint, q.name, now)
	}
	return a, nil
}

// refused says why a subject is not let in at all; "" when it is, or when nothing can be said.
func (p *program) refused(who *policy.Subject, now time.Time) string {
	keys := p.keys.Load()
	switch {
	case keys == nil:
		return ""
	case who.Kind == string(auth.KindLocal) && len(*keys) > 0:
		return "nobody is local while there are API keys (auth.api_keys): every request needs one"
	case who.Kind != string(auth.KindKey):
		return ""
	}
	var names []string
	expired, elsewhere := false, false
	for _, k := range *keys {
		names = append(names, k.Name)
		if k.Name != who.Key {
			continue
		}
		switch within := slices.ContainsFunc(k.CIDRs, func(c auth.CIDR) bool { return c.Contains(who.Address) }); {
		case !k.Expires.IsZero() && !now.Before(k.Expires.Time):
			expired = true
		case who.Address.IsValid() && len(k.CIDRs) > 0 && !within:
			elsewhere = true
		default:
			return ""
		}
	}
	switch near := prose.Closest(names, who.Key); {
	case elsewhere:
		return fmt.Sprintf("%s is in none of the networks that the key is good from (cidrs)", who.Address)
	case expired:
		return "the key has expired (expires): junction keys create makes another one of the same name"
	case len(near) > 0:
		return fmt.Sprintf("there is no key of that name (auth.api_keys); did you mean %s?", near[0])
	}
	return "there is no key of that name (auth.api_keys)"
}

func accountOf(x *proxy.Explanation, s upstream.Status, who policy.Subject, now time.Time) itemAccount {
	a := itemAccount{
		Upstream: x.Upstream, Kind: x.Part.String(), Own: x.Own, Exposed: x.Exposed, Visible: x.Visible, Listed: x.Listed, Reads: x.Reads, Problem: x.Problem,
		State: s.State.String(), Since: s.Since.UTC().Format(time.RFC3339), Error: s.Err, Reasons: []reasonJSON{}, Advice: []string{},
	}
	if x.Exposed != "" { // something was decided
		a.Verdict = x.Verdict.String()
	}
	if x.Pinned {
		a.Held = x.Held
	}
	advise := func(format string, args ...any) { a.Advice = append(a.Advice, fmt.Sprintf(format, args...)) }
	allowed, denied := false, false
	for _, r := range x.Reasons {
		j := reasonJSON{Missing: r.Missing, Scopes: r.Scopes, Layer: r.Layer, Policy: r.Policy, Enforced: r.Enforced,
			Rule: r.Rule, Where: r.Where, Note: r.Note}
		if r.Rule != "" {
			j.Verdict = r.Verdict.String()
		}
		a.Reasons = append(a.Reasons, j)
		switch {
		case r.Missing != "":
			advise("give the capability %s to a policy that matches %s, or take it from what the item requires (upstreams.%s)", r.Missing, who.ID, x.Upstream)
		case r.Scopes != "":
			advise("a call is answered with what to ask for, so that the client can sign in again; --scope says what a token has (auth.scope_capabilities)")
		case r.Rule != "" && r.Verdict != policy.Deny:
			allowed = true
		case r.Rule != "" && r.Note == "" && !x.Visible:
			denied = true
			if r.Enforced {
				advise("%s of the policy %s denies it. The policy is enforced: no other policy can allow it; "+
					"change the rule, if it should not", r.Rule, r.Policy)
			} else {
				advise("%s of the policy %s denies it: change that, if it should not", r.Rule, r.Policy)
			}
		}
	}
	switch {
	case x.Exposed == "": // nobody has it there; the problem says what to do
	case x.Visible || allowed || denied:
	default:
		kind := "tools"
		switch x.Part {
		case upstream.PartPrompts:
			kind = "prompts"
		case upstream.PartResources, upstream.PartTemplates:
			kind = "resources"
		}
		advise("no rule allows it: add one to a policy that matches %s, such as allow: { %s: %q }", who.ID, kind, x.Exposed)
		if !who.Address.IsValid() {
			advise("policies that match a cidr were left aside: --from says where the requests come from")
		}
	}
	if a.Held != "" {
		advise("junction pins diff shows what has changed, and junction pins accept takes it")
	}
	switch s.State {
	case upstream.StateReady, upstream.StateClosed:
		if x.Visible && len(a.Advice) == 0 && x.Problem == "" {
			advise("a client that does not show it has an old list, or leaves tools out by itself: have it connect again")
		}
	default:
		advise("the upstream is not there: junction doctor %s says more", x.Upstream)
	}
	return a
}

// hints says what may be the matter with a name that means nothing on the endpoint.
func (p *program) hints(who policy.Subject, endpoint, name string, now time.Time) (hints []string) {
	hint := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	var names []string
	naming := p.server.Names()
	for own, u := range p.reach.Load().upstreams {
		if _, begin := naming.Expose(u.PrefixOr(own), ""); u.Personal() && strings.HasPrefix(name, begin) {
			hint("%s may have it: each person signs in there themselves, and sees what it has for them alone (upstreams.%s.auth)", own, own)
			if who.Kind != string(auth.KindUser) {
				hint("%s is no person who could sign in there", who.ID)
			}
		}
	}
	for _, u := range p.set.All() {
		c, catalog, s := u.Config(), u.Catalog(), u.Status()
		prefix := c.PrefixOr(u.Name())
		meant := func(own string) bool {
			exposed, full := naming.Expose(prefix, own)
			names = append(names, exposed)
			return name == own || name == full || name == exposed
		}
		for part := range upstream.Parts {
			for i := range catalog.Items(part) {
				own := catalog.Item(part, i).Name
				if part > upstream.PartPrompts && name != own || part <= upstream.PartPrompts && !meant(own) {
					continue
				}
				rule, ruled := upstream.Rule{}, false
				if part == upstream.PartTools {
					rule, ruled = c.Tools.Match(own)
				}
				other := u.Name()
				elsewhere, _ := p.server.Explain(who, other, own)
				switch {
				case rule.Off():
					hint("%s has it, and the file turns it off: the first glob in upstreams.%s.tools that matches %s says enabled: false", u.Name(), u.Name(), own)
				case part == upstream.PartTools && !ruled && c.Expose == upstream.ExposeListed:
					hint("%s has it, and the file names other tools only (expose: listed): add it to upstreams.%s.tools", u.Name(), u.Name())
				case len(elsewhere) > 0 && other != endpoint:
					hint("%s has it: it is at %s as %s, and not here", u.Name(), endpointPath(other), own)
				default:
					hint("%s has it, and it is not offered here", u.Name())
				}
			}
		}
		for _, left := range catalog.Left {
			if left.Name != "" && meant(left.Name) {
				hint("%s lists a %s of that name, and it is left out: %s", u.Name(), left.Part, left.Reason)
			}
		}
		if s.State != upstream.StateReady && s.State != upstream.StateClosed && catalog.Listed.IsZero() {
			text := fmt.Sprintf("%s may have it, and has said nothing yet (%s for %s", u.Name(), s.State, prose.Age(now.Sub(s.Since)))
			if s.Err != "" {
				text += ": " + s.Err
			}
			hint("%s); junction doctor %s says more", text, u.Name())
		}
	}
	if len(hints) == 0 {
		if near := prose.Closest(names, name); len(near) > 0 {
			hint("nothing has that name, for anybody; did you mean %s?", strings.Join(near, " or "))
		} else {
			hint("nothing has that name, for anybody")
		}
	}
	return hints
}

// serveWhy answers /why.
func (p *program) serveWhy(w http.ResponseWriter, r *http.Request) {
	q := questionOf(r.URL.Query())
	if q.name == "" {
		http.Error(w, "Say what is missed: name=…", http.StatusBadRequest)
		return
	}
	a, err := p.explain(q, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, http.StatusOK, a)
}
