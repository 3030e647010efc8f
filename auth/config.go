package auth

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/upstream/loopback"
	"junction/upstream/yamlread"
)

// Config is the auth section of the file.
type Config struct {
	// The keys of clients. junction keys create makes a key with its entry.
	//
	// With any key, or any other way to authenticate, every request must authenticate. Without any,
	// every request is accepted, which is allowed on loopback only.
	APIKeys []Key `yaml:"api_keys" example:"[{ name: ci, hash: \"sha256:…\" }], as junction keys create prints them" change:"inside" members:"rolls"`
	// Authorization servers that sign their access tokens (JWT). Clients learn from Junction where
	// to sign in.
	//
	// Each issuer has one entry. Junction verifies the tokens itself.
	JWT []Issuer `yaml:"jwt" change:"inside" members:"steps"`
	// An authorization server for opaque tokens (RFC 7662). Junction asks it about each token that
	// neither Junction nor an issuer above has issued, and keeps positive answers for a minute at
	// most.
	Introspection *Introspection `yaml:"introspection" change:"inside" members:"steps"`
	// If given, a signed-in user holds only the capabilities that a scope of the token also gives.
	// A client that lacks one is told which scope to ask for.
	ScopeCapabilities map[string][]string `yaml:"scope_capabilities" example:"[web, files]" change:"call,both" members:"steps"`
	// The proxies whose X-Forwarded-For header Junction trusts; by default none. Name every proxy
	// in front. Otherwise all users share the address of the proxy, and with it the limits of
	// sign-ins by address.
	//
	// The address of a client is the last entry of the header outside of these networks.
	TrustedProxies []CIDR `yaml:"trusted_proxies" example:"[10.0.0.0/8]" change:"call,both" members:"rolls"`
	// Disputed are the trusted proxies of two files that disagree about them, while both decide. A request
	// whose address depends on the file is rejected. The reader of the file sets it; nil rejects none.
	Disputed []CIDR `yaml:"-"`
	// true states that Junction does not authenticate although a reverse proxy is in front, because
	// the proxy authenticates every request. Otherwise, without authentication, an https public_url
	// is a mistake. Requests of HTTP/1.0, and with headers of a proxy or a tunnel (Forwarded,
	// X-Forwarded*, Via, X-Real-IP, X-Client-IP, True-Client-IP, CF-*, Ngrok-*, Tailscale-*,
	// Fly-*), are refused. Default false.
	None bool `yaml:"none" change:"call,both" members:"hard"`
}

// Key is the configuration of one API key. Entries with the same name are one principal, so that a
// key can be replaced without interruption.
type Key struct {
	// The owner of the key, for policies and logs. Two entries with the same name are one client,
	// so that you can replace a key without a gap.
	//
	// 1 to 64 of A-Z, a-z, 0-9 and . _ - @. Required.
	Name string `yaml:"name" change:"call,neither"`
	// The hash of the key, as junction keys create prints it: "sha256:" and 64 hexadecimal digits.
	// The key itself must not be in the file. Required.
	Hash Hash `yaml:"hash" change:"call,neither"`
	// Valid from these networks only; by default from everywhere.
	CIDRs []CIDR `yaml:"cidrs" example:"[10.0.0.0/8]" change:"call,neither"`
	// For this key, only these endpoints exist: names of endpoints, mcp for /mcp, and mcp/NAME for
	// /mcp/NAME; by default all.
	Endpoints []string `yaml:"endpoints" example:"[web, mcp/memory]" change:"call,neither"`
	// The last day, in UTC, or a time such as 2027-06-30T12:00:00Z; by default never.
	Expires Moment `yaml:"expires" change:"call,neither"`
	// When an operator has confirmed a key that was revoked and is in the file again. It ends the warnings
	// about this key. By default never.
	Restored Moment `yaml:"restored" change:"call,waits"`
}

// Example returns the type in YAML.
func (Key) Example() string {
	return `{ name: ci, hash: "sha256:…" }`
}

