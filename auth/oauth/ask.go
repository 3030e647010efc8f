package oauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"junction/auth/fetch"
	"junction/auth/store"
)

// UserError is the reason why a user cannot connect an upstream. Text is for the user; Err is for
// the log.
type UserError struct {
	Text string
	Err  error // may be nil
}

func (p *UserError) Error() string {
	if p.Err != nil {
		return p.Text + ": " + p.Err.Error()
	}
	return p.Text
}

func (p *UserError) Unwrap() error { return p.Err }

// Public returns the text for the user.
func (p *UserError) Public() string { return p.Text }

func userError(err error, format string, args ...any) error {
	return &UserError{fmt.Sprintf(format, args...), err}
}

// errorAnswer is an error answer of an authorization server.
type errorAnswer struct {
	status int
	code   string // OAuth error code, "" if there is none
	other  string // error_code, which some servers send instead; "" if there is none
}

func (r *errorAnswer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("it answered %d %s", r.status, safeText(r.code)))
}

// reason returns why a sign-in was refused, for people.
func (r *errorAnswer) reason() string {
	switch {
	case r.code != "" || r.other != "":
		return safeText(cmp.Or(r.code, r.other))
	case r.status/100 == 3: // the request has the code, and perhaps a secret
		return fmt.Sprintf("its token endpoint redirects, with status %d, and Junction does not follow", r.status)
	}
	return fmt.Sprintf("status %d without an error code", r.status)
}

// endsGrant reports whether the answer to a renewal states that the refresh token is good no more. Supabase
// Auth has the codes refresh_token_… and session_… for that, in a member of its own.
func (r *errorAnswer) endsGrant() bool {
	own := strings.HasPrefix(r.other, "refresh_token_") || strings.HasPrefix(r.other, "session_")
	return r.code == "invalid_grant" || r.code == "" && own && r.clients()
}

// mute reports whether the answer refuses a renewal without a code that tells why. The code of Dex for an
// ended refresh token is invalid_request, which may also mean something else.
func (r *errorAnswer) mute() bool {
	return (r.code == "" || r.code == "invalid_request") && r.clients()
}

// clients reports whether the status is one of the errors of a token request (RFC 6749, section 5.2).
func (r *errorAnswer) clients() bool {
	return r.status == http.StatusBadRequest || r.status == http.StatusUnauthorized
}

// rejectsClient reports whether the answer rejects the client, for instance because its secret has changed.
func (r *errorAnswer) rejectsClient() bool {
	return r.code == "invalid_client" || r.status == http.StatusUnauthorized
}

// outage is a failure that may pass: there was no answer, or an answer with 5xx or 429.
type outage struct{ error }

func (o *outage) Unwrap() error { return o.error }

// isOutage reports whether the same request may succeed later.
func isOutage(err error) bool { return errors.As(err, new(*outage)) }

// errLate is the cause of the end of a request that took too long.
var errLate = fmt.Errorf("it did not answer within %v", answerTimeout)

// noAnswer returns the error of a request without an answer. Without another configuration, a URL that
// must not be fetched stays one.
func noAnswer(ctx context.Context, err error) error {
	if context.Cause(ctx) == errLate {
		return &outage{errLate}
	}
	if e, ok := errors.AsType[*fetch.Error](err); ok {
		switch e.Class {
		case fetch.BadURL, fetch.Plain, fetch.Private, fetch.Certificate, fetch.TooLarge, fetch.Type:
			return err
		}
	}
	return &outage{err}
}

const (
	maxAnswer    = 64 << 10 // the largest answer in bytes
	maxRedirects = 3        // of a document
)

