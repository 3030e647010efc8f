package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// issuer verifies the tokens of one authorization server that can be read: signed JSON Web Tokens
// (RFC 9068, and those that came before it).
type issuer struct {
	judge
	keys       *keySet
	algorithms []string
	onlyAT     bool // typ must be at+jwt
}

// asymmetric are the algorithms that there can be. None of them takes a secret that both sides
// know: whoever can check such a token could make one.
var asymmetric = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
	jose.EdDSA,
}

var (
	errMalformedJWT = fmt.Errorf("%w: it cannot be read", ErrInvalidToken)
	errAlgorithm    = fmt.Errorf("%w: it is signed in a way that this server does not take", ErrInvalidToken)
	errCritical     = fmt.Errorf("%w: it has a header that must be understood, and is not", ErrInvalidToken)
	errType         = fmt.Errorf("%w: it is no access token", ErrInvalidToken)
	errIDToken      = fmt.Errorf("%w: it is an ID token, which is for the client alone; send the access token",
		ErrInvalidToken)
	errEndless = fmt.Errorf("%w: it does not say when it ends", ErrInvalidToken)
)

// newIssuer returns the issuer of an entry of the file, which has been validated.
func newIssuer(c *Issuer, p *Providers) *issuer {
	i := &issuer{
		judge: newJudge(&c.TokenRules, printOf(c), p.now),
		keys: &keySet{issuer: c.Issuer, fixed: c.JWKSURL, client: p.client,
			strangers: cmp.Or(p.Strangers, p.client), ctx: p.ctx, fetching: &p.fetching, now: p.now},
		algorithms: c.algorithms(),
		onlyAT:     c.RequireATJWT,
	}
	i.skew = c.skew()
	return i
}

// issuerOf returns who a token says it comes from, if it is a signed JSON Web Token. Nothing of
// that is verified.
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

// verify returns whose a token is.
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
	// Who it is for and when it ends is checked here: go-oidc knows one audience, and a skew of its
	// own.
	signed := &signature{keys: i.keys}
	verified, err := oidc.NewVerifier(i.issuer, signed, &oidc.Config{SupportedSigningAlgs: i.algorithms,
		SkipClientIDCheck: true, SkipExpiryCheck: true}).Verify(ctx, token)
	switch {
	case signed.err != nil:
		return nil, signed.err
	case err != nil:
		return nil, errMalformedJWT // err speaks of ID tokens
	}
	var c claims
	if err := verified.Claims(&c); err != nil {
		return nil, errMalformedJWT
	}
	if iss, err := c.text("iss"); err != nil || iss != i.issuer {
		return nil, errIssuer
	}
	for _, name := range []string{"nonce", "at_hash", "c_hash"} {
		if _, there := c[name]; there {
			return nil, errIDToken
		}
	}
	if _, there := c["exp"]; !there {
		return nil, errEndless
	}
	p, err := i.principal(c, hash)
	if err == nil {
		p.signedBy = signed.key
	}
	return p, err
}

// header checks what a token says of itself before its signature is looked at.
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

// signature is the keys for one token. It keeps which of them has signed it, and the error, of
// which go-oidc keeps the words alone.
type signature struct {
	keys *keySet
	key  string // its print
	err  error
}

// VerifySignature is that of oidc.KeySet.
func (s *signature) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, s.key, s.err = s.keys.verify(ctx, token)
	return payload, s.err
}