// TokenRules are the requirements on tokens of an authorization server.
type TokenRules struct {
	// The issuer as its tokens contain it, byte for byte. Clients sign in there.
	//
	// An https URL, or http on loopback. Required.
	Issuer string `yaml:"issuer" change:"call,neither" members:"hard"`
	// The accepted audiences of tokens. A token for the URL of an endpoint is valid at that
	// endpoint only. A token for another name is valid at every endpoint. Required.
	Audiences []string `yaml:"audiences" example:"[https://mcp.example.com/mcp]" change:"call,neither" members:"hard"`
	// client_id if access tokens have no aud. Default aud.
	//
	// The claim with the audience.
	AudienceClaim string `yaml:"audience_claim" change:"call,neither" members:"rolls"`
	// Scopes that a token needs to connect at all; clients are told to ask for them.
	RequiredScopes []string `yaml:"required_scopes" example:"[mcp]" change:"call,neither" members:"rolls"`
	// Values that claims must have, such as the tenant. A list must contain the value.
	RequiredClaims map[string]string `yaml:"required_claims" change:"call,neither" members:"rolls"`
	// The path of a claim in the token, as a list of names. By default groups are in [groups].
	//
	// A name may contain dots and slashes.
	Claims Claims `yaml:"claims" change:"call,neither"`
}

// Issuer is the configuration of an authorization server with signed access tokens.
type Issuer struct {
	TokenRules `yaml:",inline"`
	// The URL of its keys; by default from the metadata of the issuer.
	//
	// The metadata is that of OpenID Connect or RFC 8414.
	JWKSURL string `yaml:"jwks_url" change:"call,neither" members:"rolls"`
	// The accepted signing algorithms. Default: RS256, ES256, PS256.
	Algorithms []string `yaml:"algorithms" example:"[RS256]" change:"call,neither" members:"rolls"`
	// How far its clock may be off. Default 60s.
	ClockSkew time.Duration `yaml:"clock_skew" change:"call,neither" members:"rolls"`
	// true: only tokens of the type at+jwt. Default false.
	RequireATJWT bool `yaml:"require_at_jwt" change:"call,neither" members:"rolls"`
}

// Example returns the type in YAML.
func (Issuer) Example() string {
	return "{ issuer: https://login.example.com, audiences: [https://mcp.example.com/mcp] }"
}

// Claims are the paths of values in a token. A path is a list of names, such as [realm_access,
// roles]; a name may contain dots and slashes.
type Claims struct {
	// The path of the user. Default [sub].
	Subject []string `yaml:"subject" example:"[realm_access, roles], the names that lead to the claim" members:"hard"`
	// The path of the user's groups. Default [groups].
	Groups []string `yaml:"groups" example:"[realm_access, roles], the names that lead to the claim" members:"rolls"`
}

func (c *Claims) subject() []string { return orElse(c.Subject, "sub") }
func (c *Claims) groups() []string  { return orElse(c.Groups, "groups") }

func orElse(list []string, other ...string) []string {
	if len(list) == 0 {
		return other
	}
	return list
}

func (i *Issuer) skew() time.Duration  { return cmp.Or(i.ClockSkew, time.Minute) }
func (i *Issuer) algorithms() []string { return orElse(i.Algorithms, "RS256", "ES256", "PS256") }

// Introspection is the configuration of an authorization server that is asked about each token (RFC
// 7662).
type Introspection struct {
	TokenRules `yaml:",inline"`
	// Its introspection endpoint. Required.
	Endpoint string `yaml:"endpoint" change:"call,neither" members:"rolls"`
	// Junction's client there. Required.
	ClientID string `yaml:"client_id" change:"call,neither" members:"rolls"`
	// The secret of client_id. Required.
	ClientSecret string `yaml:"client_secret" change:"call,waits" members:"rolls"`
}

// Example returns the type in YAML.
func (Introspection) Example() string {
	return "{ issuer: https://as.example.com, endpoint: https://as.example.com/introspect, … }"
}

// CIDR is a network, such as 10.0.0.0/8.
type CIDR struct{ netip.Prefix }

// UnmarshalText parses a network. It rejects ambiguous notations.
func (c *CIDR) UnmarshalText(text []byte) error {
	s := string(text)
	p, err := netip.ParsePrefix(s)
	if a, addressErr := netip.ParseAddr(s); err != nil && addressErr == nil && a.Zone() == "" {
		a = a.Unmap()
		return fmt.Errorf("must be a network; write %s/%d for this one address", a, a.BitLen())
	}
	switch {
	case err != nil:
		return errors.New("must be a network, such as 10.0.0.0/8 or 2001:db8::/32")
	case p.Addr().Is4In6():
		if p.Bits() < 96 {
			return errors.New("must be a network, such as 10.0.0.0/8 or 2001:db8::/32")
		}
		return fmt.Errorf("must be an IPv4 network in IPv4 notation; write %s",
			netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked())
	case p != p.Masked():
		return fmt.Errorf("the address has bits set after the first %d; write %s", p.Bits(), p.Masked())
	}
	c.Prefix = p
	return nil
}

