// Package auth finds out who a request comes from.
//
// auth.go has the Principal and the Guard, which every request passes before anything looks at its
// message; address.go finds the client's address behind proxies. keys.go has the API keys.
// tokens.go finds out by the look of a token who knows it: the keys, whoever hands out tokens of
// our own, an authorization server whose tokens can be read (jwt.go, with its keys in keyset.go),
// or one that must be asked (introspection.go). claims.go makes a Principal of what these servers
// say; providers.go keeps what is known of them from one reload to the next. resource.go tells
// clients where to sign in. request.go gives requests their ids. config.go is the section of the
// file. The package knows no MCP, and decides nothing about what a principal may do.
package auth

import (
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

// Kind says how a principal was found out.
type Kind string

const (
	KindLocal   Kind = "local"   // nobody has to say who they are: only this machine reaches us
	KindKey     Kind = "key"     // by an API key
	KindUser    Kind = "user"    // a person who signed in
	KindService Kind = "service" // a program that signed in as itself
)

// Principal is who a request comes from. It is immutable once Authenticate or Verify has returned
// it, may be kept for as long as one likes, and refers to no memory of the request. Two principals
// are the same one exactly if their IDs are equal: what is bound to a principal is bound to its ID
// (and its Grant).
type Principal struct {
	Kind Kind
	ID   string // "local", "key:<name>"; of a user it names the issuer too, so that IDs of two issuers never meet
	Key  string // the name of the API key, of KindKey

	User, Issuer, Email string // of KindUser; Email only if the issuer has verified it
	Groups, Scopes      []string
	OAuthClient         string // whom the user, or the service, signed in with

	// Resources are what the token of a user or a service is for: URLs of our endpoints, or names
	// of another kind, each of which stands for all of them. Without any it is for none. Of other
	// principals it says nothing: a key is for all endpoints.
	Resources []string

	// Grant is the one sign-in that the token comes from. It is "" of a key: the entries of one
	// name are one principal, so that a session outlives the rotation.
	Grant string
	// Expires is when what was verified ends, and the streams that it opened with it. Zero means
	// never.
	Expires time.Time
	// Address is where the request comes from; the zero value means that it could not be found out,
	// and is in no network.
	Address netip.Addr

	hash     Hash   // of the key, or of the token, that was verified
	signedBy string // print of the key that has signed a token
	source   string // print of the entry of the file that a token was verified by; "" of keys and of our own tokens
}

// LogValue shows the ID alone.
func (p *Principal) LogValue() slog.Value { return slog.StringValue(p.ID) }

// Local is the principal of a Guard without a Verifier, for a request from 127.0.0.1. From another
// address it is the same principal with that address.
var Local = &Principal{Kind: KindLocal, ID: string(KindLocal), Address: netip.AddrFrom4([4]byte{127, 0, 0, 1})}

// local6 is Local for a request from ::1.
var local6 = &Principal{Kind: KindLocal, ID: string(KindLocal), Address: netip.IPv6Loopback()}

// ErrInvalidToken means that a token is no good, as opposed to an error that kept us from finding
// out. Who returns it wraps it, with a reason: the client is told the whole text of the error, so
// it says nothing that is not for whoever sent the token.
var ErrInvalidToken = errors.New("the token is not valid")

// ScopeError means that a token is good, but that its scopes do not let anybody in. Scopes are all
// that are needed.
type ScopeError struct{ Scopes []string }

func (e *ScopeError) Error() string {
	return "the token lacks a scope; needed are: " + strings.Join(e.Scopes, " ")
}

// Verifier finds out whose a token is. The error wraps ErrInvalidToken if it is nobody's, or not
// any more, or not from that address, and it is a *ScopeError if a new sign-in with more scopes
// would help; any other error means that it could not be found out. It may be called by several
// goroutines at once, and may block until ctx ends.
//
// One that also has the method Still(*Principal) bool is asked by it whether a principal that it,
// or the one that was in its place before a reload, has verified would be verified again. The
// principals of one without that method would not.
type Verifier interface {
	Verify(ctx context.Context, token string, from netip.Addr) (*Principal, error)
}

// Guard lets requests in. It is immutable, and may be used by several goroutines at once. A nil
// *Guard lets nobody in: nobody has said yet who may.
type Guard struct {
	// Verifier knows the tokens. Without one everybody is Local, so that such a Guard is only for
	// an address that nobody but this machine reaches.
	Verifier Verifier
	// Resources are our endpoints for those who sign in. Without them nobody can: there are keys,
	// or nothing.
	Resources *Resources
	// TrustedProxies are the peers whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Log is told why a token could not be verified; nil discards.
	Log *slog.Logger
	// Refused is told of requests that the guard has answered itself, but for those that show
	// nothing, since so begins each sign-in. It must not block, and anybody can have it called as
	// often as they like. It may be nil.
	Refused func(Refusal)
}

// Refusal is a request that was not let in. Nothing in it is secret.
type Refusal struct {
	RequestID string
	Address   netip.Addr // the zero Addr when it is not known
	Path      string     // as the client asked for it
	Status    int
	Code      string // what went wrong, in a word of OAuth: invalid_token, say
}

// Authenticate returns who sent the request. If it is nil, the request has been answered: with 401
// and a challenge where there is no token, or one that is not good, or not for this endpoint, which
// the path of the request names; with 403 where it lacks a scope; with 400 where it is unclear or
// in the URL, which logs keep; with 503 where it could not be found out, so that nobody throws away
// a good token for it.
func (g *Guard) Authenticate(w http.ResponseWriter, r *http.Request) *Principal {
	if g == nil {
		unavailable(w, "the server is starting")
		return nil
	}
	from := g.Address(r)
	refused := func(status int, code string) {
		if g.Refused != nil {
			g.Refused(Refusal{RequestID(w), from, r.URL.Path, status, code})
		}
	}
	if r.URL.RawQuery != "" && tokenInQuery(r.URL.RawQuery) {
		refuse(w, http.StatusBadRequest, problem{"invalid_request", "a token has no place in a URL, which logs " +
			"keep: replace it, and send the new one as Authorization: Bearer"}, nil, "")
		refused(http.StatusBadRequest, "invalid_request")
		return nil
	}
	if g.Verifier == nil {
		return local(from)
	}
	token, err := bearer(r.Header["Authorization"])
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, problem{"invalid_request", err.Error()}, nil, "")
		refused(http.StatusBadRequest, "invalid_request")
		return nil
	case token == "":
		refuse(w, http.StatusUnauthorized, problem{"", g.Resources.invitation()}, g.Resources, r.URL.Path)
		return nil
	}
	p, err := g.Verifier.Verify(r.Context(), token, from)
	if err == nil && p != nil {
		err = g.Resources.admit(p, r.URL.Path)
	}
	narrow, isNarrow := errors.AsType[*ScopeError](err)
	switch {
	case isNarrow:
		w.Header().Set("WWW-Authenticate", g.Resources.StepUp(r.URL.Path, narrow.Scopes))
		write(w, http.StatusForbidden, problem{insufficientScope, narrow.Error()})
		refused(http.StatusForbidden, insufficientScope)
		return nil
	case errors.Is(err, ErrInvalidToken):
		refuse(w, http.StatusUnauthorized, problem{"invalid_token", err.Error()}, g.Resources, r.URL.Path)
		refused(http.StatusUnauthorized, "invalid_token")
		return nil
	case err != nil || p == nil:
		if g.Log != nil && r.Context().Err() == nil {
			g.Log.Error("a token could not be verified", "address", from, "error", err)
		}
		unavailable(w, "the token could not be verified now")
		refused(http.StatusServiceUnavailable, "temporarily_unavailable")
		return nil
	}
	return p
}

