package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/credentials"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/prose"
)

// search looks for the reason why an endpoint has no item of a name.
type search struct {
	proxy          *Proxy
	who            policy.Subject
	endpoint, name string
	now            time.Time

	home  []string // the upstreams that the name belongs to; empty if the name has no known prefix
	names []string // of the items of these upstreams
	hints []string
}

// hints returns possible reasons why the endpoint has no item of that name.
func (p *Proxy) hints(who policy.Subject, endpoint, name string, now time.Time) []string {
	s := search{proxy: p, who: who, endpoint: endpoint, name: name, now: now}
	s.findHome()
	if _, is := p.Config().Upstreams[name]; is {
		s.hint("%s is a server, and no item of one; for its state, run: %s", name,
			config.Command(p.File, "status", name))
		s.home = []string{name}
		s.entries()
		s.server(name)
		s.reported()
		return s.hints
	}
	s.entries()
	var silent []string // upstreams whose tools are unknown
	for _, u := range p.Set.All() {
		if len(s.home) > 0 && !slices.Contains(s.home, u.Name()) {
			continue
		}
		s.upstream(u)
		if s := u.Status(); s.State != upstream.StateReady && s.State != upstream.StateClosed &&
			u.Catalog().Listed.IsZero() {
			silent = append(silent, u.Name())
		}
	}
	if len(s.hints) == 0 { // a mistyped separator hides the upstream that is meant
		s.similar()
	}
	s.silent(silent)
	if len(s.hints) == 0 {
		s.nothing()
	}
	s.reported()
	return s.hints
}

func (s *search) hint(format string, args ...any) {
	s.hints = append(s.hints, fmt.Sprintf(format, args...))
}

// findHome finds the upstreams whose prefix the name has: those with the longest prefix. On the
// endpoint of one upstream, each name is of that upstream.
func (s *search) findHome() {
	all, naming, longest := s.proxy.Config().Upstreams, s.proxy.Server.Snapshot().Config.Names, 1
	if _, single := all[s.endpoint]; single {
		s.home = []string{s.endpoint}
		return
	}
	for _, own := range slices.Sorted(maps.Keys(all)) {
		c := all[own]
		_, begin := naming.Expose(c.PrefixOr(own), "")
		if uri := "mcp://" + own + "/"; strings.HasPrefix(s.name, uri) {
			begin = uri
		}
		switch {
		case !strings.HasPrefix(s.name, begin) || len(begin) < longest:
		case len(begin) > longest:
			s.home, longest = []string{own}, len(begin)
		default:
			s.home = append(s.home, own)
		}
	}
}

// entries looks at the entries of the file that have no connection for all users.
func (s *search) entries() {
	all := s.proxy.Config().Upstreams
	for _, own := range s.home {
		c := all[own]
		switch {
		case c.Off():
			s.hint("%s is disabled; run: %s", own, config.Command(s.proxy.File, "enable", own))
		case c.Personal():
			row := c.Auth.Mode.Row()
			s.hint("%s", row.About(row.Why, own))
			if why := s.proxy.refusal(own); why != "" {
				s.hint("%s", why)
			}
			if !credentials.MayHave(row.Word, auth.Kind(s.who.Kind)) {
				s.hint("%s is not a user who can sign in there", s.who.ID)
			}
		}
	}
}

// upstream looks for the item in the catalog of an upstream.
func (s *search) upstream(u *upstream.Upstream) {
	c, catalog, naming := u.Config(), u.Catalog(), s.proxy.Server.Snapshot().Config.Names
	prefix := c.PrefixOr(u.Name())
	meant := func(own string) bool {
		exposed, full := naming.Expose(prefix, own)
		s.names = append(s.names, exposed)
		return s.name == own || s.name == full || s.name == exposed
	}
	for part := range upstream.Parts {
		for i := range catalog.Items(part) {
			own := catalog.Item(part, i).Name
			if part > upstream.PartPrompts && s.name != own || part <= upstream.PartPrompts && !meant(own) {
				continue
			}
			s.hidden(u, part, own)
		}
	}
	for _, left := range catalog.Left {
		if left.Name != "" && meant(left.Name) {
			s.hint("%s lists a %s of that name, and it is left out: %s", u.Name(), left.Part, left.Reason)
		}
	}
}

// hidden adds the reason why the endpoint does not offer an item of an upstream.
func (s *search) hidden(u *upstream.Upstream, part upstream.Part, own string) {
	c, name := u.Config(), u.Name()
	rule, ruled := upstream.Rule{}, false
	if part == upstream.PartTools {
		rule, ruled = c.Tools.Match(own)
	}
	elsewhere, _ := s.proxy.Server.Snapshot().Explain(s.who, name, own)
	switch {
	case rule.Off():
		s.hint("%s has it, and the file turns it off: the first glob in upstreams.%s.tools that matches %s has "+
			"enabled: false", name, name, own)
	case part == upstream.PartTools && !ruled && c.Expose.OnlyNamed():
		s.hint("%s has it, and the file names other tools only (expose: listed): add it to upstreams.%s.tools", name,
			name)
	case len(elsewhere) > 0 && name != s.endpoint:
		s.hint("%s has it, and offers it at %s as %s, but not here", name, EndpointPath(name), own)
	default:
		s.hint("%s has it, and it is not offered here", name)
	}
}

// silent adds the upstreams whose tools are unknown.
func (s *search) silent(names []string) {
	if len(names) > 1 {
		s.hint("these upstreams are not connected, so their tools are unknown: %s; run: %s",
			strings.Join(names, ", "), config.Command(s.proxy.File, "doctor"))
		return
	}
	for _, status := range s.proxy.Statuses() {
		if !slices.Contains(names, status.Name) {
			continue
		}
		text := fmt.Sprintf("%s is not connected, so its tools are unknown (%s for %s", status.Name, status.State,
			prose.Age(s.now.Sub(status.Since)))
		if status.Err != "" {
			text += ": " + status.Err
		}
		s.hint("%s)", text)
		if status.Advice != "" || status.State != upstream.StateSignIn { // the error names the sign-in
			s.hint("%s", cmp.Or(status.Advice, "run: "+config.Command(s.proxy.File, "doctor", status.Name)))
		}
	}
}

// reported adds the problems that the servers to which the name belongs have reported.
func (s *search) reported() {
	for _, status := range s.proxy.Statuses() {
		if !slices.Contains(s.home, status.Name) {
			continue
		}
		for _, r := range status.Reported {
			s.hint("%s reported a problem %s ago: %s", status.Name, prose.Age(s.now.Sub(r.At)), r.Text)
		}
	}
}

// server adds the state of a server.
func (s *search) server(name string) {
	for _, status := range s.proxy.Statuses() {
		switch {
		case status.Name != name:
		case status.State == upstream.StateReady || status.State == upstream.StateClosed:
			s.hint("%s is %s for %s, and has %s; why takes the name of one of them", name, status.State,
				prose.Age(s.now.Sub(status.Since)), prose.Count(status.Tools, "tool"))
		default:
			s.silent([]string{name})
		}
	}
}

// similar suggests similar names.
func (s *search) similar() {
	if near := prose.DidYouMean(s.names, s.name, ""); near != "" {
		s.hint("%s; %s", s.none(), near)
	}
}

// nothing says that nothing was found.
func (s *search) nothing() { s.hint("%s", s.none()) }

func (s *search) none() string {
	if len(s.home) == 1 {
		return s.home[0] + " has no item of that name"
	}
	return "nothing has that name"
}
