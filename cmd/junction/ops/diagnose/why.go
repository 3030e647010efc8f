package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/prose"
)

// WhyReport is the answer of /why: why a caller can or cannot see an item.
type WhyReport struct {
	As string `json:"as"` // the principal's id
	// of a user who was asked for by e-mail: the address, the last known groups, and their time
	Email  string    `json:"email,omitempty"`
	Groups []string  `json:"groups,omitempty"`
	Seen   time.Time `json:"seen,omitzero"`

	Endpoint string `json:"endpoint"` // its path
	Name     string `json:"name"`
	// why all requests of the caller are rejected; "" if they are not
	Refused string    `json:"refused,omitempty"`
	Items   []WhyItem `json:"items"` // the items that Name may mean
	Hints   []string  `json:"hints"` // possible reasons, if Items is empty
}

// WhyItem is about one item.
type WhyItem struct {
	Upstream string   `json:"upstream"`
	Kind     string   `json:"kind"`
	Own      string   `json:"own_name"`
	Exposed  string   `json:"name,omitempty"`
	Visible  bool     `json:"visible"`
	Listed   bool     `json:"listed"`
	Verdict  string   `json:"verdict,omitempty"`    // of a call without arguments
	Reads    bool     `json:"depends_on_arguments"` // whether Verdict depends on the arguments
	Held     string   `json:"held,omitempty"`       // why a pinned policy hides the item
	Cache    string   `json:"cache,omitempty"`      // the effect of the key cache on the tool
	Limits   string   `json:"limits,omitempty"`     // when a call of the item ends, and the keys that say so
	Changed  string   `json:"changed,omitempty"`    // how Junction has changed the definition, and why
	Sends    []string `json:"sends,omitempty"`      // what a call has beside the credential, without values
	Problem  string   `json:"problem,omitempty"`    // why the item is not offered, or not to all clients
	Folder   string   `json:"folder,omitempty"`     // in which folders calls of the item work
	NoFolder bool     `json:"no_folder,omitempty"`  // calls from a folder fail, because clients may name none
	State    string   `json:"upstream_state"`
	Since    string   `json:"upstream_since"`
	Error    string   `json:"upstream_error,omitempty"`

	// the other limits of the upstream that are set, and the keys that set them
	Bounds []upstream.Bound `json:"bounds,omitempty"`
	// how many calls the caller may make, of all tools together, and the policies that say so
	CallLimits []policy.Limiting `json:"call_limits,omitempty"`

	Reasons []WhyReason `json:"reasons"`
	Advice  []string    `json:"advice"`
}

// WhyReason is one reason for a decision about an item.
type WhyReason struct {
	Missing  string `json:"missing,omitempty"` // a capability
	Scopes   string `json:"scopes,omitempty"`  // the scopes that a token needs; the caller's lacks some of them
	Layer    string `json:"layer,omitempty"`
	Policy   string `json:"policy,omitempty"`
	Enforced bool   `json:"enforced,omitempty"` // whether the policy is enforced
	Rule     string `json:"rule,omitempty"`
	Verdict  string `json:"verdict,omitempty"`
	Where    string `json:"where,omitempty"`
	// the hints by which the rule selects the tool, as in the file
	Annotations string `json:"annotations,omitempty"`
	Note        string `json:"note,omitempty"`
	Unmet       string `json:"unmet,omitempty"` // the hint, or the lack of trust, for which the rule does not apply
	Place       string `json:"place,omitempty"` // the file and the line of the rule
	// Newer: the reason is of the newer file. A reload was refused in part, so that both files decide.
	Newer bool `json:"newer,omitempty"`
}

// WhyQuery is the query of /why: a caller, an endpoint and the name of an item.
type WhyQuery struct {
	As, Endpoint, Name  string
	Groups, Scopes      []string
	Email, Issuer, From string
	OAuthClient         string
}

// Values returns the query as parameters of /why.
func (q *WhyQuery) Values() url.Values {
	return url.Values{"as": {q.As}, "endpoint": {q.Endpoint}, "name": {q.Name}, "group": q.Groups, "scope": q.Scopes,
		"email": {q.Email}, "issuer": {q.Issuer},
		"from": {q.From}, "oauth_client": {q.OAuthClient}}
}

func queryOf(v url.Values) WhyQuery {
	return WhyQuery{As: v.Get("as"), Endpoint: v.Get("endpoint"), Name: v.Get("name"), Groups: v["group"],
		Scopes: v["scope"], Email: v.Get("email"),
		Issuer: v.Get("issuer"), From: v.Get("from"), OAuthClient: v.Get("oauth_client")}
}