// Address returns where a request comes from, as Authenticate finds it out. The zero Addr means
// that it cannot be found out.
func (g *Guard) Address(r *http.Request) netip.Addr { return address(r, g.TrustedProxies) }

// Still reports whether a principal, by what it was verified with, would still be let in from where
// it came. It is for what outlives a request: sessions and streams are asked of the new Guard after
// a reload. It does not wait for anything.
func (g *Guard) Still(p *Principal) bool {
	if g == nil || p == nil {
		return false
	}
	if g.Verifier == nil {
		return p.Kind == KindLocal
	}
	return still(g.Verifier, p)
}

// still asks the Verifier, which may be nil; see there.
func still(v Verifier, p *Principal) bool {
	keeper, ok := v.(interface{ Still(*Principal) bool })
	return ok && keeper.Still(p)
}

// local is the principal of whoever reaches us from an address while nobody needs a token.
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
	errTwice     = errors.New("there is more than one Authorization header; send one")
	errMalformed = errors.New("the Authorization header is malformed; want Bearer, a space, and the token")
)

// bearer returns the token of the Authorization headers, "" where there is none: another scheme
// than Bearer is no try to show one (RFC 6750, section 3.1).
func bearer(headers []string) (string, error) {
	switch len(headers) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", errTwice
	}
	scheme, token, _ := strings.Cut(strings.Trim(headers[0], " \t"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		if scheme == "" || strings.ContainsAny(scheme, ",\t") {
			return "", errMalformed
		}
		return "", nil
	}
	if token = strings.TrimLeft(token, " "); !b64token(token) {
		return "", errMalformed
	}
	return token, nil
}

