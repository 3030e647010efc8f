package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/upstream/prose"
)

// cachedMetadata is metadata of an upstream (*resourceMetadata) or an authorization server
// (*serverMetadata).
type cachedMetadata struct {
	metadata any
	until    time.Time
}

// metadataTTL is how long metadata is cached.
const metadataTTL = 5 * time.Minute

// resourceMetadata is the protected resource metadata of an upstream (RFC 9728).
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`

	challenged []string // scopes of its challenge, which take precedence over Scopes
}

// serverMetadata is the metadata of an authorization server (RFC 8414).
type serverMetadata struct {
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

// initializeRequest makes an upstream answer with a challenge: every server answers it, and one
// that needs a token rejects it.
const initializeRequest = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` +
	`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"junction","version":"1"}}}`

var (
	metadataParameter = regexp.MustCompile(`(?i)(?:^|[\s,])resource_metadata\s*=\s*"([^"]*)"`)
	scopeParameter    = regexp.MustCompile(`(?i)(?:^|[\s,])scope\s*=\s*"([^"]*)"`)
)

// discoverResource returns the metadata of an upstream. The error is a *UserError.
func (c *Client) discoverResource(ctx context.Context, name string, u Upstream) (*resourceMetadata, error) {
	return cached(ctx, c, "place "+name+" "+u.URL, func(ctx context.Context) (*resourceMetadata, error) {
		return c.fetchResource(ctx, name, u)
	})
}

// discoverServer returns the metadata of an authorization server that an upstream named. The error
// is a *UserError.
func (c *Client) discoverServer(ctx context.Context, u Upstream, issuer string) (*serverMetadata, error) {
	return cached(ctx, c, "server "+u.URL+" "+issuer, func(ctx context.Context) (*serverMetadata, error) {
		return c.fetchServer(ctx, u, issuer)
	})
}

// cached returns metadata from the cache, or fetches it once for all concurrent callers.
func cached[T any](ctx context.Context, c *Client, key string, fetch func(context.Context) (*T, error)) (*T, error) {
	c.mu.Lock()
	known := c.cache[key]
	c.mu.Unlock()
	if c.Now().Before(known.until) {
		return known.metadata.(*T), nil
	}
	v, err, _ := c.flights.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		m, err := fetch(ctx)
		if err == nil {
			c.mu.Lock()
			c.cache[key] = cachedMetadata{m, c.Now().Add(metadataTTL)}
			c.mu.Unlock()
		}
		return m, err
	})
	return v.(*T), err
}

// fetchResource fetches the metadata of an upstream (RFC 9728), starting with a request without a
// token.
func (c *Client) fetchResource(ctx context.Context, name string, u Upstream) (*resourceMetadata, error) {
	r, err := http.NewRequest(http.MethodPost, u.URL, strings.NewReader(initializeRequest))
	if err != nil {
		return nil, userError(err, "the URL of %s is invalid", name)
	}
	at := r.URL
	r.Header.Set("Content-Type", "application/json")
	header, _, err := c.send(ctx, u, r)
	no, refused := errors.AsType[*errorAnswer](err)
	switch {
	case err == nil:
		return nil, userError(nil, "%s needs no sign-in; the operator of this server can remove its "+
			"auth.mode", name)
	case !refused:
		return nil, userError(err, "%s cannot be reached", name)
	case no.status != http.StatusUnauthorized:
		return nil, userError(err, "%s answered %d instead of asking for a sign-in", name, no.status)
	}
	challenge := strings.Join(header.Values("WWW-Authenticate"), ", ")
	wellKnown := at.Scheme + "://" + at.Host + "/.well-known/oauth-protected-resource" // RFC 9728, section 3.1
	where := []string{wellKnown + strings.TrimSuffix(at.EscapedPath(), "/"), wellKnown}
	if m := metadataParameter.FindStringSubmatch(challenge); m != nil {
		to, err := at.Parse(m[1])
		if err != nil || !sameOrigin(at, to) || to.User != nil {
			return nil, userError(err, "%s names metadata on another server, which is not allowed", name)
		}
		where = []string{to.String()}
	}
	var p *resourceMetadata
	for _, w := range slices.Compact(where) {
		p = new(resourceMetadata)
		if err = c.get(ctx, u, w, p); err == nil {
			break
		}
	}
	switch {
	case err != nil:
		return nil, userError(err, "%s does not publish where users sign in", name)
	case !covers(p.Resource, u.URL):
		return nil, userError(fmt.Errorf("the metadata names the resource %s", whole(p.Resource)),
			"%s publishes the metadata of another server", name)
	case len(p.Issuers) == 0:
		return nil, userError(nil, "%s does not publish where users sign in", name)
	}
	if m := scopeParameter.FindStringSubmatch(challenge); m != nil {
		p.challenged = strings.Fields(m[1])
	}
	return p, nil
}

