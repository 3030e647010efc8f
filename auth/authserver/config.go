package authserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/upstream/yamlread"
)

// Config is the file's auth.oauth section: users sign in with the organisation's identity provider,
// and clients receive tokens of this server.
type Config struct {
	// The name of this server on pages; by default the host of public_url.
	Name string `yaml:"name" change:"restart" members:"rolls"`
	// The providers at which users sign in. If there are several, users choose. Required.
	IdentityProviders []provider.Config `yaml:"identity_providers" change:"inside" members:"steps"`
	// Which programs may ask users for access.
	Clients Clients `yaml:"clients" change:"restart" members:"rolls"`
	// How long sign-ins and tokens last.
	Tokens Tokens `yaml:"tokens" change:"restart" members:"rolls"`
	// Requests per second of one address (IPv4, or a /64 of IPv6). All addresses together have 20
	// times as much. Raise these if many users share an address. Browsers in which a user has
	// signed in do not count as strangers: of one address, they can open 20 times as many pages.
	//
	// At once an address can send as much as in 40 seconds (pages) or 20 seconds (tokens).
	Limits Limits `yaml:"limits" change:"restart" members:"rolls"`
}

// Limits are the requests per second of one address: an IPv4 address, or a /64 of IPv6. All addresses
// together have 20 times as much. At once an address can send as much as in 40 seconds (Pages) or 20
// seconds (Tokens). Raise them if many users share an address.
type Limits struct {
	// That begin a sign-in; 40 times as many at once. Default 5.
	//
	// 1 to 1000. A registration counts, too.
	Pages int `yaml:"pages"`
	// Of clients that show no code or token of Junction. Default 25.
	//
	// 1 to 1000. A client of a user who has signed in has one token request per second, and 100 at
	// once, whatever its address.
	Tokens int `yaml:"tokens"`
}

func (l Limits) validate() (ps []yamlread.Problem) {
	for name, n := range map[string]int{"pages": l.Pages, "tokens": l.Tokens} {
		if n < 0 || n > 1000 {
			ps = append(ps, yamlread.Problem{Path: "limits." + name,
				Text: fmt.Sprintf("%d is out of range; use 1 to 1000", n)})
		}
	}
	return ps
}

func (l Limits) withDefaults() Limits {
	return Limits{Pages: cmp.Or(l.Pages, 5), Tokens: cmp.Or(l.Tokens, 25)}
}

// Clients says which programs may ask users for access.
type Clients struct {
	// open: every client may register; a registration stores nothing. off: no client may register.
	// Default open.
	DCR Registration `yaml:"dcr"`
	// Clients that are known by a document on the web, which Junction fetches. A jwks_uri in it
	// must be on the same host. If Junction cannot reach the web, use trust: off: clients then
	// register instead.
	CIMD CIMD `yaml:"cimd"`
	// The private schemes that redirect URIs of clients may have. Default: those of well-known
	// editors.
	AllowedSchemes []string `yaml:"allowed_schemes" example:"[cursor, vscode]"`
	// Clients that you configure, which need no registration.
	Static []StaticClient `yaml:"static" members:"steps"`
}

// CIMD configures client ID metadata documents.
type CIMD struct {
	// any, allowlist (only the hosts) or off. Default any.
	Trust Trust `yaml:"trust"`
	// The hosts of documents with trust: allowlist.
	Hosts []string `yaml:"hosts"`
	// Files to read instead of a document on the web, by its URL.
	StaticDocuments map[string]string `yaml:"static_documents"`
}

// StaticClient is a configured client. It has no secret; PKCE protects its codes.
type StaticClient struct {
	// The client_id. Required.
	ID string `yaml:"id"`
	// The name on pages. Default: the id.
	Name string `yaml:"name" members:"rolls"`
	// Where users may be sent back to. Required.
	RedirectURIs []string `yaml:"redirect_uris" example:"[https://app.example.com/cb]" members:"rolls"`
}

// Example returns the type in YAML.
func (StaticClient) Example() string {
	return "{ id: legacy-app, redirect_uris: [https://app.example.com/cb] }"
}

