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
)

// Config is the file's auth section.
type Config struct {
	// APIKeys are the keys that clients may show. When there are any, or any other way to say who
	// one is, every request needs it; without, whoever reaches the address is let in, which must
	// then be on loopback.
	APIKeys []Key `yaml:"api_keys"`
	// JWT are authorization servers whose access tokens are signed, so that they can be verified
	// here. Each issuer has one entry.
	JWT []Issuer `yaml:"jwt"`
	// Introspection is an authorization server that is asked about each token that is neither ours
	// nor of JWT. Default: none.
	Introspection *Introspection `yaml:"introspection"`
	// ScopeCapabilities are the capabilities that each scope of a token gives. With it, a user or a
	// service holds only those of the capabilities that policies give which one of the token's
	// scopes gives too. Default: scopes take nothing away.
	ScopeCapabilities map[string][]string `yaml:"scope_capabilities"`
	// TrustedProxies are the networks of the proxies in front of us: a request from there comes
	// from the last address in its X-Forwarded-For that is in none of them.
	TrustedProxies []CIDR `yaml:"trusted_proxies"`
	// None true states that every request is let in on purpose, also one that came through a proxy:
	// the proxy authenticates. Without it, a file without authentication cannot have an https
	// public_url, and requests with headers of a proxy are refused.
	None bool `yaml:"none"`
}

// Key is what the file holds of one API key. Two entries of one name are one principal: that is how
// a key is replaced without a moment in which none is good.
type Key struct {
	Name string `yaml:"name"` // who has the key, for policies and logs: 1 to 64 of A-Z, a-z, 0-9 and . _ - @. Required.
	// "sha256:" and 64 hexadecimal digits, as junction keys create prints it. Required; the key
	// itself is in no file.
	Hash Hash `yaml:"hash"`
	// CIDRs are the networks that the key is good from. Default: all.
	CIDRs []CIDR `yaml:"cidrs"`
	// Expires is the last day on which the key is good, in UTC, or a moment. Default: never.
	Expires Moment `yaml:"expires"`
}

// TokenRules are what tokens of an authorization server have to be, and where in them things are.
type TokenRules struct {
	// Issuer is the authorization server as it calls itself, byte for byte: an https URL, or http
	// on loopback. Clients sign in there, and no token may name another one. Required.
	Issuer string `yaml:"issuer"`
	// Audiences are what its tokens may be for. That which is the URL of an endpoint of ours is
	// good there alone, another one everywhere. Required.
	Audiences []string `yaml:"audiences"`
	// AudienceClaim is the claim that says what a token is for. Default aud; client_id where access
	// tokens have no aud.
	AudienceClaim string `yaml:"audience_claim"`
	// RequiredScopes are what a token needs to be let in at all; clients are told to ask for them.
	RequiredScopes []string `yaml:"required_scopes"`
	// RequiredClaims are values that claims of a token must have, such as the tenant. A claim that
	// is a list must hold it.
	RequiredClaims map[string]string `yaml:"required_claims"`
	// Claims say where in a token things are.
	Claims Claims `yaml:"claims"`
}

// Issuer is what the file holds of an authorization server that signs its access tokens.
type Issuer struct {
	TokenRules `yaml:",inline"`
	// JWKSURL is where its keys are. Default: what its metadata says, which is found by OpenID
	// Connect or by RFC 8414.
	JWKSURL string `yaml:"jwks_url"`
	// Algorithms are those that its tokens may be signed with. Default: RS256, ES256, PS256.
	Algorithms []string `yaml:"algorithms"`
	// ClockSkew is how far its clock may be off. Default 60s.
	ClockSkew time.Duration `yaml:"clock_skew"`
	// RequireATJWT true takes only tokens whose header has the type at+jwt.
	RequireATJWT bool `yaml:"require_at_jwt"`
}

