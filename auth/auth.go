// Package auth authenticates requests. It does not interpret MCP messages, and does not decide
// which items a principal may use.
//
// By file:
//
//   - auth.go: Principal, and Guard, which authenticates each request before its message is read.
//   - address.go: the client's address behind trusted proxies.
//   - tokens.go: chooses the verifier of a token by its form: API keys (keys.go), tokens of our own
//     authorization server, signed tokens of other issuers (jwt.go, with their keys in keyset.go), or
//     introspection (introspection.go).
//   - turns.go: shares the queries of introspection among the networks that cause them.
//   - claims.go: makes a Principal of the claims of another authorization server.
//   - providers.go: keeps the state of these servers across reloads.
//   - others.go: tokens that another process may accept, while their files differ
//   - resource.go: tells clients where to sign in.
//   - request.go: request ids.
//   - config.go: the section auth of the file.
//
// The packages below it: authserver is our own authorization server, oauth signs in to those of
// upstreams. Package store keeps what they know, sealed by package seal. Package fetch downloads
// documents that strangers name.
package auth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind says how a principal authenticated.
type Kind string

const (
	KindLocal   Kind = "local"   // without authentication, on a loopback address
	KindKey     Kind = "key"     // with an API key
	KindUser    Kind = "user"    // a user who signed in
	KindService Kind = "service" // a program with its own OAuth identity
)

// Principal is the authenticated sender of a request. It is immutable once Authenticate or Verify
// has returned it, may be kept, and refers to no memory of the request. Principals with equal IDs
// are the same caller: sessions and parked calls are bound to the ID alone. Still also checks the
// Grant, so a stream ends with the sign-in that it came from.
type Principal struct {
	Kind Kind
	ID   string // "local", "key:<name>"; for users and services it contains the issuer
	Key  string // name of the API key; only for KindKey

	// KeyID distinguishes the keys of one name in records (Hash.ID); only for KindKey. Entries with
	// the same name are one principal, so no decision depends on it.
	KeyID string

	User, Issuer, Email string // only for KindUser; Email only if the issuer has verified it
	Name                string // of a person, as the issuer gave it; for records, not for decisions
	Groups, Scopes      []string
	OAuthClient         string // the OAuth client of the user or service

	// Resources are the audiences of the token of a user or service that this server accepts: URLs
	// of its endpoints, or other names, each of which stands for all endpoints. An empty list
	// matches no endpoint. Other kinds may use all endpoints.
	Resources []string

	// Endpoints are the only endpoints of a key, by the names of the configuration. Nil are all. Never
	// change the list.
	Endpoints []string

	// Grant identifies the sign-in that the token comes from. It is "" for a key: entries with the
	// same name are one principal, so that a session survives a key rotation.
	Grant string
	// Expires is when the credential expires, which also ends the streams that it opened. Zero
	// means never.
	Expires time.Time
	// Address is the client address; the zero value if unknown, which is in no network.
	Address netip.Addr

	hash     Hash   // of the verified key or token
	signedBy string // fingerprint of the key that signed the token
	source   string // fingerprint of the configuration entry that verified the token; "" for keys and our tokens
}

// LogValue logs only the ID.
func (p *Principal) LogValue() slog.Value { return slog.StringValue(p.ID) }

// Local is the principal of a request from 127.0.0.1 if the Guard has no Verifier. Requests from
// other addresses get the same principal with their address.
var Local = &Principal{Kind: KindLocal, ID: string(KindLocal), Address: netip.AddrFrom4([4]byte{127, 0, 0, 1})}

// local6 is Local for a request from ::1.
var local6 = &Principal{Kind: KindLocal, ID: string(KindLocal), Address: netip.IPv6Loopback()}

// ErrInvalidToken means that a token was checked and is not valid; other errors mean that it could
// not be checked. Wrap it with a reason. The client reads the whole text of the error: put in only
// what the sender of the token may know.
var ErrInvalidToken = errors.New("the token is not valid")

// ScopeError means that a token is valid but lacks scopes. Scopes are all that are required.
type ScopeError struct{ Scopes []string }