// Tokens are the lifetimes of codes, tokens and sign-ins.
type Tokens struct {
	// At least 10m. A user who is disabled at the provider, or loses a group there, has access for
	// so long and two minutes at most. Back-channel logout of the provider ends it at once
	// (auth/README.md). Default 1h.
	//
	// At most 24h. Clients renew a token five minutes before it expires.
	AccessTTL time.Duration `yaml:"access_ttl"`
	// A sign-in ends after this time without use. Default 720h.
	RefreshTTL time.Duration `yaml:"refresh_ttl"`
	// A sign-in ends after this time in any case. Default 2160h.
	AbsoluteTTL time.Duration `yaml:"absolute_ttl"`
	// For this time, a refresh token that was used gets the same answer again. Default 60s.
	//
	// For clients that lost the answer or run twice; 0 to 10m.
	ReuseInterval *time.Duration `yaml:"reuse_interval"`
	// The longest sign-in if the provider gives no refresh token. Default 24h.
	//
	// Without a refresh token, Junction cannot ask the provider about the user again.
	MaxAgeWithoutIDPRefresh time.Duration `yaml:"max_age_without_idp_refresh"`
	// How long users stay signed in while the provider is away. Default 24h.
	IDPOutageGrace time.Duration `yaml:"idp_outage_grace"`
}

// Registration is the value of clients.dcr.
type Registration string

const (
	dcrOpen Registration = "open"
	dcrOff  Registration = "off"
)

// Words returns the words of the file.
func (Registration) Words() []string { return []string{string(dcrOpen), string(dcrOff)} }

// UnmarshalText rejects unknown values.
func (d *Registration) UnmarshalText(text []byte) error {
	if slices.Contains(d.Words(), string(text)) {
		*d = Registration(text)
		return nil
	}
	return errors.New("must be open or off")
}

// Trust is the value of clients.cimd.trust.
type Trust string

const (
	trustAny       Trust = "any"
	trustAllowlist Trust = "allowlist"
	trustOff       Trust = "off"
)

// Words returns the words of the file.
func (Trust) Words() []string {
	return []string{string(trustAny), string(trustAllowlist), string(trustOff)}
}

// UnmarshalText rejects unknown values.
func (t *Trust) UnmarshalText(text []byte) error {
	if slices.Contains(t.Words(), string(text)) {
		*t = Trust(text)
		return nil
	}
	return errors.New("must be any, allowlist or off")
}

var providerID = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$`)

// Validate returns the mistakes of a decoded section.
func (c *Config) Validate() []yamlread.Problem {
	var ps []yamlread.Problem
	add := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	if len(c.IdentityProviders) == 0 {
		add("identity_providers", "needs at least one provider for users to sign in with: "+
			`{ id: sso, issuer: https://…, client_id: …, client_secret: "${…}" }`)
	}
	c.validateProviders(add)
	ps = append(ps, c.Limits.validate()...)
	c.Clients.validate(add)
	c.Tokens.validate(add)
	return ps
}

func (c *Config) validateProviders(add func(path, format string, args ...any)) {
	ids := map[string]int{}
	for i, p := range c.IdentityProviders {
		at := fmt.Sprintf("identity_providers[%d]", i)
		switch j, twice := ids[p.ID]; {
		case !providerID.MatchString(p.ID):
			add(at+".id", "must be 1 to 32 of a-z, 0-9 and -, such as entra; it is part of the redirect URI that you "+
				"register")
		case twice:
			add(at+".id",
				"is also the id of identity_providers[%d]; give each provider its own id, since it is part of the "+
					"redirect URI", j)
		default:
			ids[p.ID] = i
		}
		if problem := issuerProblem(p.Issuer); problem != "" {
			add(at+".issuer", "%s", problem)
		}
		if p.ClientID == "" {
			add(at+".client_id", "is missing; the provider issues it when you register this server there")
		}
		if len(p.Scopes) > 0 && !slices.Contains(p.Scopes, "openid") {
			add(at+".scopes", "must contain openid, or the provider does not return who signed in")
		}
		for name := range p.Parameters {
			if slices.Contains(reservedParameters, name) {
				add(at+".parameters."+name, "is set by this server")
			}
		}
	}
}

