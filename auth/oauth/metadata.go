package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// serverMetadata is the metadata of an authorization server (RFC 8414).
type serverMetadata struct {
	Issuer                string      `json:"issuer"`
	AuthorizationEndpoint string      `json:"authorization_endpoint"`
	TokenEndpoint         string      `json:"token_endpoint"`
	RegistrationEndpoint  string      `json:"registration_endpoint"`
	RevocationEndpoint    string      `json:"revocation_endpoint"`
	Scopes                []string    `json:"scopes_supported"`
	Challenges            []string    `json:"code_challenge_methods_supported"` // nil if they are not listed
	AuthMethods           []string    `json:"token_endpoint_auth_methods_supported"`
	Algorithms            []string    `json:"token_endpoint_auth_signing_alg_values_supported"` // empty if they are not listed
	Aliases               mtlsAliases `json:"mtls_endpoint_aliases"`
	Documents             bool        `json:"client_id_metadata_document_supported"`
	IssParameter          bool        `json:"authorization_response_iss_parameter_supported"`

	// They are at the root of the origin of the authorization endpoint, or at an inserted place there.
	vouched bool
}

// otherIssuerError means that the metadata of an issuer name another one.
type otherIssuerError struct{ asked, stated string }

func (e *otherIssuerError) Error() string {
	text := "its metadata name the issuer " + whole(e.stated)
	if strings.Contains(e.stated, "{tenantid}") {
		return text + ", which stands for every tenant; set auth.issuer to the address of your tenant, such as " +
			"https://login.microsoftonline.com/TENANT/v2.0"
	}
	return text + "; if both belong to one service, set auth.issuer to the issuer whose metadata name itself"
}

// A wellKnown is a place of the metadata of an authorization server.
type wellKnown struct {
	url string
	// The place is the root of the origin or an inserted one. On a host that serves many tenants, a
	// tenant may be able to write below its own path.
	root bool
}

// places returns the places of the metadata of an issuer (RFC 8414, section 3.1; OpenID Connect
// Discovery, section 4).
func places(issuer *url.URL) (all []wellKnown) {
	origin, escaped := issuer.Scheme+"://"+issuer.Host, strings.TrimSuffix(issuer.EscapedPath(), "/")
	plain := plainPath(escaped)
	all = []wellKnown{{origin + "/.well-known/oauth-authorization-server" + escaped, plain},
		{origin + "/.well-known/openid-configuration" + escaped, plain}}
	if escaped != "" {
		all = append(all, wellKnown{origin + escaped + "/.well-known/openid-configuration", false})
	}
	return all
}

// plainPath reports whether all servers read an escaped path alike. A path with dot segments, or one that
// some servers unescape into such a path, leads out of the well-known place, to a document that a tenant
// of the host may have written.
func plainPath(escaped string) bool {
	return escaped == "" || escaped == path.Clean(escaped) && !strings.ContainsAny(escaped, "%;")
}

// discoverServer returns the metadata of an authorization server that an upstream named. The error
// is a *UserError.
func (c *Client) discoverServer(ctx context.Context, u Upstream, issuer string) (*serverMetadata, error) {
	key := strings.Join([]string{"server", u.URL, issuer, u.Issuer, u.ClientID, strconv.FormatBool(u.Own)}, " ")
	return cached(ctx, c, key, func(ctx context.Context) (*serverMetadata, error) {
		return c.fetchServer(ctx, u, issuer)
	})
}