func (e *ScopeError) Error() string {
	return "the token lacks a scope; needed are: " + strings.Join(e.Scopes, " ")
}

// Verifier returns the principal of a token. The error wraps ErrInvalidToken if the token is
// unknown, expired, revoked or used from a wrong address. It is a *ScopeError if the client should
// sign in again with more scopes. Any other error means that the token could not be checked. Verify
// may be called concurrently, and may block until ctx ends.
//
// Principals of a Verifier that is no Rechecker are accepted for one request only: their streams end
// at the next check.
type Verifier interface {
	Verify(ctx context.Context, token string, from netip.Addr) (*Principal, error)
}

// Rechecker is a Verifier that can check a principal again, without its token.
type Rechecker interface {
	// Still reports, without blocking, whether the Verifier would accept the principal again. The
	// principal may come from the Verifier that was in use before a reload.
	Still(*Principal) bool
}

// Directory is a Verifier of our own tokens that also knows which users the operator has disabled. Tokens of
// other authorization servers are refused for them: a user has the same ID with each token (UserID).
type Directory interface {
	// Disabled reports whether the user with an ID is disabled. It may block until ctx ends, at first. An
	// error means that nothing is known.
	Disabled(ctx context.Context, user string) (bool, error)
	// KnownDisabled is Disabled without blocking. It reports false if nothing is known yet.
	KnownDisabled(user string) bool
}

// Guard authenticates requests. It is immutable, and may be used by several goroutines. A nil
// *Guard answers every request with 503.
type Guard struct {
	// Verifier checks tokens. If it is nil, every request is Local; use such a Guard only on a
	// loopback address.
	Verifier Verifier
	// Resources are the endpoints to sign in for; nil if users cannot sign in.
	Resources *Resources
	// TrustedProxies are the networks whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// Disputed are the trusted networks of two configurations that disagree. A request whose address depends
	// on the configuration is rejected. Nil rejects none.
	Disputed []netip.Prefix
	// Log receives the reason if a token could not be checked; nil discards.
	Log *slog.Logger
	// Refused is called for each rejected request, except those without a token, because each
	// sign-in begins with one. Unauthenticated clients can cause many calls. It must not block, and
	// may be nil.
	Refused func(Refusal)
	// Accepted is called for each request whose token was accepted, so never without a Verifier. It
	// must not block, and may be nil.
	Accepted func(p *Principal, requestID string, r *http.Request)
	// Checked is called for each token that was checked, with the OAuth error code of its refusal,
	// with unknown_key if its key is not known yet, or with "" if it was accepted. It must not block, and may be nil.
	Checked func(code string)

	others Others // see Among
}

// Refusal describes a rejected request. It contains no secret.
type Refusal struct {
	RequestID string
	TraceID   string     // see TraceID
	Address   netip.Addr // the zero Addr if unknown
	Path      string     // as the client asked for it
	Method    string     // of MCP, if a header has it, else of HTTP; as the client sent it
	Status    int
	Code      string // OAuth error code, such as invalid_token

	// Of a key that is configured, or that a reload has revoked; "" for all others. Only a sender
	// with the whole key can cause them. The client does not get to know Reason.
	Principal, KeyID, Reason string
}