// send sends a request on behalf of an upstream, with restrictions unless it goes to the upstream's
// own origin, and returns the body of a 2xx answer. Other answers are an *errorAnswer, unless they
// are temporary. The connection shows the certificate; nil shows none.
func (c *Client) send(ctx context.Context, u Upstream, r *http.Request, certificate *tls.Certificate) (
	http.Header, []byte, error,
) {
	client := c.guarded
	at, err := url.Parse(u.URL)
	own := err == nil && sameOrigin(at, r.URL)
	if own {
		client = c.direct
	}
	switch {
	case certificate != nil && own:
		if client, err = showing(c.direct, certificate); err != nil {
			return nil, nil, err
		}
	case certificate != nil:
		client = c.Fetch.Showing(certificate)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errLate)
	defer cancel()
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, nil, noAnswer(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	switch status := response.StatusCode; {
	case err != nil:
		return nil, nil, noAnswer(ctx, err)
	case len(body) > maxAnswer:
		return nil, nil, errors.New("the answer is too large")
	case status >= 500 || status == http.StatusTooManyRequests:
		return nil, nil, &outage{fmt.Errorf("it answered %d", status)}
	case status/100 != 2:
		var said struct {
			Error string `json:"error"`
			Other string `json:"error_code"`
		}
		_ = json.Unmarshal(body, &said) // without a code the status counts
		return response.Header, nil, &errorAnswer{status, said.Error, said.Other}
	}
	return response.Header, body, nil
}

// safeText returns untrusted text for display.
func safeText(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' {
			return r
		}
		return -1
	}, s[:min(len(s), 60)])
}

// get fetches a JSON document. It follows redirects of the same origin to the same path with or without
// a slash, or below /.well-known/. The error is errNoDocument if the answer is no JSON object.
func (c *Client) get(ctx context.Context, u Upstream, where string, into any) error {
	for range maxRedirects + 1 {
		r, err := http.NewRequest(http.MethodGet, where, nil)
		if err != nil {
			return err
		}
		header, body, err := c.send(ctx, u, r, nil)
		if to := redirected(r.URL, header, err); to != "" {
			where = to
			continue
		}
		if err != nil {
			return err
		}
		media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
		body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
		if media == "text/html" || !bytes.HasPrefix(body, []byte("{")) {
			return errNoDocument
		}
		return json.Unmarshal(body, into)
	}
	return errors.New("it redirects too often")
}

// redirected returns where an answer redirects a request for a document; "" if it does not, or if the
// redirect is not followed.
func redirected(from *url.URL, header http.Header, err error) string {
	no, refused := errors.AsType[*errorAnswer](err)
	if !refused || no.status/100 != 3 {
		return ""
	}
	to, err := from.Parse(header.Get("Location"))
	if err != nil || header.Get("Location") == "" || to.User != nil || !sameOrigin(from, to) {
		return ""
	}
	bare := func(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }
	if bare(from) != bare(to) && !strings.HasPrefix(to.EscapedPath(), "/.well-known/") {
		return ""
	}
	to.Fragment = ""
	return to.String()
}

// token is the answer of a token endpoint (RFC 6749, section 5.1).
type token struct {
	Access  string          `json:"access_token"`
	Refresh string          `json:"refresh_token"`
	Type    string          `json:"token_type"`
	Scope   scopes          `json:"scope"`
	Lasts   json.RawMessage `json:"expires_in"` // a number, which some servers send as a string
	Error   string          `json:"error"`      // an error in an answer of success
}

// scopes are separated by spaces. Some servers send them as a list.
type scopes string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scopes) UnmarshalJSON(text []byte) error {
	var list []string
	if json.Unmarshal(text, &list) == nil {
		*s = scopes(strings.Join(list, " "))
		return nil
	}
	return json.Unmarshal(text, (*string)(s))
}

// expires returns when the token expires; zero if unknown.
func (t *token) expires(now time.Time) time.Time {
	seconds, err := strconv.ParseFloat(strings.Trim(string(t.Lasts), `"`), 64)
	if err != nil || !(seconds > 0 && seconds <= math.MaxInt32) {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second)
}

// put stores the tokens in a connection. A missing refresh token leaves the old one valid (RFC 6749,
// section 6).
func (t *token) put(k *store.Connection, now time.Time) {
	k.Access, k.Expires = t.Access, t.expires(now)
	k.Refresh = cmp.Or(t.Refresh, k.Refresh)
	if granted := strings.Join(tokens(string(t.Scope)), " "); len(granted) <= maxScopes {
		k.Scope = cmp.Or(granted, k.Scope)
	}
}

