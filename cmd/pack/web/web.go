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
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"junction/cmd/pack/manifest"
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
}

// Response is the answer to a request: a success.
type Response struct {
	Status int
	Type   string // the media type without parameters; "" if there is none
	Body   []byte
}

// Send sends a request within the limits of a tool. Errors are for the model: they have the status
// and the beginning of the answer, and never the URL or a header.
func (c *Client) Send(ctx context.Context, name string, r *Request, limits manifest.Limits) (*Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Timeout, errTimeout)
	defer cancel()
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s make no valid URL", name)
	}
	req.Header = r.Header.Clone()
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "junction-pack")
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, failed(ctx, name, err, limits)
	}
	defer response.Body.Close()
	most := int64(limits.MaxOutput)
	body, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, failed(ctx, name, err, limits)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, fmt.Errorf("the API answered %s after %v%s", response.Status,
			time.Since(began).Round(time.Millisecond), beginning(kind, body))
	case int64(len(body)) > most:
		return nil, fmt.Errorf("the API answered with more than the limit of %d bytes (max_output); ask for less%s",
			most, beginning(kind, body))
	}
	return &Response{response.StatusCode, kind, body}, nil
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