// Authenticate returns the principal of a request. If it returns nil, it has answered the request:
//
//   - 401 with a challenge: no token, an invalid one, or one for another endpoint than the path
//   - 403: the token lacks a scope
//   - 400: the token is in the URL, which logs keep, or the header is malformed
//   - 503: the token, or the address of the client, could not be checked; the client must keep the token
func (g *Guard) Authenticate(w http.ResponseWriter, r *http.Request) *Principal {
	if g == nil {
		unavailable(w, "the server is starting")
		return nil
	}
	from := g.Address(r)
	var key *keyError // of the refused token, if it is a key that is or was known
	refused := func(status int, code string) {
		if g.Refused == nil {
			return
		}
		of := Refusal{RequestID: RequestID(w), TraceID: TraceID(r), Address: from, Path: r.URL.Path, Status: status,
			Method: cmp.Or(r.Header.Get("Mcp-Method"), r.Method), Code: code}
		if key != nil {
			of.Principal, of.KeyID, of.Reason = "key:"+key.name, key.id, key.why
		}
		g.Refused(of)
	}
	if r.URL.RawQuery != "" && tokenInQuery(r.URL.RawQuery) {
		reject(w, http.StatusBadRequest, rejection{"invalid_request", "tokens in URLs end up in logs: " +
			"revoke this token, and send a new one as 'Authorization: Bearer TOKEN'"}, nil, "")
		refused(http.StatusBadRequest, "invalid_request")
		return nil
	}
	if g.Disputed != nil && address(r, g.Disputed) != from {
		unavailable(w, "the address of the client is uncertain, because a change of auth.trusted_proxies is in force "+
			"only in part; ask the operator to restart Junction")
		return nil
	}
	if g.Verifier == nil {
		return local(from)
	}
	token, err := bearer(r.Header["Authorization"])
	switch {
	case err != nil:
		reject(w, http.StatusBadRequest, rejection{"invalid_request", err.Error()}, nil, "")
		refused(http.StatusBadRequest, "invalid_request")
		return nil
	case token == "":
		reject(w, http.StatusUnauthorized, rejection{"", g.Resources.howToAuthenticate()}, g.Resources, r.URL.Path)
		return nil
	}
	p, err := g.Verifier.Verify(r.Context(), token, from)
	if err == nil && p != nil {
		err = g.Resources.admit(p, r.URL.Path)
	}
	status, code := http.StatusOK, ""
	narrow, isNarrow := errors.AsType[*ScopeError](err)
	undecided := ""
	if isNarrow || errors.Is(err, ErrInvalidToken) {
		undecided = g.undecided(token)
	}
	switch {
	case undecided != "": // this is no failure: Checked and the log have the refusal
		status, code = http.StatusServiceUnavailable, "invalid_token"
		unavailable(w, "this process does not accept the token, and another one may: their configurations differ in "+
			undecided+"; try again")
	case isNarrow:
		status, code = http.StatusForbidden, insufficientScope
		w.Header().Set("WWW-Authenticate", g.Resources.StepUp(r.URL.Path, narrow.Scopes))
		write(w, status, rejection{code, narrow.Error()})
	case errors.Is(err, ErrInvalidToken):
		status, code = http.StatusUnauthorized, "invalid_token"
		reject(w, status, rejection{code, err.Error()}, g.Resources, r.URL.Path)
	case errors.Is(err, errNewKey): // anyone can cause it: it is neither logged as an error nor an outage
		status, code = http.StatusServiceUnavailable, unknownKey
		unavailable(w, "the key of the token is not known yet; try again later")
	case err != nil || p == nil:
		status, code = http.StatusServiceUnavailable, "temporarily_unavailable"
		if g.Log != nil && r.Context().Err() == nil {
			g.Log.Error("cannot verify a token", "address", from, "error", err)
		}
		unavailable(w, "the token cannot be verified at the moment; try again later")
	}
	if g.Checked != nil {
		g.Checked(code)
	}
	if code != "" {
		key, _ = errors.AsType[*keyError](err)
		refused(status, code)
		return nil
	}
	if g.Accepted != nil {
		g.Accepted(p, RequestID(w), r)
	}
	return p
}

// Address returns the client address of a request. The zero Addr means unknown.
func (g *Guard) Address(r *http.Request) netip.Addr { return address(r, g.TrustedProxies) }

// Still reports, without blocking, whether a principal would still be accepted from its address.
// Sessions and streams outlive a request, so the new Guard checks them after a reload.
func (g *Guard) Still(p *Principal) bool {
	if g == nil || p == nil {
		return false
	}
	if g.Verifier == nil {
		return p.Kind == KindLocal
	}
	return still(g.Verifier, p)
}

// still calls the Still method of a Verifier, which may be nil.
func still(v Verifier, p *Principal) bool {
	checker, ok := v.(Rechecker)
	return ok && checker.Still(p)
}

// local returns the Local principal for an address.
func local(from netip.Addr) *Principal {
	switch from {
	case Local.Address:
		return Local
	case local6.Address:
		return local6
	}
	p := *Local
	p.Address = from
	return &p
}

