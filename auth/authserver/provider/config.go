package provider

import (
	"github.com/coreos/go-oidc/v3/oidc"
	"gopkg.in/yaml.v3"
)

// Config is an entry of the file: an OpenID Connect provider at which the operator has registered this server.
type Config struct {
	// part of the redirect URI to register: <public_url>/oauth/callback/<id>. 1 to 32 of a-z, 0-9
	// and -. Required.
	ID   string `yaml:"id" change:"call,neither"`
	Name string `yaml:"name" change:"call,waits"` // shown to users, such as Acme SSO. Default: the id.
	// its issuer, byte for byte as in its metadata. https, or http on loopback. Required.
	Issuer   string `yaml:"issuer" change:"call,neither"`
	ClientID string `yaml:"client_id" change:"call,neither"` // issued by the provider. Required.
	// issued by the provider; use a reference such as ${IDP_SECRET}. Default: none, for a public
	// client.
	ClientSecret string `yaml:"client_secret" change:"call,waits"`
	// Scopes are requested from the provider. They must contain openid. Default: openid, profile,
	// email, offline_access.
	Scopes []string `yaml:"scopes" change:"call,waits"`
	// SubjectClaims are the claims that together identify a user, and that are never reassigned,
	// such as [oid] of Entra. Default: [sub].
	SubjectClaims []string `yaml:"subject_claims" example:"[sub]" change:"call,neither"`
	Claims        Claims   `yaml:"claims" change:"call,neither"`
	// RequiredClaims restricts sign-in to users whose claim has one of the values: { tid: … } of
	// Entra, { hd: acme.example } of Google.
	RequiredClaims map[string]OneOf `yaml:"required_claims" change:"call,neither"`
	// EmailDomains restricts sign-in to users with a verified e-mail address in one of the domains.
	EmailDomains []string `yaml:"email_domains" change:"call,neither"`
	// Parameters are added to the authorization request. { access_type: offline, prompt: consent }
	// makes Google return a refresh token.
	Parameters map[string]string `yaml:"parameters" change:"call,waits"`
}

func (p Config) withDefaults() Config {
	if len(p.Scopes) == 0 {
		p.Scopes = []string{oidc.ScopeOpenID, "profile", "email", oidc.ScopeOfflineAccess}
	}
	if len(p.SubjectClaims) == 0 {
		p.SubjectClaims = []string{"sub"}
	}
	if len(p.Claims.Groups) == 0 {
		p.Claims.Groups = []string{"groups"}
	}
	return p
}

// Example returns the type in YAML.
func (Config) Example() string {
	return `{ id: sso, issuer: https://login.example.com, client_id: …, client_secret: "${IDP_SECRET}" }`
}

// Claims says where to find values in a token. Each value is a path of claim names, from the
// outside in; a name may contain dots and slashes.
type Claims struct {
	// Default: [groups].
	Groups []string `yaml:"groups" example:"[realm_access, roles], the names that lead to the claim"`
}

// OneOf is a value of the file, or a list of values.
type OneOf []string

// Shape returns what to decode a YAML node into, a pointer to a part of the value, or else the
// expected form of the node.
func (o *OneOf) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		return (*[]string)(o), ""
	}
	if n.Kind == yaml.ScalarNode {
		*o = make(OneOf, 1)
		return &(*o)[0], ""
	}
	return nil, "text, or a list such as [one, two]"
}
