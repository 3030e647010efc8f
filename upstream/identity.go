package upstream

import (
	"net/url"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/client"
	"junction/upstream/loopback"
	"junction/upstream/transport"
)

// This file is about identity: Junction signs who calls, and a server of one's own gets that with each call.

// IdentityHeader has the signed statement, a JWT.
const IdentityHeader = "Junction-Identity"

// Identity is the identity section of an upstream.
type Identity struct {
	// For whom the statement is (aud): a name or a URL that the server compares with its own.
	Audience string `yaml:"audience" example:"https://crm.example.com" change:"call,waits"`
	// What it has beside the caller (sub), if Junction knows it: email (verified), groups, client (of OAuth).
	Claims []IdentityClaim `yaml:"claims" json:",omitempty" change:"call,waits"`
}

// IdentityClaim is a claim about the caller, as a word of the file.
type IdentityClaim string

// The claims.
const (
	ClaimEmail  IdentityClaim = "email"
	ClaimGroups IdentityClaim = "groups"
	ClaimClient IdentityClaim = "client"
)

// Words returns the words of the file.
func (IdentityClaim) Words() []string {
	return []string{string(ClaimEmail), string(ClaimGroups), string(ClaimClient)}
}

// UnmarshalYAML reads the word.
func (i *IdentityClaim) UnmarshalYAML(n *yaml.Node) error {
	return oneOf(n, i, append([]string{""}, i.Words()...)...)
}

// Identified is who makes a call, by what Junction has verified.
type Identified struct {
	Subject string // the principal: user:ISSUER SUBJECT, service:ISSUER SUBJECT or key:NAME
	Email   string
	Groups  []string
	Client  string // the OAuth client of the user
}

// Signs reports whether the server gets a statement about its callers.
func (c Config) Signs() bool { return c.Identity.Audience != "" }

// of returns what the statement has of a caller.
func (i *Identity) of(caller Identified) Identified {
	has := func(claim IdentityClaim) bool { return slices.Contains(i.Claims, claim) }
	if !has(ClaimEmail) {
		caller.Email = ""
	}
	if !has(ClaimGroups) {
		caller.Groups = nil
	}
	if !has(ClaimClient) {
		caller.Client = ""
	}
	return caller
}

// signed returns the call with a statement about its caller; call itself if the server gets none, or if nobody is
// known to call. It is made for each attempt, because it is valid for a minute.
func (o *Options) signed(call *client.Call, c *Config, caller Identified) (*client.Call, error) {
	if !c.Signs() || o.Identity == nil || caller.Subject == "" {
		return call, nil
	}
	token, err := o.Identity(c.Identity.Audience, c.Identity.of(caller))
	if err != nil || token == "" {
		return call, err
	}
	own := *call
	own.Signed = []client.HeaderField{{Name: IdentityHeader, Value: token}}
	return &own, nil
}

const maxAudience = 512 // bytes

// validateIdentity checks the section. u is the URL.
func (c *Config) validateIdentity(u *url.URL, bad func(path, format string, args ...any)) {
	switch {
	case !c.Signs() && len(c.Identity.Claims) > 0:
		bad("identity", "needs audience: the name of the server, which it finds in each statement (aud)")
	case !c.Signs():
		return
	case len(c.Identity.Audience) > maxAudience || !transport.VisibleASCII(c.Identity.Audience):
		bad("identity.audience", "is a name or a URL of at most %d characters, without spaces", maxAudience)
	}
	for i, claim := range c.Identity.Claims {
		if slices.Contains(c.Identity.Claims[:i], claim) {
			bad("identity.claims", "%s occurs twice; remove one of the two", claim)
		}
	}
	if scheme, known := transport.SchemeOf(u); known && !scheme.Secure && !loopback.Host(u.Hostname()) {
		bad("identity", "needs an https url, because %s would expose who calls; %[1]s is allowed only for loopback",
			scheme.Word)
	}
	for k := range c.Headers {
		if strings.EqualFold(k, IdentityHeader) {
			bad("headers."+k, "has who calls (identity); remove one of the two")
		}
	}
}