var (
	errTwoHeaders      = errors.New("the request has more than one Authorization header; send one")
	errMalformedHeader = errors.New("the Authorization header is malformed; want Bearer, a space, and the token")
)

// bearer returns the token of the Authorization headers. It is "" without a header, or with another
// scheme than Bearer (RFC 6750, section 3.1).
func bearer(headers []string) (string, error) {
	switch len(headers) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errTwoHeaders
	}
	scheme, token, _ := strings.Cut(strings.Trim(headers[0], " \t"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		if scheme == "" || strings.ContainsAny(scheme, ",\t") {
			return "", errMalformedHeader
		}
		return "", nil
	}
	if token = strings.TrimLeft(token, " "); !b64token(token) {
		return "", errMalformedHeader
	}
	return token, nil
}

// b64token reports whether s can be a token (RFC 6750, section 2.1).
func b64token(s string) bool {
	s = strings.TrimRight(s, "=")
	strange := byte(0)
	for i := range len(s) { // branch-free: tokens are long and come with every request
		strange |= outsideToken[s[i]]
	}
	return s != "" && strange == 0
}

// outsideToken is 0 for the characters of a token, except the = at its end.
var outsideToken = func() (set [256]byte) {
	for c := range set {
		if !alphanumeric(byte(c)) && strings.IndexByte("-._~+/", byte(c)) < 0 {
			set[c] = 1
		}
	}
	return set
}()

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// tokenInQuery reports whether the query of a URL contains a token: one of ours under any name, or
// the parameter access_token (RFC 6750, section 2.3).
func tokenInQuery(query string) bool {
	for parameter := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(parameter, "=")
		if name = unescape(name); name == "access_token" || strings.HasPrefix(name, tokenPrefix) ||
			strings.HasPrefix(unescape(value), tokenPrefix) {
			return true
		}
	}
	return false
}

func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

// tokenPrefix begins every token that this server issues.
const tokenPrefix = "jct_"

// rejection is the reason to reject a request. Its code is "" if no token was sent: the challenge
// then has no error (RFC 6750, section 3.1).
type rejection struct{ code, description string }

// reject rejects a request, with the same reason in the header and in the body. If resources is not
// nil, the header says where to sign in for the endpoint at the path.
func reject(w http.ResponseWriter, status int, why rejection, resources *Resources, path string) {
	w.Header().Set("WWW-Authenticate", challenge(why)+resources.challengeParams(path, nil))
	if why.code == "" {
		why.code = "unauthorized"
	}
	write(w, status, why)
}

func challenge(why rejection) string {
	c := `Bearer realm="junction"`
	if why.code != "" {
		c += `, error="` + why.code + `", error_description="` + quotable(why.description) + `"`
	}
	return c
}

// unknownKey is the code of a refusal by errNewKey, for Guard.Refused and Guard.Checked. The client
// gets temporarily_unavailable.
const unknownKey = "unknown_key"

// unavailable answers 503 without a challenge, so that the client keeps its token.
func unavailable(w http.ResponseWriter, description string) {
	w.Header().Set("Retry-After", "5")
	write(w, http.StatusServiceUnavailable, rejection{"temporarily_unavailable", description})
}

// Deny answers 403 to an authenticated request that policies reject. It sends no challenge: a
// client would sign in again and again.
func Deny(w http.ResponseWriter, description string) {
	write(w, http.StatusForbidden, rejection{"access_denied", description})
}

func write(w http.ResponseWriter, status int, why rejection) {
	writeJSON(w, status, "no-store", struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Request     string `json:"request_id,omitempty"`
	}{why.code, why.description, RequestID(w)})
}

// writeJSON answers with a document, which must be marshallable.
func writeJSON(w http.ResponseWriter, status int, cache string, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		body = []byte(`{}`)
	}
	h := w.Header()
	h.Set("Cache-Control", cache)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// quotable removes characters that error_description may not contain (RFC 6750, section 3).
func quotable(s string) string {
	return string(slices.DeleteFunc([]byte(s),
		func(c byte) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }))
}
