package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// issuer verifies the signed tokens (JSON Web Tokens) of one authorization server (RFC 9068).
type issuer struct {
	claimRules
	keys       *keySet
	algorithms []string
	onlyAT     bool // require typ at+jwt
}

// asymmetric are the supported algorithms. Symmetric ones are not: a program that can check such a
// token can also make one.
var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
	jose.EdDSA,
}

var (
	errMalformedJWT = fmt.Errorf("%w: it is malformed", ErrInvalidToken)
	errAlgorithm    = fmt.Errorf("%w: its signature algorithm is not accepted", ErrInvalidToken)
	errCritical     = fmt.Errorf("%w: it has a critical header that is not supported", ErrInvalidToken)
	errType         = fmt.Errorf("%w: it is not an access token", ErrInvalidToken)
	errIDToken      = fmt.Errorf("%w: it is an ID token; send the access token", ErrInvalidToken)
	errNoExpiry     = fmt.Errorf("%w: it has no expiry (exp)", ErrInvalidToken)
)

// newIssuer returns the issuer of a validated configuration entry.
func newIssuer(c *Issuer, p *Providers) *issuer {
	i := &issuer{
		claimRules: newRules(c.TokenRules, fingerprint(c), p.now),
		keys:       &keySet{issuer: c.Issuer, fixed: c.JWKSURL, p: p},
		algorithms: c.algorithms(),
		onlyAT:     c.RequireATJWT,
	}
	i.skew = c.skew()
	return i
}

// issuerOf returns the unverified issuer of a signed JSON Web Token.
func issuerOf(token string) (string, bool) {
	head, rest, ok := strings.Cut(token, ".")
	payload, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || head == "" || strings.Contains(signature, ".") {
		return "", false
	}
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", false
	}
	var c claims
	if json.Unmarshal(text, &c) != nil {
		return "", false
	}
	iss, err := c.text("iss")
	return iss, err == nil && iss != ""
}

// verify returns the principal of a token.
func (i *issuer) verify(ctx context.Context, token string, hash Hash) (*Principal, error) {
	jws, err := jose.ParseSignedCompact(token, asymmetric)
	if unlisted, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok && unlisted != nil {
		return nil, errAlgorithm
	}
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errMalformedJWT
	}
	if err := i.header(jws.Signatures[0].Header); err != nil {
		return nil, err
	}
	payload, key, err := i.keys.verify(ctx, jws, i.skew)
	if err != nil {
		return nil, err
	}
	var c claims
	if json.Unmarshal(payload, &c) != nil {
		return nil, errMalformedJWT
	}
	if iss, err := c.text("iss"); err != nil || iss != i.Issuer {
		return nil, errIssuer
	}
	for _, name := range []string{"nonce", "at_hash", "c_hash"} {
		if _, there := c[name]; there {
			return nil, errIDToken
		}
	}
	if _, there := c["exp"]; !there {
		return nil, errNoExpiry
	}
	if _, _, err := c.time("iat"); err != nil {
		return nil, err
	}
	p, err := i.principal(c, hash)
	if err == nil {
		p.signedBy = key
	}
	return p, err
}

// header checks the header of a token, before its signature.
func (i *issuer) header(h jose.Header) error {
	if !slices.Contains(i.algorithms, h.Algorithm) {
		return errAlgorithm
	}
	if _, critical := h.ExtraHeaders["crit"]; critical {
		return errCritical
	}
	typ, there := h.ExtraHeaders[jose.HeaderType]
	if !there && !i.onlyAT {
		return nil
	}
	name, _ := typ.(string)
	switch name = strings.ToLower(name); {
	case name == "at+jwt", name == "application/at+jwt", name == "jwt" && !i.onlyAT:
		return nil
	}
	return errType
}
