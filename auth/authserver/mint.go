package authserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/auth/store"
)

// The prefixes show people, and programs that search for leaked secrets, the kind of a token.
const (
	accessPrefix  = "jct_at_"
	refreshPrefix = "jct_rt_"
	codePrefix    = "jct_ac_"

	codeTTL = 2 * time.Minute // one more than clients need, because the clock of another process may be a minute off
)

// minter makes and checks the strings of codes and tokens. A string is a prefix, 32 random bytes, a
// dot, and the HMAC-SHA-512/256 of these bytes, both in base64url without padding. In a refresh token,
// the last 16 bytes are the encrypted id of its grant: a token that is not stored any more still
// names the grant. The store holds
// only the HMAC, called the signature, from which the token cannot be computed. The first secret
// makes tokens; all of them check. The zero minter accepts no token.
type minter struct{ secrets [][]byte }

const (
	partSize = 32 // bytes of each part
	partLen  = 43 // characters of each part

	grantSize = 16 // bytes of the id of a grant
)

// strictBase64 decodes a part of a token, and rejects other encodings of the same bytes. It skips
// line ends, but then partLen characters are too few for partSize bytes.
var strictBase64 = base64.RawURLEncoding.Strict()

// mint returns a new token and its signature. grant is the id of the grant in a refresh token, else "".
func (m minter) mint(prefix, grant string) (token, signature string) {
	random := make([]byte, partSize)
	rand.Read(random) // never fails, see crypto/rand
	if id, err := strictBase64.DecodeString(grant); err == nil && len(id) == grantSize {
		subtle.XORBytes(random[partSize-grantSize:], id, pad(m.secrets[0], random))
	}
	signature = base64.RawURLEncoding.EncodeToString(sign(m.secrets[0], random))
	return prefix + base64.RawURLEncoding.EncodeToString(random) + "." + signature, signature
}

// signature returns the signature of a token. ok is false unless one of the secrets made the token.
func (m minter) signature(token, prefix string) (signature string, ok bool) {
	_, _, signature, ok = m.open(token, prefix)
	return signature, ok
}

// grant returns the id of the grant in a refresh token, "" if no secret made the token.
func (m minter) grant(token string) string {
	secret, random, _, ok := m.open(token, refreshPrefix)
	if !ok {
		return ""
	}
	id := make([]byte, grantSize)
	subtle.XORBytes(id, random[partSize-grantSize:], pad(secret, random))
	return base64.RawURLEncoding.EncodeToString(id)
}

// open returns the random bytes and the signature of a token, and the secret that made it.
func (m minter) open(token, prefix string) (secret, random []byte, signature string, ok bool) {
	bare, ok := strings.CutPrefix(token, prefix)
	if !ok || len(bare) != partLen+1+partLen || bare[partLen] != '.' {
		return nil, nil, "", false
	}
	random, err := strictBase64.DecodeString(bare[:partLen])
	if err != nil {
		return nil, nil, "", false
	}
	mac, err := strictBase64.DecodeString(bare[partLen+1:])
	if err != nil {
		return nil, nil, "", false
	}
	for _, secret := range m.secrets {
		if hmac.Equal(mac, sign(secret, random)) {
			return secret, random, bare[partLen+1:], true
		}
	}
	return nil, nil, "", false
}

// pad returns the bytes that encrypt the id of a grant. They depend on the random bytes before it.
func pad(secret, random []byte) []byte {
	return sign(secret, append([]byte("grant:"), random[:partSize-grantSize]...))[:grantSize]
}

func sign(secret, random []byte) []byte {
	h := hmac.New(sha512.New512_256, secret)
	h.Write(random)
	return h.Sum(nil)
}

// record is the JSON column of a code or token row. It contains no secret.
type record struct {
	Client      string   `json:"client"`
	Resource    string   `json:"resource"`
	Scopes      []string `json:"scopes"`
	RedirectURI string   `json:"redirect_uri,omitempty"` // that the token request must repeat
	// ReuseInterval is how long a refresh token gets its answer again, by the file of the process that made it.
	ReuseInterval *time.Duration `json:"reuse_interval,omitempty"`
}

// maxReuseInterval is the longest one that a file can set.
const maxReuseInterval = 10 * time.Minute

// readRecord returns the record of a code or token of a grant.
func readRecord(text []byte, g store.Grant) (record, error) {
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return record{}, errors.Join(errInconsistent, err)
	}
	if rec.Client != g.ClientID || rec.Resource != g.Resource {
		return record{}, errInconsistent
	}
	return rec, nil
}

// issueCode stores the grant, and returns the URL to which the browser takes the code for it. The
// error wraps store.ErrRevoked if the session that the grant rests on has ended. It also ends the
// grants of the user beyond store.MaxGrants.
func (srv *Server) issueCode(ctx context.Context, row store.AuthRequest, g store.Grant) (redirect string, err error) {
	err = srv.store.WithTx(ctx, func(ctx context.Context) error {
		// The session stays locked until the grant is stored: a caller that ends the session then also
		// ends the grant.
		if _, err := srv.store.IDPSession(ctx, g.IDPSession); err != nil {
			return err
		}
		if g, err = srv.store.AddGrant(ctx, g); err != nil {
			return err
		}
		code, err := srv.addCode(ctx, row, g)
		if err != nil {
			return err
		}
		redirect = srv.answerURL(row.RedirectURI, url.Values{"code": {code}}, string(row.State))
		return nil
	})
	if err != nil {
		return "", err
	}
	srv.endUnused(ctx, g)
	return redirect, nil
}