// Moment is a time in the file: a day, which lasts to its end in UTC, or a time with its zone.
type Moment struct{ time.Time }

// UnmarshalText parses 2027-06-30 or 2027-06-30T12:00:00Z.
func (m *Moment) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		m.Time = day.AddDate(0, 0, 1)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("must be a day, such as 2027-06-30, or a time, such as 2027-06-30T12:00:00Z")
	}
	m.Time = t.UTC()
	return nil
}

// String formats the moment as in the file.
func (m Moment) String() string { return m.UTC().Format(time.RFC3339) }

// Validate returns the mistakes of a decoded section.
func (c *Config) Validate() []yamlread.Problem {
	var ps []yamlread.Problem
	add := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	if c.APIKeys != nil && len(c.APIKeys) == 0 { // removing the last key must not disable authentication
		add("api_keys", "is empty, which would disable authentication; add a key with junction keys create, or "+
			"remove the list")
	}
	first := map[Hash]int{}
	for i, k := range c.APIKeys {
		at := fmt.Sprintf("api_keys[%d]", i)
		if k.CIDRs != nil && len(k.CIDRs) == 0 {
			add(at+".cidrs", "is empty; name a network, or remove cidrs to allow all networks")
		}
		if k.Name == "" {
			add(at+".name", "is missing; name the holder of the key, such as ci")
		} else if !ValidName(k.Name) {
			add(at+".name", "must be 1 to %d of A-Z, a-z, 0-9 and . _ - @, such as ci", maxName)
		}
		if k.Hash == (Hash{}) {
			add(at+".hash", "is missing; get it from junction keys create for a new key, or from junction keys "+
				"hash for an existing one")
			continue
		}
		switch j, twice := first[k.Hash]; {
		case !twice:
			first[k.Hash] = i
		case c.APIKeys[j].Name == k.Name:
			add(at, "is a duplicate of api_keys[%d]; remove one of the two", j)
		default:
			add(at+".hash", "is also the hash of api_keys[%d]; give each holder a key of their own", j)
		}
	}
	c.validateServers(add)
	for i, p := range c.TrustedProxies {
		if p.IsValid() && p.Bits() == 0 {
			add(fmt.Sprintf("trusted_proxies[%d]", i), "would trust every client to set its own address; name the "+
				"addresses of your proxies")
		}
	}
	return ps
}

// validate checks the rules of a server at a path.
func (r *TokenRules) validate(at string, add func(path, format string, args ...any)) {
	if r.Issuer == "" {
		add(at+".issuer", "is missing; name the authorization server, such as https://login.example.com")
	} else if problem := RemoteProblem(r.Issuer); problem != "" {
		add(at+".issuer", "%s", problem)
	}
	if len(r.Audiences) == 0 {
		add(at+".audiences", "is missing; name the audience of tokens for this server, such as "+
			"https://mcp.example.com/mcp, so that tokens for other servers are rejected")
	}
	for i, a := range r.Audiences {
		if a == "" {
			add(fmt.Sprintf("%s.audiences[%d]", at, i), "is empty; name the audience of tokens for this server, "+
				"such as "+
				"https://mcp.example.com/mcp")
		}
	}
	for _, claim := range []struct {
		name string
		path []string
	}{{"subject", r.Claims.Subject}, {"groups", r.Claims.Groups}} {
		if slices.Contains(claim.path, "") {
			add(at+".claims."+claim.name, "has an empty name; write the path of the claim, such as "+
				"[realm_access, roles]")
		}
	}
	for i, s := range r.RequiredScopes {
		if !validScope(s) {
			add(fmt.Sprintf("%s.required_scopes[%d]", at, i), "must be one scope, such as mcp; write several as "+
				"several elements of the list")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.RequiredClaims)) {
		if r.RequiredClaims[name] == "" {
			add(at+".required_claims."+name, "is empty; write the value that the claim must have")
		}
	}
}

