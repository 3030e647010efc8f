package oauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ResourceNone is the Resource of an Upstream whose authorization server gets no resource indicator.
const ResourceNone = "none"

// indicator returns the resource indicator (RFC 8707) of all requests for a resource; "" for none.
func (u Upstream) indicator(resource string) string {
	switch u.Resource {
	case "":
		return resource
	case ResourceNone:
		return ""
	}
	return u.Resource
}

// attempt is stored while a user signs in at an authorization server.
type attempt struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"client_id"`
	Resource string   `json:"resource"`
	Instead  string   `json:"instead,omitempty"` // Upstream.Resource
	Scopes   []string `json:"scopes"`
	// The endpoints of the authorization server when the user was sent there. Later metadata do not
	// change where the code goes.
	Endpoints
	// The answer must name the issuer, although the metadata do not promise that.
	MustName bool `json:"must_name,omitempty"`

	params map[string]string // of the authorization request, from the configuration
	notes  []string          // for the operator
}

// Route returns the hosts of a sign-in at an upstream, the issuer, and the scopes to request. The
// error is a *UserError if it has a text for the user.
func (c *Client) Route(ctx context.Context, name string) (r Route, issuer string, scopes []string, err error) {
	u, _, a, err := c.prepare(ctx, name)
	if err != nil {
		return Route{}, "", nil, err
	}
	return a.route(u), a.Issuer, a.Scopes, nil
}

// indicator returns the parameter resource of all requests of the sign-in; "" for none.
func (a attempt) indicator() string { return Upstream{Resource: a.Instead}.indicator(a.Resource) }

func (a attempt) route(u Upstream) Route {
	r := Route{SignIn: host(a.Authorization), Token: host(a.Token), Server: host(u.URL), Notes: a.notes}
	if a.MustName && !a.NamesIssuer {
		r.Unnamed = &PairError{a.Endpoints, u.Permitted}
	}
	return r
}

// prepare returns the authorization server of an upstream, and what to request there. Of several
// authorization servers it returns the first that can be used.
func (c *Client) prepare(ctx context.Context, name string) (u Upstream, s *serverMetadata, a attempt, err error) {
	u, ok := c.Upstream(name)
	if !ok {
		return u, nil, a, userError(nil, "no server %s needs a connection", name)
	}
	p, err := c.discoverResource(ctx, name, u)
	if err != nil {
		return u, nil, a, err
	}
	issuers, home := p.issuersOf(u)
	var first error
	var spare *attempt // of the first that lacks only a registration
	var spared *serverMetadata
	for _, issuer := range issuers {
		s, a, err := c.at(ctx, name, u, p, issuer, home)
		switch {
		case isOutage(err): // must not change which server counts
			return u, nil, a, err
		case err != nil:
			first = keep(first, err)
		case len(issuers) == 1 || c.admits(ctx, name, u, s):
			c.note(name, a, nil)
			return u, s, a, nil
		case spare == nil:
			spare, spared = &a, s
		}
	}
	if spare != nil {
		c.note(name, *spare, nil)
		return u, spared, *spare, nil
	}
	c.note(name, a, first)
	return u, nil, a, first
}

func keep(first, err error) error {
	if first != nil {
		return first
	}
	return err
}

// note keeps what the operator is shown of a sign-in: the reason for Refused, if the sign-in was
// refused because of its endpoints, and the notes.
func (c *Client) note(name string, a attempt, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair, refused := errors.AsType[*PairError](err)
	if !a.MustName || refused { // otherwise the next answer decides
		delete(c.refused, name)
	}
	if refused {
		c.refused[name] = pair.remedy(name, c.upstreams[name]).Error()
	}
	if c.notes[name] = strings.Join(a.notes, "; "); c.notes[name] == "" {
		delete(c.notes, name)
	}
}

// at returns the metadata of one authorization server, and what to request there.
func (c *Client) at(ctx context.Context, name string, u Upstream, p *resourceMetadata, issuer, home string) (
	s *serverMetadata, a attempt, err error,
) {
	s, err = c.discoverServer(ctx, u, issuer)
	// Metadata at the origin of the upstream may name another authorization server. Only that one's own
	// metadata count.
	if other, is := errors.AsType[*otherIssuerError](err); is && home != "" && other.asked == issuer {
		s, err = c.discoverServer(ctx, u, other.stated)
	}
	if err != nil {
		return nil, a, err
	}
	a = attempt{Issuer: s.Issuer, Resource: p.Resource, Instead: u.Resource, params: u.Params,
		Endpoints: Endpoints{s.AuthorizationEndpoint, s.TokenEndpoint, s.IssParameter, s.vouched, home}}
	if u.OneOrigin && !(SameOrigin(s.Issuer, s.TokenEndpoint) && SameOrigin(s.AuthorizationEndpoint, s.TokenEndpoint)) {
		return nil, a, userError(nil, "the URLs of its authorization server are at several hosts")
	}
	if a.MustName, err = a.Check(u.Permitted); a.MustName && home == "" && !a.NamesIssuer {
		a.Vouched = c.pageVouches(ctx, u, s)
		a.MustName, err = a.Check(u.Permitted)
	}
	if pair, ok := errors.AsType[*PairError](err); ok {
		return nil, a, pair.forUser(name, u)
	}
	switch {
	case len(u.Scopes) > 0:
		a.Scopes = u.Scopes
	case len(p.challenged) > 0:
		a.Scopes = tokens(p.challenged...)
	default:
		a.Scopes = tokens(p.Scopes...)
	}
	if len(u.Scopes) == 0 && slices.Contains(s.Scopes, scopeOffline) && !slices.Contains(a.Scopes, scopeOffline) {
		a.Scopes = append(slices.Clone(a.Scopes), scopeOffline) // for a refresh token
	}
	if err := bounded(name, a.Scopes); err != nil {
		return nil, a, err
	}
	if text := p.differs(name, u); text != "" {
		a.notes = append(a.notes, text)
	}
	if text := s.unlisted(); text != "" {
		a.notes = append(a.notes, text)
	}
	return s, a, nil
}

// maxScopes limits the scopes of a sign-in, in bytes: they are stored, and shown on a page.
const maxScopes = 4 << 10

func bounded(name string, scopes []string) error {
	if n := len(strings.Join(scopes, " ")); n > maxScopes {
		return userError(fmt.Errorf("they have %d bytes, and at most %d are possible", n, maxScopes),
			"%s names too many scopes; the operator of this server can set auth.scopes", name)
	}
	return nil
}

// tokens returns the scopes in texts of a server. Other texts are left out, since pages show scopes to
// users (RFC 6749, section 3.3).
func tokens(texts ...string) []string {
	return slices.DeleteFunc(strings.Fields(strings.Join(texts, " ")), func(scope string) bool {
		return strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
	})
}

const scopeOffline = "offline_access"

// union returns the scopes, and each scope of more that they lack.
func union(scopes []string, more ...string) []string {
	scopes = slices.Clone(scopes)
	for _, scope := range more {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}