// Subject returns the caller. The error contains the remedy. An e-mail address is taken for the
// name of a key; the running proxy finds the user.
func (q *WhyQuery) Subject() (policy.Subject, error) {
	s := policy.Subject{Groups: q.Groups, Scopes: q.Scopes, Email: q.Email, Issuer: q.Issuer,
		OAuthClient: q.OAuthClient}
	if q.From != "" {
		address, err := netip.ParseAddr(q.From)
		if err != nil {
			return s, fmt.Errorf("--from %q is no address; write it like 10.1.2.3", q.From)
		}
		s.Address = address.Unmap()
	}
	kind, rest, found := strings.Cut(q.As, ":")
	switch {
	case strings.Contains(q.As, "jct_"):
		return s, fmt.Errorf("--as takes the name of the key in the file, not the key itself")
	case q.As == "":
		return s, fmt.Errorf("the caller is missing; add --as NAME-OF-A-KEY, --as E-MAIL, --as user:NAME or --as local")
	case q.As == "local":
		s.Kind, s.ID = string(auth.KindLocal), "local"
		if !s.Address.IsValid() {
			s.Address = auth.Local.Address
		}
	case !found:
		s.Kind, s.ID, s.Key = string(auth.KindKey), "key:"+q.As, q.As
	case kind == "key" && rest != "":
		s.Kind, s.ID, s.Key = string(auth.KindKey), q.As, rest
	case kind == "user" && rest != "":
		s.Kind, s.ID, s.User = string(auth.KindUser), q.As, rest
	default:
		return s, fmt.Errorf("--as %q is not a caller; write the name of a key, an e-mail address, user:NAME or "+
			"local", q.As)
	}
	return s, nil
}

// endpoints returns the endpoints that a word may mean, as the proxy names them: "", the name of an
// upstream, or the name of an endpoint and a slash.
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

// EndpointPath returns the path of an endpoint.
func EndpointPath(endpoint string) string {
	if name, ok := strings.CutSuffix(endpoint, "/"); ok {
		return "/" + name + "/mcp"
	}
	return path.Join("/mcp", endpoint)
}

// explain answers a query. An error means that the query is invalid.
func (p *Proxy) explain(ctx context.Context, q WhyQuery, now time.Time) (WhyReport, error) {
	who, user, err := p.subject(ctx, &q)
	if err != nil {
		return WhyReport{}, err
	}
	p.Server.Settle()
	var found []view.Explanation
	endpoint, known := "", false
	for _, e := range endpoints(q.Endpoint) {
		list, ok := p.Server.Snapshot().Explain(who, e, q.Name)
		if ok && known {
			return WhyReport{}, fmt.Errorf("%s is ambiguous; write %s or %s", prose.Quote(q.Endpoint),
				EndpointPath(endpoint), EndpointPath(e))
		}
		if ok {
			found, endpoint, known = list, e, true
		}
	}
	if !known {
		for _, e := range endpoints(q.Endpoint) {
			if p.Config().Upstreams[e].Off() {
				return WhyReport{}, fmt.Errorf("the upstream %s is disabled; run: %s", e,
					config.Command(p.File, "enable", e))
			}
		}
		return WhyReport{}, fmt.Errorf("there is no endpoint %s; there is /mcp, /mcp/UPSTREAM for each upstream, and "+
			"/NAME/mcp for each of endpoints", prose.Quote(q.Endpoint))
	}
	a := WhyReport{As: who.ID, Endpoint: EndpointPath(endpoint), Name: q.Name, Refused: p.refused(&who, now),
		Items: []WhyItem{}, Hints: []string{}}
	if user != nil {
		a.Email, a.Groups, a.Seen = user.Principal.Email, who.Groups, user.Seen
		if user.Disabled {
			a.Refused = "the user is disabled; run: " + config.Command(p.File, "users", "enable", a.Email)
		}
	}
	if p.noKey(&who) {
		return a, nil // what a key of that name would see answers another question
	}
	statuses := map[string]upstream.Status{}
	for _, s := range p.Statuses() {
		statuses[s.Name] = s
	}
	if outside := p.outside(&who, endpoint); outside != "" {
		a.Hints = []string{fmt.Sprintf("%s does not exist for %s: %s", a.Endpoint, cmp.Or(a.Email, who.ID), outside)}
		return a, nil
	}
	for i := range found {
		status := p.stateFor(statuses[found[i].Upstream], &who)
		item := p.itemOf(&found[i], status, who, endpoint)
		if item.Visible {
			item.CallLimits = p.Server.Snapshot().Limiting(who, endpoint)
			item.Folder = p.foldersOf(&status, &who)
			item.NoFolder = p.noFolder(status.Name)
		}
		a.Items = append(a.Items, item)
	}
	p.placeRules(a.Items)
	if len(found) == 0 {
		a.Hints = p.hints(who, endpoint, q.Name, now)
	}
	undecided := func(x view.Explanation) bool { return p.undecided(&x) } // ruleAdvice says what the key lacks
	if p.leftOut(&who) && !slices.ContainsFunc(found, undecided) {
		a.Hints = append(a.Hints, fmt.Sprintf("no policy gives the key %s anything: its client gets an empty list, "+
			"or status 403; name the key in match.key of a policy", who.Key))
	}
	return a, nil
}

// leftOut reports whether the caller has an API key that no policy gives anything.
func (p *Proxy) leftOut(who *policy.Subject) bool {
	c := p.Config()
	return who.Key != "" && len(c.Policies.LeftOut([]string{who.Key}, c.Known())) > 0
}

