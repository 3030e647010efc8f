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
	// Name is what pages call this server. Default: the host of public_url.
	Name string `yaml:"name" change:"restart"`
	// IdentityProviders are the providers that users sign in with. If there are several, users
	// choose one. Required.
	IdentityProviders []provider.Config `yaml:"identity_providers" change:"inside"`
	Clients           Clients           `yaml:"clients" change:"restart"`
	Tokens            Tokens            `yaml:"tokens" change:"restart"`
	Limits            Limits            `yaml:"limits" change:"restart"`
}

// Limits are the requests per second of one address: an IPv4 address, or a /64 of IPv6. All addresses
// together have 20 times as much. At once an address can send as much as in 40 seconds (Pages) or 20
// seconds (Tokens). Raise them if many users share an address.
type Limits struct {
	Pages int `yaml:"pages"` // that begin a sign-in or a registration: 1 to 1000. Default 5.
	// at the token endpoint, without a code or token of ours: 1 to 1000. Default 25. A client of a
	// user who has signed in has one token request per second, and 100 at once, whatever its
	// address.
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
	DCR  Registration `yaml:"dcr"`  // open: any client may register; off: none. Default open.
	CIMD CIMD         `yaml:"cimd"` // clients whose id is the URL of their metadata document
	// allowed private schemes of redirect URIs. Default: those of well-known editors.
	AllowedSchemes []string       `yaml:"allowed_schemes" example:"[cursor, vscode]"`
	Static         []StaticClient `yaml:"static"` // clients configured by the operator
}

// CIMD configures client ID metadata documents.
type CIMD struct {
	Trust Trust `yaml:"trust"` // any, allowlist or off. Default any.
	// Hosts are the allowed hosts of documents with trust: allowlist.
	Hosts []string `yaml:"hosts"`
	// StaticDocuments are files to read instead of fetching a document, by its URL.
	StaticDocuments map[string]string `yaml:"static_documents"`
}

// StaticClient is a configured client. It has no secret; PKCE protects its codes.
type StaticClient struct {
	ID           string   `yaml:"id"`                                                   // Required.
	Name         string   `yaml:"name"`                                                 // Default: the id.
	RedirectURIs []string `yaml:"redirect_uris" example:"[https://app.example.com/cb]"` // Required.
}

// Example returns the type in YAML.
func (StaticClient) Example() string {
	return "{ id: legacy-app, redirect_uris: [https://app.example.com/cb] }"
}

// Tokens are the lifetimes of codes, tokens and sign-ins.
type Tokens struct {
	// of an access token: 10m to 24h. Clients renew a token five minutes before it expires. Default
	// 1h.
	AccessTTL   time.Duration `yaml:"access_ttl"`
	RefreshTTL  time.Duration `yaml:"refresh_ttl"`  // without use. Default 720h.
	AbsoluteTTL time.Duration `yaml:"absolute_ttl"` // of a sign-in, even if it is used. Default 2160h.
	// ReuseInterval is how long a used refresh token gets the same answer again, for clients that
	// lost the answer or run twice: 0 to 10m. Default 60s.
	ReuseInterval *time.Duration `yaml:"reuse_interval"`
	// MaxAgeWithoutIDPRefresh limits a sign-in for which the provider issued no refresh token, so
	// that it cannot be rechecked. Default 24h.
	MaxAgeWithoutIDPRefresh time.Duration `yaml:"max_age_without_idp_refresh"`
	// IDPOutageGrace is how long a sign-in continues while the provider cannot be reached. Default
	// 24h.
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
	if r := t.ReuseInterval; r != nil && (*r < 0 || *r > 10*time.Minute) {
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
