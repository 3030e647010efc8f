package oauth

import (
	"fmt"
	"net/url"
	"strconv"
)

// Endpoints are what the metadata of an authorization server say of a sign-in.
type Endpoints struct {
	Authorization string `json:"authorization_endpoint"` // where the user signs in
	Token         string `json:"token_endpoint"`         // gets the code, the verifier and the client secret
	// NamesIssuer states that each answer names its issuer (RFC 9207). The receiver of the answer
	// must check that.
	NamesIssuer bool `json:"names_issuer"`
	// Vouched states that the origin of Authorization itself names Token: in metadata at its root or
	// inserted well-known place, whose issuer has this origin.
	Vouched bool `json:"vouched,omitempty"`
	// Home is the origin of an MCP server that names no authorization server, so that its own origin is
	// the authorization server (2025-03-26). Then nothing vouches for endpoints elsewhere.
	Home string `json:"home,omitempty"`
}

// Pair are the two endpoints that the operator permits; the zero value permits none.
type Pair struct{ Authorization, Token string }

// Check decides whether a code from Authorization may be sent to Token. The MCP server has named both,
// and may name the page of an honest server beside a token endpoint of its own, which would then redeem
// the code of the honest server (mix-up attack, RFC 9700, section 4.4). This is the order:
//
//  1. A pair of the configuration decides alone.
//  2. Endpoints of one origin are permitted.
//  3. A query of the authorization endpoint could name a request object (request_uri), and that a
//     redirect URI with an issuer of the attacker's choice. So nothing else permits it.
//  4. Vouched endpoints are permitted. The attacker cannot write at the root of the honest page.
//  5. Otherwise the answer must name the issuer (mustName): an honest page names its own issuer, or
//     none, and never the issuer of the attacker.
//
// The error is a *PairError if the sign-in must not begin.
func (e Endpoints) Check(permitted Pair) (mustName bool, err error) {
	if permitted != (Pair{}) {
		if permitted == (Pair{e.Authorization, e.Token}) {
			return false, nil
		}
		return false, &PairError{e, permitted}
	}
	home := e.Home == "" || SameOrigin(e.Authorization, e.Home) && SameOrigin(e.Token, e.Home)
	if home && SameOrigin(e.Authorization, e.Token) {
		return false, nil
	}
	if at, err := url.Parse(e.Authorization); err != nil || at.Host == "" || at.RawQuery != "" || at.ForceQuery {
		return false, &PairError{e, permitted}
	}
	if home && e.Vouched {
		return false, nil
	}
	return true, nil
}

// PairError means that the code of a sign-in would be sent to a host that may not belong to the
// server where the user signs in. No user was sent there.
type PairError struct {
	Endpoints
	Permitted Pair // by the configuration; the zero value if it names none
}

func (e *PairError) Error() string {
	text := fmt.Sprintf("users would sign in at %s, but %s would receive the code of the sign-in (mix-up attack)",
		host(e.Authorization), host(e.Token))
	if SameOrigin(e.Authorization, e.Token) {
		text = fmt.Sprintf("users would sign in at %s, and the server names no authorization server (RFC 9728)",
			host(e.Authorization))
	}
	if e.Permitted != (Pair{}) {
		text = fmt.Sprintf("users would sign in at %s and %s would receive the code, but the configuration permits "+
			"only %s with %s", e.Authorization, e.Token, e.Permitted.Authorization, e.Permitted.Token)
	}
	return text
}

// Line returns the configuration that permits the pair for an upstream.
func (e *PairError) Line(name string, u Upstream) string {
	return fmt.Sprintf("upstreams.%s.auth: { mode: %s, authorization_endpoint: %s, token_endpoint: %s }", name, u.Mode,
		strconv.Quote(e.Authorization), strconv.Quote(e.Token))
}

// remedy returns the error for the operator.
func (e *PairError) remedy(name string, u Upstream) error {
	return fmt.Errorf("%w; if both belong to one service, permit the pair in the configuration: %s", e, e.Line(name, u))
}

// forUser returns the error for a user, who cannot change the configuration.
func (e *PairError) forUser(name string, u Upstream) error {
	if u.Shared {
		return e.remedy(name, u) // the operator
	}
	return userError(e.remedy(name, u), "%s sends users to %s to sign in, but %s would get the result. These may be "+
		"different services, so the sign-in was refused. Only the operator of this server can permit it", name,
		host(e.Authorization), host(e.Token))
}

// Route are the hosts that take part in a sign-in, for the user to see before it begins.
type Route struct {
	SignIn string // where the user signs in
	Token  string // gets the code of the sign-in, and returns the tokens
	Server string // the upstream, which gets the access token

	// Unnamed is what permits the sign-in if the answer does not name its issuer, as it must; nil if it
	// need not.
	Unnamed *PairError
	// Notes are sentences for the operator: what is unusual about the server.
	Notes []string
}

// String returns the route in a sentence.
func (r Route) String() string {
	return fmt.Sprintf("You sign in at %s. Junction then gets an access token from %s, and sends it to %s with each "+
		"call.", r.SignIn, r.Token, r.Server)
}

// SameOrigin reports whether two URLs have the same scheme, host and port (RFC 6454).
func SameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && x.Host != "" && sameOrigin(x, y)
}
