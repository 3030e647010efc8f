package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"junction/auth/store"
)

// Problem is why a person cannot connect an upstream. Its text is for that person; the cause is for
// the log.
type Problem struct {
	Text string
	Err  error // may be nil
}

func (p *Problem) Error() string {
	if p.Err != nil {
		return p.Text + ": " + p.Err.Error()
	}
	return p.Text
}

func (p *Problem) Unwrap() error { return p.Err }

// Public is the text for the person.
func (p *Problem) Public() string { return p.Text }

func problem(err error, format string, args ...any) error {
	return &Problem{fmt.Sprintf(format, args...), err}
}

// refusal is an answer of an authorization server that is no.
type refusal struct {
	status int
	code   string // its word, "" where it has none
}

func (r *refusal) Error() string { return fmt.Sprintf("it refuses with %d %s", r.status, r.code) }

// maxAnswer bounds what an authorization server says.
const maxAnswer = 64 << 10

// send sends a request about an upstream to whom it may go to, and returns the body of a 2xx. The
// error is a *refusal if the answer is another one that means no.
func (c *Client) send(ctx context.Context, u Upstream, r *http.Request) (http.Header, []byte, error) {
	client := c.strangers
	if at, err := url.Parse(u.URL); err == nil && sameOrigin(at, r.URL) {
		client = c.own
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch status := response.StatusCode; {
	case err != nil:
		return nil, nil, err
	case len(body) > maxAnswer:
		return nil, nil, errors.New("the answer is too large")
	case status >= 500 || status == http.StatusTooManyRequests:
		return nil, nil, fmt.Errorf("it answers %d", status)
	case status/100 != 2:
		var said struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(body, &said) // without a word it is the status that counts
		return response.Header, nil, &refusal{status, plain(said.Error)}
	}
	return response.Header, body, nil
}

// plain is a word of a stranger's as it may be shown.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= ' ' && r <= '~' {
			return r
		}
		return -1
	}, s[:min(len(s), 60)])
}

// get reads a document of JSON.
func (c *Client) get(ctx context.Context, u Upstream, where string, into any) error {
	r, err := http.NewRequest(http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	header, body, err := c.send(ctx, u, r)
	if err != nil {
		return err
	}
	if media, _, _ := mime.ParseMediaType(header.Get("Content-Type")); media != "application/json" {
		return fmt.Errorf("%s is no JSON", where)
	}
	return json.Unmarshal(body, into)
}

// token is the answer of a token endpoint (RFC 6749, section 5.1).
type token struct {
	Access  string          `json:"access_token"`
	Refresh string          `json:"refresh_token"`
	Type    string          `json:"token_type"`
	Scope   string          `json:"scope"`
	Lasts   json.RawMessage `json:"expires_in"` // a number, which some write as a string
}

// expires is when the token ends; zero if nobody says.
func (t *token) expires(now time.Time) time.Time {
	seconds, err := strconv.ParseInt(strings.Trim(string(t.Lasts), `"`), 10, 32)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second)
}

// errOtherClient means that we are not any more who a token was given to.
var errOtherClient = errors.New("it was given to another client than we are now")

// exchange asks the issuer of k for tokens for its resource, as its client.
func (c *Client) exchange(ctx context.Context, u Upstream, k store.Connection, form url.Values) (*token, error) {
	s, err := c.describe(ctx, u, k.Issuer)
	if err != nil {
		return nil, err
	}
	who, err := c.clientOf(ctx, u, s, k)
	if err != nil {
		return nil, err
	}
	return c.exchangeAs(ctx, u, s, who, k.Resource, form)
}

// exchangeAs asks a token endpoint for tokens for a resource, as the client that who describes.
func (c *Client) exchangeAs(
	ctx context.Context, u Upstream, s *server, who store.UpstreamClient, resource string, form url.Values,
) (*token, error) {
	form.Set("resource", resource)
	body, err := c.form(ctx, u, s.TokenEndpoint, who, form)
	if err != nil {
		return nil, err
	}
	var t token
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, errors.New("its answer is no JSON") // the text of the error might hold a token
	}
	switch {
	case t.Access == "" || strings.IndexFunc(t.Access+t.Refresh, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0:
		return nil, errors.New("its answer has no token that can be sent")
	case t.Type != "" && !strings.EqualFold(t.Type, "Bearer"):
		return nil, fmt.Errorf("its token is of the type %s, want Bearer", plain(t.Type))
	}
	return &t, nil
}

// form posts a form to an authorization server as a client of its.
func (c *Client) form(
	ctx context.Context, u Upstream, where string, who store.UpstreamClient, form url.Values,
) ([]byte, error) {
	switch who.AuthMethod {
	case methodPost:
		form.Set("client_id", who.ClientID)
		form.Set("client_secret", who.Secret)
	case methodNone:
		form.Set("client_id", who.ClientID)
	}
	r, err := http.NewRequest(http.MethodPost, where, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if who.AuthMethod == methodBasic {
		r.SetBasicAuth(url.QueryEscape(who.ClientID), url.QueryEscape(who.Secret)) // RFC 6749, section 2.3.1
	}
	_, body, err := c.send(ctx, u, r)
	return body, err
}