// endUnused ends the grants of a user beyond the limit. It is not in the transaction that stores the
// grant newest, which has locked a session: a refresh locks its grant first. After an error, the next
// sign-in ends them.
func (srv *Server) endUnused(ctx context.Context, newest store.Grant) {
	unused, err := srv.store.RevokeUnused(ctx, newest.User, newest.ID, "too_many_grants")
	switch {
	case err != nil:
		srv.log.Warn("cannot end the unused grants of a user", "user", newest.User, "error", err)
	case len(unused) > 0:
		srv.grantsEnded(unused...)
		srv.audit(ctx, "grant_revoked", newest.User, "",
			fmt.Sprintf("unused for longest: a user has at most %d grants", store.MaxGrants), "grants", unused)
	}
}

// addCode stores a new code of a grant with its PKCE challenge.
func (srv *Server) addCode(ctx context.Context, row store.AuthRequest, g store.Grant) (code string, err error) {
	rec := record{Client: g.ClientID, Resource: g.Resource, Scopes: strings.Fields(g.Scope)}
	if !subset(rec.Scopes, srv.scopes) {
		return "", errors.New("the approved request has a scope that this server no longer has")
	}
	if len(row.Request) > 0 { // see explicitRedirect
		rec.RedirectURI = row.RedirectURI
	}
	text, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	code, signature := srv.minter.mint(codePrefix, "")
	expires := srv.now().Add(codeTTL)
	c := store.Code{Signature: signature, Grant: g.ID, RequestID: g.ID, Request: text, Expires: expires}
	if err := srv.store.AddCode(ctx, c); err != nil {
		return "", err
	}
	return code, srv.store.AddPKCE(ctx, signature, []byte(row.CodeChallenge), expires)
}

// checkVerifier compares a PKCE verifier with the challenge of a code, and deletes the challenge:
// each code has one try. The error is an *oauthError if the verifier is wrong.
func (srv *Server) checkVerifier(ctx context.Context, code, verifier string) error {
	challenge, err := srv.store.TakePKCE(ctx, code)
	switch {
	case errors.Is(err, store.ErrNotFound) && verifier == "":
		return bad("invalid_request", "code_verifier is missing, and the code was already tried")
	case errors.Is(err, store.ErrNotFound):
		return bad("invalid_grant", "the code was already tried; begin the authorization again")
	case err != nil:
		return err
	}
	return matchVerifier(verifier, challenge)
}

var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// matchVerifier returns nil if a verifier matches a challenge of the method S256 (RFC 7636, section
// 4.6).
func matchVerifier(verifier string, challenge []byte) error {
	sum := sha256.Sum256([]byte(verifier))
	met := base64.RawURLEncoding.EncodeToString(sum[:])
	switch {
	case len(verifier) < 43:
		return bad("invalid_grant", "code_verifier must have at least 43 characters")
	case len(verifier) > 128:
		return bad("invalid_grant", "code_verifier must have at most 128 characters")
	case !verifierForm.MatchString(verifier):
		return bad("invalid_grant", "code_verifier may contain only A-Z, a-z, 0-9 and - . _ ~")
	case subtle.ConstantTimeCompare([]byte(met), challenge) != 1:
		return bad("invalid_grant", "code_verifier does not match the code_challenge of the authorization request")
	}
	return nil
}

// addTokens stores a new access token and refresh token of a grant, and returns them as the response
// for the client, with the signature of the refresh token. rec is the record of the code
// or refresh token that is exchanged. narrow, if not nil, are the scopes of the access token.
// Neither token outlives the grant.
func (srv *Server) addTokens(ctx context.Context, g store.Grant, rec record, narrow []string) (
	made store.Successor, err error) {
	now := srv.now()
	left := g.Expires.Sub(now)
	access, refresh := min(srv.tokens.AccessTTL, left), min(srv.tokens.RefreshTTL, left)
	rec.RedirectURI, rec.ReuseInterval = "", nil
	narrowed := rec
	if narrow != nil {
		narrowed.Scopes = narrow
	}
	accessToken, signature := srv.minter.mint(accessPrefix, "")
	if err := srv.addToken(ctx, store.AccessToken, signature, g, narrowed, now.Add(access)); err != nil {
		return made, err
	}
	rec.ReuseInterval = srv.tokens.ReuseInterval
	refreshToken, signature := srv.minter.mint(refreshPrefix, g.ID)
	if err := srv.addToken(ctx, store.RefreshToken, signature, g, rec, now.Add(refresh)); err != nil {
		return made, err
	}
	made.Signature = signature
	made.Response, err = json.Marshal(tokenResponse{
		AccessToken: accessToken, TokenType: "Bearer", ExpiresIn: int64(access / time.Second),
		RefreshToken: refreshToken,
		Scope:        strings.Join(narrowed.Scopes, " "),
	})
	return made, err
}

func (srv *Server) addToken(
	ctx context.Context, kind, signature string, g store.Grant, rec record, expires time.Time,
) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return srv.store.AddToken(ctx, store.Token{
		Signature: signature, Kind: kind, Grant: g.ID, RequestID: g.ID, Request: text, Expires: expires,
	})
}

// subset reports whether all of a are in b.
func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