// placeRules adds where the rules are in the configuration file, if the file is in force.
func (p *Proxy) placeRules(items []WhyItem) {
	if p.File == "" || p.Unread() != "" || len(items) == 0 {
		return
	}
	places := config.RulePlaces(p.File, os.LookupEnv)
	for i := range items {
		for k := range items[i].Reasons {
			r, n := &items[i].Reasons[k], 0
			_, err := fmt.Sscanf(r.Rule, "rules[%d]", &n)
			if of := places[r.Policy]; err == nil && n < len(of) {
				r.Place = of[n]
			}
		}
	}
}

// outside returns why the endpoint does not exist for a subject; "" if it may exist.
func (p *Proxy) outside(who *policy.Subject, endpoint string) string {
	word := strings.TrimSuffix(strings.TrimPrefix(EndpointPath(endpoint), "/"), "/mcp")
	keys := slices.DeleteFunc(slices.Clone(p.Config().Auth.APIKeys), func(k auth.Key) bool {
		return who.Kind != string(auth.KindKey) || k.Name != who.Key
	})
	permits := func(k auth.Key) bool { return k.Endpoints == nil || slices.Contains(k.Endpoints, word) }
	if len(keys) > 0 && !slices.ContainsFunc(keys, permits) {
		return "the endpoints of the key (auth.api_keys) do not contain " + word
	}
	return p.Server.Snapshot().Outside(*who, endpoint)
}

// subject returns the caller of a query, and the user if the query has an e-mail address.
func (p *Proxy) subject(ctx context.Context, q *WhyQuery) (policy.Subject, *authserver.KnownUser, error) {
	if c := p.Config(); q.As == "" && len(c.Auth.APIKeys) == 0 && !c.Auth.SignsIn() {
		q.As = "local" // the only caller there is
	}
	who, err := q.Subject()
	named := func(k auth.Key) bool { return k.Name == q.As }
	if err != nil || strings.Contains(q.As, ":") || !strings.Contains(q.As, "@") ||
		slices.ContainsFunc(p.Config().Auth.APIKeys, named) {
		return who, nil, err
	}
	if p.Users == nil {
		return who, nil, fmt.Errorf("users cannot sign in here (auth.oauth is not set); write --as user:NAME with " +
			"--group")
	}
	all, err := p.Users(ctx, q.As)
	if q.Issuer != "" {
		all = slices.DeleteFunc(all, func(u authserver.KnownUser) bool { return u.Principal.Issuer != q.Issuer })
	}
	switch {
	case err != nil:
		return who, nil, fmt.Errorf("cannot look up the user: %w", err)
	case len(all) == 0:
		return who, nil, fmt.Errorf("no user with the address %s has signed in; list them with junction users list, "+
			"or write --as user:NAME with --group",
			prose.Quote(q.As))
	case len(all) > 1:
		return who, nil, fmt.Errorf("%d users have the address %s; choose one by --issuer, such as %s", len(all),
			prose.Quote(q.As), all[0].Principal.Issuer)
	}
	found := scope.Subject(all[0].Principal, "")
	found.Address, found.Scopes, found.OAuthClient = who.Address, q.Scopes, q.OAuthClient
	if len(q.Groups) > 0 {
		found.Groups = q.Groups
	}
	return found, &all[0], nil
}

// refused returns why all requests of a subject are rejected, or "" if they are not or it is
// unknown.
func (p *Proxy) refused(who *policy.Subject, now time.Time) string {
	keys := p.Config().Auth.APIKeys
	switch {
	case who.Kind == string(auth.KindLocal) && len(keys) > 0:
		return "local access is disabled because API keys are configured (auth.api_keys)"
	case who.Kind != string(auth.KindKey):
		return ""
	}
	var names []string
	expired, elsewhere := false, false
	for _, k := range keys {
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
		return fmt.Sprintf("%s is in none of the networks of the key (cidrs)", who.Address)
	case expired:
		return "the key has expired (expires); create another one of the same name with junction keys create"
	case len(near) > 0:
		return fmt.Sprintf("there is no key of that name (auth.api_keys); did you mean %s?", near[0])
	}
	if len(keys) == 0 {
		how := "a user who signs in is --as user:NAME"
		if !p.Config().Auth.SignsIn() {
			how = "without authentication, the only caller is --as local"
		}
		return "there is no key of that name, because there are no API keys (auth.api_keys); " + how
	}
	return "there is no key of that name (auth.api_keys); list the keys: " + config.Command(p.File, "keys", "list")
}

// noKey reports whether a subject is a key that the configuration does not have.
func (p *Proxy) noKey(who *policy.Subject) bool {
	return who.Kind == string(auth.KindKey) && !slices.ContainsFunc(p.Config().Auth.APIKeys, func(k auth.Key) bool {
		return k.Name == who.Key
	})
}

// serveWhy answers /why.
func (p *Proxy) serveWhy(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r.URL.Query())
	if q.Name == "" {
		http.Error(w, "The parameter name is missing: name=…", http.StatusBadRequest)
		return
	}
	a, err := p.explain(r.Context(), q, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, http.StatusOK, a)
}