// fetchServer fetches the metadata of an issuer.
func (c *Client) fetchServer(ctx context.Context, u Upstream, issuer string) (*serverMetadata, error) {
	at, err := parseIssuer(issuer)
	if err != nil {
		return nil, err
	}
	all := places(at)
	s, found, err := c.firstDocument(ctx, u, all)
	if err != nil && isMissing(err) && originOf(u.URL) == rootless(issuer) {
		s, err = assumed(rootless(issuer)), nil
	}
	if err != nil {
		return nil, userError(err, "the authorization server %s cannot be reached", at.Host)
	}
	if err := s.settleIssuer(u, issuer, at.Host); err != nil {
		return nil, err
	}
	if found < len(all) {
		c.complete(ctx, u, s, all[found+1:])
	}
	switch {
	case u.Own: // nobody signs in
		s.AuthorizationEndpoint = cmp.Or(s.AuthorizationEndpoint, s.TokenEndpoint)
	case slices.Contains(s.Challenges, "S256"):
	case s.Challenges != nil || u.ClientID == "" || !sameIssuer(u.Issuer, s.Issuer):
		return nil, userError(nil, "the authorization server %s does not support PKCE with S256", at.Host)
	}
	if err := s.settleEndpoints(at); err != nil {
		return nil, err
	}
	s.vouched = found < len(all) && all[found].root && SameOrigin(s.Issuer, s.AuthorizationEndpoint)
	return s, nil
}

// parseIssuer returns the URL of an issuer. The error is a *UserError.
func parseIssuer(issuer string) (*url.URL, error) {
	at, err := url.Parse(issuer)
	if err != nil || !plainURI(issuer) || !plainHost(at) || at.User != nil || at.RawQuery != "" || at.Fragment != "" ||
		at.Scheme != "https" && at.Scheme != "http" {
		return nil, userError(fmt.Errorf("the issuer is %s", whole(issuer)), "the server names an invalid "+
			"authorization server")
	}
	for segment := range strings.SplitSeq(at.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, userError(fmt.Errorf("the issuer is %s", whole(issuer)), "the server names an authorization "+
				"server whose path has dot segments")
		}
	}
	return at, nil
}

// settleIssuer checks that the metadata are the metadata of the issuer at host. The error is a *UserError.
func (s *serverMetadata) settleIssuer(u Upstream, issuer, host string) error {
	switch {
	case sameIssuer(s.Issuer, issuer): // RFC 8414, section 3.3
	case sameIssuer(u.Issuer, issuer) && forTenants(issuer, s.Issuer):
		s.Issuer = issuer // the operator has chosen the address for all tenants
		if !endpointsAt(issuer, s) {
			return userError(nil, "the authorization server %s has endpoints at another host", host)
		}
	default:
		return userError(&otherIssuerError{issuer, s.Issuer},
			"the authorization server %s publishes the metadata of another server", host)
	}
	return nil
}

// settleEndpoints checks the endpoints of an issuer, and drops optional ones that are not at the token
// endpoint's origin: they make a client for the token endpoint, and get its tokens and the client secret. The
// error is a *UserError.
func (s *serverMetadata) settleEndpoints(at *url.URL) error {
	for name, where := range map[string]string{"authorization": s.AuthorizationEndpoint, "token": s.TokenEndpoint} {
		if !endpointOf(at, where) {
			return userError(fmt.Errorf("the %s endpoint is %s", name, whole(where)),
				"the authorization server %s has an invalid endpoint", at.Host)
		}
	}
	for _, optional := range []*string{&s.RegistrationEndpoint, &s.RevocationEndpoint} {
		if !endpointOf(at, *optional) || !SameOrigin(*optional, s.TokenEndpoint) {
			*optional = ""
		}
	}
	if !endpointOf(at, s.Aliases.Token) { // another host is usual, since a host asks all for certificates, or nobody
		s.Aliases.Token = ""
	}
	return nil
}

// unlisted returns a sentence if the metadata do not list PKCE challenges. They were then accepted because
// of the configuration.
func (s *serverMetadata) unlisted() string {
	if s.Challenges != nil {
		return ""
	}
	return fmt.Sprintf("the authorization server %s does not list PKCE with S256; Junction uses it, because "+
		"auth.issuer and auth.client_id are configured", host(s.Issuer))
}