// validateServers checks the authorization servers.
func (c *Config) validateServers(add func(path, format string, args ...any)) {
	first := map[string]int{}
	for n := range c.JWT {
		i, at := &c.JWT[n], fmt.Sprintf("jwt[%d]", n)
		i.validate(at, add)
		if m, twice := first[i.Issuer]; twice && i.Issuer != "" {
			add(at+".issuer", "is also the issuer of jwt[%d]; write one entry for each issuer, with all its "+
				"audiences", m)
		} else {
			first[i.Issuer] = n
		}
		if problem := RemoteProblem(i.JWKSURL); i.JWKSURL != "" && problem != "" {
			add(at+".jwks_url", "%s", problem)
		}
		for k, a := range i.Algorithms {
			if !slices.Contains(asymmetric, jose.SignatureAlgorithm(a)) {
				add(fmt.Sprintf("%s.algorithms[%d]", at, k), "is not an asymmetric signature algorithm; "+
					"use some of RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512, EdDSA")
			}
		}
		if i.ClockSkew > maxSkew {
			add(at+".clock_skew", "would accept tokens that expired long ago; use at most %s", maxSkew)
		}
	}
	if i := c.Introspection; i != nil {
		const at = "introspection"
		i.validate(at, add)
		if i.Endpoint == "" {
			add(at+".endpoint", "is missing; name the introspection endpoint of the server")
		} else if problem := RemoteProblem(i.Endpoint); problem != "" {
			add(at+".endpoint", "%s", problem)
		}
		if i.ClientID == "" {
			add(at+".client_id", "is missing; the server answers only known clients")
		}
		if i.ClientSecret == "" {
			add(at+".client_secret", "is missing; refer to it as ${file:/path} or ${VAR}")
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(c.ScopeCapabilities)) {
		if !validScope(scope) {
			add("scope_capabilities."+scope, "is not a scope; write a scope, such as mcp, and the capabilities that "+
				"it allows")
		}
		if slices.Contains(c.ScopeCapabilities[scope], "") {
			add("scope_capabilities."+scope, "has an empty capability; want names of capabilities in policies")
		}
	}
}

const maxSkew = 5 * time.Minute

// SignsIn reports whether clients can sign in at an authorization server of another party.
func (c *Config) SignsIn() bool { return len(c.JWT) > 0 || c.Introspection != nil }

// Needed reports whether requests must authenticate.
func (c *Config) Needed() bool { return len(c.APIKeys) > 0 || c.SignsIn() }

// RemoteProblem returns what is wrong with the URL of an authorization server, or "".
func RemoteProblem(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" ||
		u.User != nil || u.Fragment != "":
		return "must be a URL, such as https://login.example.com"
	case u.Scheme == "http" && !loopback.Host(u.Hostname()):
		return "must be https, or http on loopback: over plain http an attacker could sign in as anyone"
	}
	return ""
}

// validScope reports whether s can be one scope (RFC 6749, section 3.3).
func validScope(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// Warnings returns likely mistakes at a public URL.
func (c *Config) Warnings(publicURL string) []yamlread.Problem {
	var ps []yamlread.Problem
	ours := canonical(publicURL)
	look := func(at string, audiences []string) {
		for i, a := range audiences {
			u, err := url.Parse(canonical(a))
			if err == nil && u.Host != "" && endpointPath(u.Path) &&
				(publicURL == "" || u.Scheme+"://"+u.Host != ours) {
				ps = append(ps, yamlread.Problem{Path: fmt.Sprintf("%s.audiences[%d]", at, i),
					Text: "is not an endpoint below public_url, so tokens with it are valid at all endpoints; " +
						"check both values"})
			}
		}
	}
	for i := range c.JWT {
		look(fmt.Sprintf("jwt[%d]", i), c.JWT[i].Audiences)
	}
	if c.Introspection != nil {
		look("introspection", c.Introspection.Audiences)
	}
	return ps
}

// Guard returns the Guard of a validated section at a public URL, without a Log. own verifies the
// tokens that this server issues, which begin with jct_at_; it is nil if there are none. If it is a
// Directory, it also refuses tokens of others. Entries that were there before keep their state in providers.
func (c *Config) Guard(providers *Providers, publicURL string, own Verifier) *Guard {
	g, keys := &Guard{}, providers.keyring(c.APIKeys)
	switch {
	case own != nil || c.SignsIn():
		t := providers.tokens(c, keys, own)
		g.Verifier, g.Resources = t, NewResources(publicURL, t.servers(publicURL), t.scopes())
		g.Resources.entries = t.entries()
	case len(c.APIKeys) > 0:
		g.Verifier = keys
	}
	for _, p := range c.TrustedProxies {
		g.TrustedProxies = append(g.TrustedProxies, p.Prefix)
	}
	for _, p := range c.Disputed {
		g.Disputed = append(g.Disputed, p.Prefix)
	}
	return g
}

const maxName = 64

// ValidName reports whether a key may have the name.
func ValidName(s string) bool { return isName(s, "._-@") }

// isName reports whether a text can be a name: letters, digits and the other characters.
func isName(s, others string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}
