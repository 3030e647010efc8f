package provider

import (
	"github.com/coreos/go-oidc/v3/oidc"
	"gopkg.in/yaml.v3"
)

// Config is an entry of the file: an OpenID Connect provider at which the operator has registered this server.
type Config struct {
	// A part of the address to register at the provider: <public_url>/oauth/callback/<id>.
	// Required.
	//
	// 1 to 32 of a-z, 0-9 and -.
	ID string `yaml:"id" change:"call,neither"`
	// Shown to users. Default: the id.
	Name string `yaml:"name" change:"call,waits" members:"rolls"`
	// The issuer as the provider writes it, byte for byte. Required.
	//
	// https, or http on loopback.
	Issuer string `yaml:"issuer" change:"call,neither" members:"hard"`
	// Junction's client at the provider. Required.
	ClientID string `yaml:"client_id" change:"call,neither" members:"rolls"`
	// The secret of client_id, as a reference. Default: none, for a public client.
	ClientSecret string `yaml:"client_secret" change:"call,waits" members:"rolls"`
	// The scopes to ask the provider for; openid is required. Default: openid, profile, email,
	// offline_access.
	Scopes []string `yaml:"scopes" change:"call,waits" members:"rolls"`
	// The claims that together identify a user, and that the provider never gives to another user.
	// For Entra: [oid]. Default [sub].
	SubjectClaims []string `yaml:"subject_claims" example:"[sub]" change:"call,neither" members:"hard"`
	// The path of the groups in the token: [realm_access, roles] for Keycloak, [roles] for Entra.
	//
	// A path has the names of claims from the outside in; a name may contain dots and slashes.
	Claims Claims `yaml:"claims" change:"call,neither" members:"rolls"`
	// Only users whose claims have one of these values may sign in. For Google: { hd: example.com
	// }.
	RequiredClaims map[string]OneOf `yaml:"required_claims" change:"call,neither" members:"rolls"`
	// Only users with a verified e-mail address in these domains may sign in.
	EmailDomains []string `yaml:"email_domains" change:"call,neither" members:"rolls"`
	// Parameters of the authorization request. Google gives no refresh token without these.
	Parameters map[string]string `yaml:"parameters" change:"call,waits" members:"rolls"`
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
	// The path of the groups. Default [groups].
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
