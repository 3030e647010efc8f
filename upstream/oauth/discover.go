package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// finding is what was found out, and until when it is believed.
type finding struct {
	place  place
	server *server
	until  time.Time
}

// believed is for how long what an upstream and its authorization server say of themselves is not
// asked again.
const believed = 5 * time.Minute

// place is what an upstream says about signing in to it (RFC 9728).
type place struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`

	challenged []string // scopes that it has asked for, which count before Scopes
}

// server is what an authorization server says of itself (RFC 8414).
type server struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	Scopes                []string `json:"scopes_supported"`
	Challenges            []string `json:"code_challenge_methods_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	Documents             bool     `json:"client_id_metadata_document_supported"`
	IssParameter          bool     `json:"authorization_response_iss_parameter_supported"`
}

// hello is what makes an upstream say how to sign in: every server answers it, and one that wants a
// token refuses it.
const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"junction","version":"1"}}}`

var (
	metadataParameter = regexp.MustCompile(`(?i)(?:^|[\s,])resource_metadata\s*=\s*"([^"]*)"`)
	scopeParameter    = regexp.MustCompile(`(?i)(?:^|[\s,])scope\s*=\s*"([^"]*)"`)
)

// look asks an upstream where people sign in to it. The error is a *Problem.
func (c *Client) look(ctx context.Context, name string, u Upstream) (place, error) {
	v, err := c.find(ctx, "place "+name+" "+u.URL, func(ctx context.Context) (*finding, error) {
		p, err := c.place(ctx, name, u)
		return &finding{place: p}, err
	})
	if err != nil {
		return place{}, err
	}
	return v.place, nil
}

// describe asks an authorization server, which an upstream has named, what it is. The error is a
// *Problem.
func (c *Client) describe(ctx context.Context, u Upstream, issuer string) (*server, error) {
	v, err := c.find(ctx, "server "+u.URL+" "+issuer, func(ctx context.Context) (*finding, error) {
		s, err := c.metadata(ctx, u, issuer)
		return &finding{server: s}, err
	})
	if err != nil {
		return nil, err
	}
	return v.server, nil
}

// find finds something out unless it is known, once for all who want to know it now.
func (c *Client) find(ctx context.Context, key string, out func(context.Context) (*finding, error)) (*finding, error) {
	c.mu.Lock()
	f := c.known[key]
	c.mu.Unlock()
	if f != nil && c.Now().Before(f.until) {
		return f, nil
	}
	v, err, _ := c.once.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		f, err := out(ctx)
		if err != nil {
			return nil, err
		}
		f.until = c.Now().Add(believed)
		c.mu.Lock()
		c.known[key] = f
		c.mu.Unlock()
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*finding), nil
}

// place asks an upstream where people sign in to it (RFC 9728), as anybody would who has no token.
func (c *Client) place(ctx context.Context, name string, u Upstream) (place, error) {
	at, err := url.Parse(u.URL)
	if err != nil {
		return place{}, problem(err, "the address of %s is none", name)
	}
	r, err := http.NewRequest(http.MethodPost, u.URL, bytes.NewReader([]byte(hello)))
	if err != nil {
		return place{}, problem(err, "the address of %s is none", name)
	}
	r.Header.Set("Content-Type", "application/json")
	header, _, err := c.send(ctx, u, r)
	no, refused := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		return place{}, problem(nil, "%s lets everybody in without a sign-in; the operator of this server can "+
			"remove auth.mode from it", name)
	case !refused:
		return place{}, problem(err, "%s cannot be reached now", name)
	case no.status != http.StatusUnauthorized:
		return place{}, problem(err, "%s does not say where people sign in: it answers %d", name, no.status)
	}
	challenge := strings.Join(header.Values("WWW-Authenticate"), ", ")
	where := []string{ // RFC 9728, section 3.1
		at.Scheme + "://" + at.Host + "/.well-known/oauth-protected-resource" + strings.TrimSuffix(at.EscapedPath(),
			"/"), at.Scheme + "://" + at.Host + "/.well-known/oauth-protected-resource",
	}
	if m := metadataParameter.FindStringSubmatch(challenge); m != nil {
		to, err := at.Parse(m[1])
		if err != nil || !sameOrigin(at, to) || to.User != nil {
			return place{}, problem(err, "%s sends people to another server to find out where they sign in, which "+
				"is not done", name)
		}
		where = []string{to.String()}
	}
	p := place{}
	for _, w := range slices.Compact(where) {
		p = place{}
		if err = c.get(ctx, u, w, &p); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return place{}, problem(err, "%s does not say where people sign in", name)
	case !covers(p.Resource, u.URL):
		return place{}, problem(fmt.Errorf("its resource is %.200q", p.Resource), "%s says that it is another server",
			name)
	case len(p.Issuers) == 0:
		return place{}, problem(nil, "%s does not say where people sign in", name)
	}
	if m := scopeParameter.FindStringSubmatch(challenge); m != nil {
		p.challenged = strings.Fields(m[1])
	}
	return p, nil
}