// b64token reports whether s can be a token (RFC 6750, section 2.1).
func b64token(s string) bool {
	s = strings.TrimRight(s, "=")
	strange := byte(0)
	for i := range len(s) { // without a branch: tokens are long, and come with every request
		strange |= outsideToken[s[i]]
	}
	return s != "" && strange == 0
}

// outsideToken is 0 for the characters of a token but for the = at its end.
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

// tokenInQuery reports whether somebody has put a token into the query of a URL: anything of ours,
// under whatever name, or the parameter that there is a name for (RFC 6750, section 2.3).
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

// tokenPrefix begins every token that we hand out.
const tokenPrefix = "jct_"

// problem is why a request is not let in. Its code is "" where no token was sent: then the
// challenge has no error (RFC 6750, section 3.1).
type problem struct{ code, description string }

// refuse answers a request that is not let in, and says the same in the header, for clients, and in
// the body, for people. With resources, which may be nil, the header says where to sign in for the
// endpoint at the path.
func refuse(w http.ResponseWriter, status int, p problem, resources *Resources, path string) {
	w.Header().Set("WWW-Authenticate", challenge(p)+resources.where(path, nil))
	if p.code == "" {
		p.code = "unauthorized"
	}
	write(w, status, p)
}

func challenge(p problem) string {
	c := `Bearer realm="junction"`
	if p.code != "" {
		c += `, error="` + p.code + `", error_description="` + quotable(p.description) + `"`
	}
	return c
}

// unavailable answers a request of which nobody can say now whether it may be let in. It is no
// challenge, so that the client keeps its token.
func unavailable(w http.ResponseWriter, description string) {
	w.Header().Set("Retry-After", "5")
	write(w, http.StatusServiceUnavailable, problem{"temporarily_unavailable", description})
}

// Deny answers a request of somebody who is known and may do nothing with it, whatever they sign in
// with: it is no challenge, since a client that was told to sign in again would do so for ever.
func Deny(w http.ResponseWriter, description string) {
	write(w, http.StatusForbidden, problem{"access_denied", description})
}

func write(w http.ResponseWriter, status int, p problem) {
	writeJSON(w, status, "no-store", struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
		Request     string `json:"request_id,omitempty"`
	}{p.code, p.description, RequestID(w)})
}

// writeJSON answers with a document of ours, which can always be written.
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

// quotable returns s without what error_description may not hold (RFC 6750, section 3).
func quotable(s string) string {
	return string(slices.DeleteFunc([]byte(s),
		func(c byte) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }))
}