// errOtherClient means that a token was issued to another client_id than the current one.
var errOtherClient = errors.New("the token was issued to another client_id")

// errMoved means that the token endpoint has another origin than the one that issued a token.
var errMoved = errors.New("the token endpoint is not at the origin that issued the token")

// serverOf returns the authorization server of a connection. The error is errMoved if its tokens
// must not be sent there: the metadata may have changed since they were issued, also on purpose.
func (c *Client) serverOf(ctx context.Context, u Upstream, k store.Connection) (*serverMetadata, error) {
	s, err := c.discoverServer(ctx, u, k.Issuer)
	if err == nil && !SameOrigin(s.TokenEndpoint, k.TokenEndpoint) {
		return nil, errMoved
	}
	return s, err
}

// exchange requests tokens for a resource at the issuer of k, as its client.
func (c *Client) exchange(
	ctx context.Context, u Upstream, k store.Connection, resource string, form url.Values,
) (*token, error) {
	s, err := c.serverOf(ctx, u, k)
	if err != nil {
		return nil, err
	}
	who, err := c.clientOf(ctx, u, s, k)
	if err != nil {
		return nil, err
	}
	return c.exchangeAs(ctx, u, s, who, resource, form)
}

// exchangeAs requests tokens for a resource, "" for none, at a token endpoint, as the client who.
func (c *Client) exchangeAs(
	ctx context.Context, u Upstream, s *serverMetadata, who store.UpstreamClient, resource string, form url.Values,
) (*token, error) {
	if resource != "" {
		form.Set("resource", resource)
	}
	body, err := c.form(ctx, u, s, s.TokenEndpoint, who, form)
	if err != nil {
		return nil, err
	}
	var t token
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, errors.New("its answer is not JSON") // the decoder's error might contain a token
	}
	switch {
	case t.Error != "":
		return nil, u.concealed(&errorAnswer{status: http.StatusOK, code: t.Error}, who, form)
	case t.Access == "" || strings.IndexFunc(t.Access+t.Refresh, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0:
		return nil, errors.New("its answer has no valid token")
	case t.Type != "" && !strings.EqualFold(t.Type, "Bearer"):
		return nil, fmt.Errorf("its token is of %s, want Bearer", typeOf(t.Type))
	}
	return &t, nil
}

// typeOf names a type of tokens. An unknown one may repeat what the server was sent.
func typeOf(name string) string {
	for _, known := range []string{"DPoP", "PoP", "mac", "N_A"} {
		if strings.EqualFold(name, known) {
			return "the type " + known
		}
	}
	return "an unknown type"
}

// concealed removes from the codes of an answer what the server was sent, which it may repeat there: people read them.
func (u Upstream) concealed(no *errorAnswer, who store.UpstreamClient, form url.Values) *errorAnswer {
	secrets := []string{u.ClientSecret, who.Secret}
	for _, name := range []string{"client_secret", "client_assertion", "refresh_token", "code", "code_verifier"} {
		secrets = append(secrets, form.Get(name))
	}
	for _, secret := range secrets {
		if len(secret) >= leastConcealed {
			no.code, no.other = strings.ReplaceAll(no.code, secret, "..."), strings.ReplaceAll(no.other, secret, "...")
		}
	}
	return no
}

// leastConcealed is the least length of what is concealed: a shorter one may be a part of other words.
const leastConcealed = 8

// form posts a form to an endpoint of an authorization server, with client authentication.
func (c *Client) form(
	ctx context.Context, u Upstream, s *serverMetadata, where string, who store.UpstreamClient, form url.Values,
) ([]byte, error) {
	asked := clientRequest{upstream: u, server: s, who: who, where: where, form: form}
	if err := c.prove(&asked); err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodPost, asked.where, strings.NewReader(asked.form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if asked.basic != nil {
		r.SetBasicAuth(asked.basic[0], asked.basic[1])
	}
	_, body, err := c.send(ctx, u, r, asked.certificate)
	if no, refused := errors.AsType[*errorAnswer](err); refused {
		u.concealed(no, who, asked.form)
	}
	return body, err
}