// metadata reads what an issuer says of itself, at each place where it may (RFC 8414, section 3.1;
// OpenID Connect Discovery, section 4).
func (c *Client) metadata(ctx context.Context, u Upstream, issuer string) (*server, error) {
	at, err := url.Parse(issuer)
	if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" ||
		at.Scheme != "https" && at.Scheme != "http" {
		return nil, problem(fmt.Errorf("its issuer is %.200q", issuer), "the server says something else than where "+
			"people sign in")
	}
	origin, path := at.Scheme+"://"+at.Host, strings.TrimSuffix(at.EscapedPath(), "/")
	s := &server{}
	for _, w := range slices.Compact([]string{
		origin + "/.well-known/oauth-authorization-server" + path, origin + "/.well-known/openid-configuration" +
			path, origin + path + "/.well-known/openid-configuration",
	}) {
		s = &server{}
		if err = c.get(ctx, u, w, s); err == nil {
			break
		}
		if _, missing := errors.AsType[*refusal](err); !missing {
			break // it is not there, or must not be asked
		}
	}
	if err != nil {
		return nil, problem(err, "%s, where people sign in, cannot be asked now", at.Host)
	}
	switch {
	case s.Issuer != issuer: // RFC 8414, section 3.3
		return nil, problem(fmt.Errorf("it calls itself %.200q", s.Issuer), "%s, where people sign in, says that it "+
			"is another server", at.Host)
	case !slices.Contains(s.Challenges, "S256"):
		return nil, problem(nil, "%s, where people sign in, does not protect what it hands out (PKCE with S256)",
			at.Host)
	}
	for name, where := range map[string]string{"authorization": s.AuthorizationEndpoint, "token": s.TokenEndpoint} {
		if !endpointOf(at, where) {
			return nil, problem(fmt.Errorf("its %s endpoint is %.200q", name, where), "%s, where people sign in, "+
				"names an address that nobody is sent to", at.Host)
		}
	}
	for _, optional := range []*string{&s.RegistrationEndpoint, &s.RevocationEndpoint} {
		if !endpointOf(at, *optional) {
			*optional = ""
		}
	}
	return s, nil
}

// endpointOf reports whether an address can be one of an issuer's: https, or what the issuer is
// itself; and no bare IP address but the issuer's. Where names lead is looked at when they are
// dialled.
func endpointOf(issuer *url.URL, where string) bool {
	e, err := url.Parse(where)
	if err != nil || e.Host == "" || e.Opaque != "" || e.User != nil || e.Fragment != "" {
		return false
	}
	if sameOrigin(issuer, e) {
		return true
	}
	_, err = netip.ParseAddr(e.Hostname())
	return e.Scheme == "https" && err != nil && strings.Contains(e.Hostname(), ".")
}

// covers reports whether a resource is the upstream at the URL, or what it is a part of.
func covers(resource, at string) bool {
	r, err := url.Parse(resource)
	u, err2 := url.Parse(at)
	if err != nil || err2 != nil || r.User != nil || r.Fragment != "" || !sameOrigin(r, u) {
		return false
	}
	if r.RawQuery != "" {
		return r.RawQuery == u.RawQuery && r.EscapedPath() == u.EscapedPath()
	}
	above := strings.TrimSuffix(r.EscapedPath(), "/")
	rest, below := strings.CutPrefix(u.EscapedPath(), above)
	return below && (rest == "" || rest[0] == '/')
}

// sameOrigin compares scheme, host and port (RFC 6454).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" || u.Scheme != "https" && u.Scheme != "http" {
		return p
	}
	return map[string]string{"https": "443", "http": "80"}[u.Scheme]
}