// fetchServer fetches the metadata of an issuer from the well-known URLs (RFC 8414, section 3.1;
// OpenID Connect Discovery, section 4).
func (c *Client) fetchServer(ctx context.Context, u Upstream, issuer string) (*serverMetadata, error) {
	at, err := url.Parse(issuer)
	if err != nil || !plainURI(issuer) || !plainHost(at) || at.User != nil || at.RawQuery != "" || at.Fragment != "" ||
		at.Scheme != "https" && at.Scheme != "http" {
		return nil, userError(fmt.Errorf("the issuer is %s", whole(issuer)), "the server names an invalid "+
			"authorization server")
	}
	origin, path := at.Scheme+"://"+at.Host, strings.TrimSuffix(at.EscapedPath(), "/")
	s := &serverMetadata{}
	for _, w := range slices.Compact([]string{
		origin + "/.well-known/oauth-authorization-server" + path, origin + "/.well-known/openid-configuration" +
			path, origin + path + "/.well-known/openid-configuration",
	}) {
		s = &serverMetadata{}
		if err = c.get(ctx, u, w, s); err == nil {
			break
		}
		if _, missing := errors.AsType[*errorAnswer](err); !missing {
			break // only a missing document allows another attempt
		}
	}
	if err != nil {
		return nil, userError(err, "the authorization server %s cannot be reached", at.Host)
	}
	switch {
	case s.Issuer != issuer: // RFC 8414, section 3.3
		return nil, userError(fmt.Errorf("its metadata names the issuer %s", whole(s.Issuer)),
			"the authorization server %s publishes the metadata of another server", at.Host)
	case !slices.Contains(s.Challenges, "S256"):
		return nil, userError(nil, "the authorization server %s does not support PKCE with S256", at.Host)
	}
	for name, where := range map[string]string{"authorization": s.AuthorizationEndpoint, "token": s.TokenEndpoint} {
		if !endpointOf(at, where) {
			return nil, userError(fmt.Errorf("the %s endpoint is %s", name, whole(where)),
				"the authorization server %s has an invalid endpoint", at.Host)
		}
	}
	// They make a client for the token endpoint, and get its tokens and the client secret.
	for _, optional := range []*string{&s.RegistrationEndpoint, &s.RevocationEndpoint} {
		if !endpointOf(at, *optional) || !SameOrigin(*optional, s.TokenEndpoint) {
			*optional = ""
		}
	}
	return s, nil
}

// maxURI is the longest URL of an authorization server in bytes: it is stored, and is in errors.
const maxURI = 512

// plainURI reports whether a URL has only characters of RFC 3986. Errors show it as a line of the
// configuration, where ${NAME} would be a variable.
func plainURI(s string) bool {
	return len(s) <= maxURI && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r)
	})
}

// plainHost reports whether a URL has a host that users can read: only ASCII, as browsers show it
// (xn--). An escaped host (%D0%BE) would be shown in the letters of another script.
func plainHost(u *url.URL) bool {
	return u.Host != "" && !strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' })
}

// endpointOf reports whether a URL may be an endpoint of an issuer: on the same origin, or https
// with a host name. Addresses are checked when they are dialled.
func endpointOf(issuer *url.URL, where string) bool {
	e, err := url.Parse(where)
	if err != nil || !plainURI(where) || !plainHost(e) || e.Opaque != "" || e.User != nil || e.Fragment != "" {
		return false
	}
	if sameOrigin(issuer, e) {
		return true
	}
	_, err = netip.ParseAddr(e.Hostname())
	return e.Scheme == "https" && err != nil && strings.Contains(e.Hostname(), ".")
}

// endpoints returns what decides about a sign-in.
func (s *serverMetadata) endpoints() Endpoints {
	return Endpoints{Authorization: s.AuthorizationEndpoint, Token: s.TokenEndpoint, NamesIssuer: s.IssParameter}
}

// issuerOf returns the authorization server to use, of those that an upstream names. The error is a
// *UserError.
func (p *resourceMetadata) issuerOf(name string, u Upstream) (string, error) {
	if u.Issuer == "" || slices.Contains(p.Issuers, u.Issuer) {
		return cmp.Or(u.Issuer, p.Issuers[0]), nil
	}
	err := fmt.Errorf("it names %s, and upstreams.%s.auth.issuer is %q", whole(p.Issuers[0]), name, u.Issuer)
	return "", userError(err, "%s names another authorization server than the configuration", name)
}

// covers reports whether a resource is the URL of an upstream, or a parent of it.
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

// whole quotes a text of a server for an error.
func whole(text string) string { return prose.Whole(strconv.Quote(text), 200) }