// firstDocument returns the first metadata of an authorization server that there are, and their place.
// The error is isMissing if there are none anywhere.
func (c *Client) firstDocument(ctx context.Context, u Upstream, all []wellKnown) (s *serverMetadata, found int,
	err error) {
	for i, place := range all {
		s = &serverMetadata{}
		if err = c.get(ctx, u, place.url, s); err == nil {
			return s, i, nil
		}
		if !isMissing(err) {
			return s, i, err // an outage must not change what counts
		}
	}
	return s, len(all), err
}

// complete adds the registration endpoint and the challenges of later documents to metadata that lack
// them. Some servers publish them in one of two documents only. The documents must name the same
// issuer and endpoints.
func (c *Client) complete(ctx context.Context, u Upstream, s *serverMetadata, later []wellKnown) {
	for _, place := range later {
		if s.Challenges != nil && (s.RegistrationEndpoint != "" || u.ClientID != "") {
			return
		}
		var other serverMetadata
		if err := c.get(ctx, u, place.url, &other); err != nil || other.Issuer != s.Issuer ||
			other.AuthorizationEndpoint != s.AuthorizationEndpoint || other.TokenEndpoint != s.TokenEndpoint {
			continue
		}
		if s.RegistrationEndpoint == "" {
			s.RegistrationEndpoint = other.RegistrationEndpoint
		}
		if s.Challenges == nil {
			s.Challenges = other.Challenges
		}
	}
}

// assumed returns the endpoints that every server had in 2025-03-26 ("Fallbacks for Servers without
// Metadata Discovery"), which demanded S256, too. They count only at the upstream's own origin.
func assumed(origin string) *serverMetadata {
	return &serverMetadata{Issuer: origin, AuthorizationEndpoint: origin + "/authorize",
		TokenEndpoint: origin + "/token", RegistrationEndpoint: origin + "/register", Challenges: []string{"S256"}}
}

// pageVouches reports whether the origin of the authorization endpoint publishes metadata that name the
// token endpoint: at its root, with an issuer of this origin. In a mix-up attack, the attacker cannot
// write there. An outage is no answer: it is not kept.
func (c *Client) pageVouches(ctx context.Context, u Upstream, s *serverMetadata) bool {
	vouches, err := cached(ctx, c, "page "+u.URL+" "+s.AuthorizationEndpoint+" "+s.TokenEndpoint,
		func(ctx context.Context) (*bool, error) { return c.askPage(ctx, u, s) })
	return err == nil && *vouches
}

func (c *Client) askPage(ctx context.Context, u Upstream, s *serverMetadata) (*bool, error) {
	page, err := url.Parse(s.AuthorizationEndpoint)
	if err != nil {
		return nil, err
	}
	own, _, err := c.firstDocument(ctx, u, places(&url.URL{Scheme: page.Scheme, Host: page.Host}))
	if isOutage(err) {
		return nil, err
	}
	vouches := err == nil && SameOrigin(own.Issuer, s.AuthorizationEndpoint) && own.TokenEndpoint == s.TokenEndpoint
	return &vouches, nil
}

// endpointsAt reports whether the endpoints are at the origin of an issuer.
func endpointsAt(issuer string, s *serverMetadata) bool {
	return SameOrigin(issuer, s.AuthorizationEndpoint) && SameOrigin(issuer, s.TokenEndpoint)
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

// errNoDocument means that a URL answered with a web page, or with nothing that is a JSON object.
var errNoDocument = errors.New("it answered with no JSON document")

// isMissing reports whether there is no document at a URL: it answered with an error of the client's
// request, with a redirect, or with a web page, as web applications do at every path. An outage (5xx,
// 429, no answer) tells nothing.
func isMissing(err error) bool {
	_, refused := errors.AsType[*errorAnswer](err)
	return refused || errors.Is(err, errNoDocument)
}

// originOf returns the scheme, the host and the port of a URL; "" if it is no URL.
func originOf(where string) string {
	u, err := url.Parse(where)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