func (c *Clients) validate(add func(path, format string, args ...any)) {
	for i, s := range c.AllowedSchemes {
		if at := fmt.Sprintf("clients.allowed_schemes[%d]", i); slices.Contains(forbiddenSchemes, s) || s == "http" ||
			s == "https" {
			add(at, "%s is never allowed, because its URLs run code or show content; remove it", s)
		} else if !privateScheme.MatchString(s) {
			add(at, "must be the name of a scheme in lower case and without ://, such as cursor")
		}
	}
	if c.CIMD.Trust == trustAllowlist && len(c.CIMD.Hosts) == 0 &&
		len(c.CIMD.StaticDocuments) == 0 {
		add("clients.cimd.hosts", "is missing; trust: allowlist rejects every client without it")
	}
	static := map[string]bool{}
	for i, s := range c.Static {
		at := fmt.Sprintf("clients.static[%d]", i)
		switch {
		case s.ID == "":
			add(at+".id", "is missing")
		case static[s.ID]:
			add(at+".id", "is a duplicate; give each client its own id")
		case strings.HasPrefix(s.ID, registeredPrefix) || strings.HasPrefix(s.ID, "https://"):
			add(at+".id", "must not start with dcr_ or https://, which clients use; choose another, such as legacy-app")
		}
		static[s.ID] = true
		c.validateRedirects(at, s.RedirectURIs, add)
	}
}

// validateRedirects reports the mistakes in the redirect URIs of a static client. The operator may configure
// a host that is not public.
func (c *Clients) validateRedirects(at string, uris []string, add func(path, format string, args ...any)) {
	if len(uris) == 0 {
		add(at+".redirect_uris", "is missing")
	}
	for j, uri := range uris {
		u, err := url.Parse(uri)
		if err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && !strings.Contains(uri, "#") {
			continue
		}
		if err := checkRedirect(uri, c.schemes()); err != nil {
			add(fmt.Sprintf("%s.redirect_uris[%d]", at, j), "%v", err)
		}
	}
}

func (t Tokens) validate(add func(path, format string, args ...any)) {
	within := func(path string, d, from, to time.Duration) {
		if d != 0 && (d < from || d > to) {
			add("tokens."+path, "%s is out of range; use %s to %s", shortDuration(d), shortDuration(from),
				shortDuration(to))
		}
	}
	within("access_ttl", t.AccessTTL, 10*time.Minute, 24*time.Hour)
	within("refresh_ttl", t.RefreshTTL, time.Hour, 8784*time.Hour)
	within("absolute_ttl", t.AbsoluteTTL, time.Hour, 8784*time.Hour)
	within("max_age_without_idp_refresh", t.MaxAgeWithoutIDPRefresh, 10*time.Minute, 8784*time.Hour)
	within("idp_outage_grace", t.IDPOutageGrace, time.Minute, 8784*time.Hour)
	if r := t.ReuseInterval; r != nil && (*r < 0 || *r > maxReuseInterval) {
		add("tokens.reuse_interval", "%s is out of range; use 0s to 10m", shortDuration(*r))
	}
	if w := t.withDefaults(); w.AbsoluteTTL < w.RefreshTTL && t.RefreshTTL != 0 {
		add("tokens.absolute_ttl", "is shorter than refresh_ttl; make it longer, or refresh_ttl shorter")
	}
}

// shortDuration formats a duration without trailing zero units.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (t Tokens) withDefaults() Tokens {
	t.AccessTTL = cmp.Or(t.AccessTTL, time.Hour)
	t.RefreshTTL = cmp.Or(t.RefreshTTL, 720*time.Hour)
	t.AbsoluteTTL = cmp.Or(t.AbsoluteTTL, 2160*time.Hour)
	t.MaxAgeWithoutIDPRefresh = cmp.Or(t.MaxAgeWithoutIDPRefresh, 24*time.Hour)
	t.IDPOutageGrace = cmp.Or(t.IDPOutageGrace, 24*time.Hour)
	if t.ReuseInterval == nil {
		minute := time.Minute
		t.ReuseInterval = &minute
	}
	return t
}

var privateScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]{1,40}$`)

func (c Clients) schemes() []string {
	if c.AllowedSchemes == nil {
		return defaultSchemes
	}
	return c.AllowedSchemes
}

// reservedParameters of an authorization request are set by this server, or would change the
// answer.
var reservedParameters = []string{
	"client_id", "redirect_uri", "response_type", "response_mode", "scope", "state", "nonce", "code_challenge",
	"code_challenge_method", "request", "request_uri",
}

func issuerProblem(issuer string) string {
	u, err := url.Parse(issuer)
	switch {
	case issuer == "":
		return "is missing; write the URL before /.well-known/openid-configuration"
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "must be a URL as in the provider's metadata, such as https://login.example.com"
	}
	return auth.RemoteProblem(issuer)
}
