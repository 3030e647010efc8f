package call

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
	"junction/upstream/transport"
)

// This file asks a URL whether a client could use it.

// A Verdict is what the answer of a URL means for a client that is to use it.
type Verdict int

const (
	// Unreached: nothing answers now, or a gateway says that. The URL may be right.
	Unreached Verdict = iota
	// NoEndpoint: another service answers, or Junction at another path, or it rejects every request.
	NoEndpoint
	// NeedsKey: the endpoint rejects a request without an API key, or with this one. It offers no sign-in.
	NeedsKey
	// NoRights: the endpoint accepts the credential, and no policy gives it access.
	NoRights
	// OffersSignIn: the endpoint requires a sign-in.
	OffersSignIn
	// Works: the endpoint accepts the request.
	Works
)

// An Answer is the answer of a URL.
type Answer struct {
	Verdict Verdict
	Status  int    // of an HTTP error; 0 if there was none
	Tools   int    // that the endpoint lists for the caller; -1 if that is not known
	Reason  string // why it does not work, for people; "" if it does
	Advice  string // what to do about the reason; may be ""
	// Distrusted: this machine does not trust the authority of the certificate.
	Distrusted bool
}

// probeLimit is how long Probe takes at most.
const probeLimit = 5 * time.Second

// Probe asks a URL whether it is an endpoint, as clients do in both eras, and lists the tools of the caller. key
// is an API key; "" sends no credential. Probe opens no browser. The caller checks the URL with CheckURL first, so
// that no key crosses a network in plain text.
func Probe(ctx context.Context, address, key string) Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, fmt.Errorf("no answer within %v", probeLimit))
	defer cancel()
	o := client.Options{URL: address}
	if key != "" {
		o.Headers = map[string]string{"Authorization": "Bearer " + key}
	}
	e, err := open(ctx, o, nil, nil)
	if err != nil {
		return judge(ctx, err)
	}
	defer e.close()
	a := Answer{Verdict: Works, Tools: -1}
	if tools, err := e.tools(ctx); err == nil {
		a.Tools = len(tools)
	}
	return a
}

// judge returns the answer for an error of a connection.
func judge(ctx context.Context, err error) Answer {
	a := Answer{Tools: -1, Reason: prose.Flat(err.Error()), Advice: TLSAdvice(err),
		Distrusted: errors.As(err, new(x509.UnknownAuthorityError))}
	status, answered := errors.AsType[*transport.StatusError](err)
	if answered && status.Status >= 300 {
		a.Verdict, a.Status, a.Reason = verdictOf(status), status.Status, "it answered "+statusText(status, false)
		if a.Verdict == NeedsKey || a.Verdict == NoRights {
			a.Reason = prose.Flat(stringOf(membersOf(status.Body)["error_description"]))
		}
		return a
	}
	switch {
	case ctx.Err() != nil:
		a.Reason, a.Advice = context.Cause(ctx).Error(), ""
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch),
		errors.As(err, new(x509.HostnameError)):
		a.Verdict = NoEndpoint
	case answered, errors.Is(err, transport.ErrInvalid): // a page, for one
		a.Verdict, a.Reason = NoEndpoint, "its answer is none of MCP: "+a.Reason
	case errors.As(err, new(*jsonrpc.Error)):
		a.Reason = "it answered: " + a.Reason
	}
	return a
}

// verdictOf returns what an HTTP error means.
func verdictOf(e *transport.StatusError) Verdict {
	signIn := func(challenge string) bool { return strings.Contains(challenge, "resource_metadata") }
	switch {
	case e.Status == http.StatusUnauthorized && slices.ContainsFunc(e.Challenge, signIn):
		return OffersSignIn
	case e.Status == http.StatusUnauthorized:
		return NeedsKey
	case e.Status == http.StatusForbidden && stringOf(membersOf(e.Body)["error"]) == "access_denied":
		return NoRights
	case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests, e.Status >= 500:
		return Unreached
	}
	return NoEndpoint
}

// WhyNoTools returns why the endpoint of the running junction that serves a file probably lists no tools for an
// API key.
func WhyNoTools(ctx context.Context, file, address, key string) string {
	f := clientFlags{file: &file, url: address, key: key}
	return strings.TrimSuffix(f.whyEmpty(ctx), "\n")
}