// Claims are where in a token things are. Each is a path: the names that lead to it, such as
// [realm_access, roles]; a name may hold dots and slashes.
type Claims struct {
	Subject []string `yaml:"subject"` // whose it is. Default [sub].
	Groups  []string `yaml:"groups"`  // the groups that the user is in. Default [groups].
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

// Introspection is what the file holds of an authorization server that is asked about each token
// (RFC 7662).
type Introspection struct {
	TokenRules `yaml:",inline"`
	// Endpoint is where it is asked. Required.
	Endpoint string `yaml:"endpoint"`
	// ClientID and ClientSecret are who we are there. Both are required.
	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret"`
}

// CIDR is a network of the file, such as 10.0.0.0/8.
type CIDR struct{ netip.Prefix }

// UnmarshalText reads a network. It refuses one that would not mean what it seems to.
func (c *CIDR) UnmarshalText(text []byte) error {
	s := string(text)
	p, err := netip.ParsePrefix(s)
	if a, addressErr := netip.ParseAddr(s); err != nil && addressErr == nil && a.Zone() == "" {
		a = a.Unmap()
		return fmt.Errorf("want a network; write %s/%d for this address alone", a, a.BitLen())
	}
	switch {
	case err != nil:
		return errors.New("want a network, such as 10.0.0.0/8 or 2001:db8::/32")
	case p.Addr().Is4In6():
		if p.Bits() < 96 {
			return errors.New("want a network, such as 10.0.0.0/8 or 2001:db8::/32")
		}
		return fmt.Errorf("IPv4 addresses are compared as such; write %s",
			netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked())
	case p != p.Masked():
		return fmt.Errorf("the address goes on after its first %d bits; write %s", p.Bits(), p.Masked())
	}
	c.Prefix = p
	return nil
}

// Moment is a point in time of the file: a day, which counts to its end in UTC, or a time with its
// zone.
type Moment struct{ time.Time }

// UnmarshalText reads 2027-06-30 or 2027-06-30T12:00:00Z.
func (m *Moment) UnmarshalText(text []byte) error {
	if day, err := time.Parse(time.DateOnly, string(text)); err == nil {
		m.Time = day.AddDate(0, 0, 1)
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("want a day, such as 2027-06-30, or a time, such as 2027-06-30T12:00:00Z")
	}
	m.Time = t.UTC()
	return nil
}

// String returns the moment as the file may have it.
func (m Moment) String() string { return m.UTC().Format(time.RFC3339) }

// Problem is one mistake of the section: where, such as api_keys[0].name, and what is wrong and
// would be right.
type Problem struct{ Path, Text string }

// Validate returns the mistakes of values that are well formed each.
func (c *Config) Validate() []Problem {
	var ps []Problem
	add := func(path, format string, args ...any) { ps = append(ps, Problem{path, fmt.Sprintf(format, args...)}) }
	if c.APIKeys != nil && len(c.APIKeys) == 0 { // who takes out the last key wants to let nobody in
		add("api_keys", "has no key, and so would not have anybody need one; make one with junction keys create, or "+
			"remove the list")
	}
	first := map[Hash]int{}
	for i, k := range c.APIKeys {
		at := fmt.Sprintf("api_keys[%d]", i)
		if k.CIDRs != nil && len(k.CIDRs) == 0 {
			add(at+".cidrs", "is an empty list; name a network, or remove the key if it is good everywhere")
		}
		if k.Name == "" {
			add(at+".name", "is missing; name who has the key, such as ci")
		} else if !ValidName(k.Name) {
			add(at+".name", "want 1 to %d of A-Z, a-z, 0-9 and . _ - @, such as ci", maxName)
		}
		if k.Hash == (Hash{}) {
			add(at+".hash", "is missing; junction keys create makes a key and prints it, junction keys hash prints "+
				"that of a key you have")
			continue
		}
		switch j, twice := first[k.Hash]; {
		case !twice:
			first[k.Hash] = i
		case c.APIKeys[j].Name == k.Name:
			add(at, "is api_keys[%d] again, name and hash; a second entry of one name is for a second key, so keep one",
				j)
		default:
			add(at+".hash", "is that of api_keys[%d] too, so that nobody could say whose the key is; give each its own",
				j)
		}
	}
	c.validateServers(add)
	for i, p := range c.TrustedProxies {
		if p.IsValid() && p.Bits() == 0 {
			add(fmt.Sprintf("trusted_proxies[%d]", i), "would let everybody say where they come from; name the "+
				"addresses of your proxies")
		}
	}
	return ps
}

// validate looks at what is said of a server, at a path.
func (r *TokenRules) validate(at string, add func(path, format string, args ...any)) {
	if r.Issuer == "" {
		add(at+".issuer", "is missing; name the authorization server, such as https://login.example.com")
	} else if problem := remoteProblem(r.Issuer); problem != "" {
		add(at+".issuer", "%s", problem)
	}
	if len(r.Audiences) == 0 {
		add(at+".audiences", "is missing; name what tokens for this server are for, such as "+
			"https://mcp.example.com/mcp: one for anybody else must not be good here")
	}
	for i, a := range r.Audiences {
		if a == "" {
			add(fmt.Sprintf("%s.audiences[%d]", at, i), "is empty; name what tokens for this server are for, such "+
				"as https://mcp.example.com/mcp")
		}
	}
	for _, claim := range []struct {
		name string
		path []string
	}{{"subject", r.Claims.Subject}, {"groups", r.Claims.Groups}} {
		if slices.Contains(claim.path, "") {
			add(at+".claims."+claim.name, "has an empty name; want the names that lead to the claim, such as "+
				"[realm_access, roles]")
		}
	}
	for i, s := range r.RequiredScopes {
		if !validScope(s) {
			add(fmt.Sprintf("%s.required_scopes[%d]", at, i), "want one scope, such as mcp; several are several "+
				"elements of the list")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.RequiredClaims)) {
		if r.RequiredClaims[name] == "" {
			add(at+".required_claims."+name, "is empty; write the value that the claim must have")
		}
	}
}

// validateServers looks at the authorization servers.
func (c *Config) validateServers(add func(path, format string, args ...any)) {
	first := map[string]int{}
	for n := range c.JWT {
		i, at := &c.JWT[n], fmt.Sprintf("jwt[%d]", n)
		i.validate(at, add)
		if m, twice := first[i.Issuer]; twice && i.Issuer != "" {
			add(at+".issuer", "is that of jwt[%d] too; write one entry for each issuer, with all its audiences", m)
		} else {
			first[i.Issuer] = n
		}
		if problem := remoteProblem(i.JWKSURL); i.JWKSURL != "" && problem != "" {
			add(at+".jwks_url", "%s", problem)
		}
		for k, a := range i.Algorithms {
			if !slices.Contains(asymmetric, jose.SignatureAlgorithm(a)) {
				add(fmt.Sprintf("%s.algorithms[%d]", at, k), "is none that others can check and nobody else can "+
					"make; want some of RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512, EdDSA")
			}
		}
		if i.ClockSkew > maxSkew {
			add(at+".clock_skew", "keeps tokens good that ended long ago; want at most %s", maxSkew)
		}
	}
	if i := c.Introspection; i != nil {
		const at = "introspection"
		i.validate(at, add)
		if i.Endpoint == "" {
			add(at+".endpoint", "is missing; name the URL where the server is asked about a token")
		} else if problem := remoteProblem(i.Endpoint); problem != "" {
			add(at+".endpoint", "%s", problem)
		}
		if i.ClientID == "" {
			add(at+".client_id", "is missing; the server answers only whom it knows")
		}
		if i.ClientSecret == "" {
			add(at+".client_secret", "is missing; keep it elsewhere, as ${file:/path} or ${VAR}")
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(c.ScopeCapabilities)) {
		if !validScope(scope) {
			add("scope_capabilities."+scope, "is no scope; want one, such as mcp, and the capabilities that it gives")
		}
		if slices.Contains(c.ScopeCapabilities[scope], "") {
			add("scope_capabilities."+scope, "has an empty capability; want the names that policies give")
		}
	}
}

const maxSkew = 5 * time.Minute

// SignsIn reports whether there is an authorization server of somebody else's that clients can sign
// in at.
func (c *Config) SignsIn() bool { return len(c.JWT) > 0 || c.Introspection != nil }

// Needed reports whether a request must say who it comes from.
func (c *Config) Needed() bool { return len(c.APIKeys) > 0 || c.SignsIn() }

// remoteProblem says what is wrong with the URL of an authorization server, if anything is.
func remoteProblem(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" ||
		u.User != nil || u.Fragment != "":
		return "want a URL, such as https://login.example.com"
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		return "want https: who changes what comes from there can let anybody in; http is for loopback alone"
	}
	return ""
}

func loopbackHost(name string) bool {
	a, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && a.Unmap().IsLoopback()
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

// Warnings returns what is no mistake, and most likely not meant, at a public URL.
func (c *Config) Warnings(publicURL string) []Problem {
	var ps []Problem
	ours := canonical(publicURL)
	look := func(at string, audiences []string) {
		for i, a := range audiences {
			u, err := url.Parse(canonical(a))
			if err == nil && u.Host != "" && endpointPath(u.Path) &&
				(publicURL == "" || u.Scheme+"://"+u.Host != ours) {
				ps = append(ps, Problem{fmt.Sprintf("%s.audiences[%d]", at, i), "is no endpoint below public_url, " +
					"so that such a token is good at all endpoints; is it, or public_url, as it should be?"})
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

// Guard returns the Guard of the section, which has been validated, at a public URL. It has no Log
// yet. own knows the tokens that begin with jct_at_, which we hand out ourselves at that URL; nil
// where we do not. What the providers know of entries that were there before stays.
func (c *Config) Guard(providers *Providers, publicURL string, own Verifier) *Guard {
	g := &Guard{}
	switch {
	case own != nil || c.SignsIn():
		t := providers.tokens(c, own)
		g.Verifier, g.Resources = t, NewResources(publicURL, t.servers(publicURL), t.scopes())
	case len(c.APIKeys) > 0:
		g.Verifier = Keys(c.APIKeys, nil)
	}
	for _, p := range c.TrustedProxies {
		g.TrustedProxies = append(g.TrustedProxies, p.Prefix)
	}
	return g
}

const maxName = 64

// ValidName reports whether a key may have the name.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("._-@", s[i]) < 0 {
			return false
		}
	}
	return true
}
