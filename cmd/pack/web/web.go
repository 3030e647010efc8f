// Package web sends the HTTP requests of tools. It bounds responses in size and time, follows
// redirects only within the origin of the request, and returns a response that is no success as an
// error for the model.
//
// request.go makes the request of an http tool from its template. reach.go keeps the requests of a
// fetched document away from addresses that are not public.
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"junction/cmd/pack/manifest"
	"junction/upstream/pace"
)

// Client sends requests. It is safe for concurrent use.
type Client struct{ http http.Client }

// maxRedirects limits the redirects of one request.
const maxRedirects = 5

// NewClient returns a client for the hosts that a manifest names. Idle connections are kept for
// later calls.
func NewClient() *Client { return newClient(transport()) }

func newClient(t *http.Transport) *Client {
	return &Client{http.Client{Transport: t, CheckRedirect: sameOrigin}}
}

func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxResponseHeaderBytes = 256 << 10
	return t
}

var errOrigin = errors.New("the API redirects to another host, which does not get the request; correct the URL")

// sameOrigin refuses redirects to other places, which must not get the headers of the request.
func sameOrigin(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("the API redirects more than %d times", maxRedirects)
	case r.URL.Scheme != first.Scheme || r.URL.Host != first.Host:
		return errOrigin
	}
	return nil
}

// Request is one request. Its URL and header may have secrets.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
	// Repeat means that a request which the API has received may be sent once more.
	Repeat bool
}

// Response is the answer to a request: a success.
type Response struct {
	Status int
	Type   string // the media type without parameters; "" if there is none
	Body   []byte
	Cut    bool // Body is the beginning of a longer answer
}

// Send sends a request within the limits of a tool. Errors are for the model: they have the status
// and the beginning of the answer, and never the URL or a header.
//
// A request that may be repeated is sent again if its connection is refused, or if the answer is 503
// Service Unavailable, after a pause with jitter, and not before Retry-After (RFC 9110, 10.2.3). All
// attempts together have the timeout of the tool.
func (c *Client) Send(ctx context.Context, name string, r *Request, limits manifest.Limits) (*Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Timeout, errTimeout)
	defer cancel()
	retries := limits.Retries.Count
	if !r.Repeat {
		retries = 0
	}
	var pauses pace.Backoff
	for began := time.Now(); ; retries-- {
		response, after, err := c.attempt(ctx, name, r, limits, began)
		if retries <= 0 || after < 0 {
			return response, err
		}
		pause := max(pauses.Next(), after+rand.N(after/4+1))
		if deadline, _ := ctx.Deadline(); time.Until(deadline) < pause || !pace.Sleep(ctx, pause, nil) {
			return response, err
		}
	}
}

// attempt sends the request once. after is the least pause before it may be sent again; -1 if another
// attempt is of no use.
func (c *Client) attempt(ctx context.Context, name string, r *Request, limits manifest.Limits,
	began time.Time) (answer *Response, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, -1, fmt.Errorf("the arguments of %s make no valid URL", name)
	}
	req.Header = r.Header.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "junction-pack")
	}
	response, err := c.http.Do(req)
	if err != nil {
		if after = -1; errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil {
			after = 0
		}
		return nil, after, failed(ctx, name, err, limits)
	}
	defer response.Body.Close()
	most := int64(limits.MaxOutput)
	body, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, -1, failed(ctx, name, err, limits)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	cut := int64(len(body)) > most
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		if after = -1; response.StatusCode == http.StatusServiceUnavailable {
			after = retryAfter(response.Header, time.Now())
		}
		return nil, after, fmt.Errorf("the API answered %s after %v%s", response.Status,
			time.Since(began).Round(time.Millisecond), beginning(kind, body))
	case cut && !(limits.Cuts() && IsText(kind)):
		return nil, -1, fmt.Errorf("the API answered with more than the limit of %d bytes (max_output); ask for less%s",
			most, beginning(kind, body))
	}
	return &Response{response.StatusCode, kind, body[:min(int64(len(body)), most)], cut}, -1, nil
}

// retryAfter returns the time that an answer asks to wait; 0 if it names none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

var errTimeout = errors.New("timeout")

// failed returns the reason why there is no answer, without the URL.
func failed(ctx context.Context, name string, err error, limits manifest.Limits) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("the API of %s did not answer within the timeout of %v", name, limits.Timeout)
	case cause != nil:
		return cause
	}
	if errors.Is(err, errSpecial) {
		return fmt.Errorf("the API of %s cannot be reached: %w", name, errSpecial)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return fmt.Errorf("the API of %s cannot be reached: %w", name, err)
}

// beginning returns the first kilobyte of an answer, for an error.
func beginning(kind string, body []byte) string {
	const shown = 1 << 10
	if len(body) == 0 {
		return " with no content"
	}
	text := strings.ToValidUTF8(string(body[:min(len(body), shown)]), "\uFFFD")
	if kind == "" {
		kind = "no Content-Type"
	}
	if strings.ContainsRune(text, 0) {
		return fmt.Sprintf(" with %d bytes (%s)", len(body), kind)
	}
	return fmt.Sprintf(" (%s):\n%s", kind, text)
}

// IsText reports whether an answer of a media type is text, of which a part is of use. An answer
// without a type is text.
func IsText(kind string) bool {
	return kind == "" || strings.HasPrefix(kind, "text/") || IsJSON(kind) || kind == "application/xml" ||
		strings.HasSuffix(kind, "+xml")
}

// IsJSON reports whether a media type is JSON.
func IsJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// Annotations returns the hints about requests with a method (RFC 9110, 9.2). POST may do anything,
// so that MCP's own defaults apply.
func Annotations(method string) manifest.Annotations {
	yes, no := true, false
	a := manifest.Annotations{OpenWorld: &yes}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		a.ReadOnly, a.Destructive, a.Idempotent = &yes, &no, &yes
	case http.MethodPut, http.MethodDelete:
		a.ReadOnly, a.Destructive, a.Idempotent = &no, &yes, &yes
	case http.MethodPost, http.MethodPatch:
		a.ReadOnly = &no
	}
	return a
}
