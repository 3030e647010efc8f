package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/budget"
	"junction/proxy/headers"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Only this file converts an error into the JSON-RPC error and the HTTP status that a client gets.

// refusal is Junction's own error for a request. status applies only if the response has not begun.
type refusal struct {
	status int
	code   int64
	text   string
	data   []byte
	// challenge is the WWW-Authenticate header, and retry the Retry-After header; "" for none.
	challenge, retry string
	outcome          Outcome // of the call; "" is Invalid, or Denied if the verdict is deny
}

func (e *refusal) Error() string { return e.text }

// Codes of 2026-07-28 (basic/index#error-codes).
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
	// codeSessionNotFound is the legacy code for an unknown session; clients use the status.
	codeSessionNotFound = -32001
)

func refuse(status int, code int64, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, text: fmt.Sprintf(format, args...)}
}

// malformed returns the error for an invalid body. err comes from jsonrpc.Parse or from package
// raw.
func malformed(err error) *refusal {
	var syntax *raw.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return refuse(http.StatusBadRequest, mcp.PARSE_ERROR, "Parse error: %v", err)
	case errors.Is(err, raw.ErrAmbiguous):
		return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Invalid Request: a member occurs twice, or in another letter case: %v", err)
	}
	return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "Invalid Request: %v", err)
}

// unknownMethod returns the error for a method that the caller's era does not have.
func (x *exchange) unknownMethod() *refusal {
	status := http.StatusOK
	if x.era == client.EraModern {
		status = http.StatusNotFound // 2026-07-28, streamable-http#protocol-version-header
	}
	return refuse(status, mcp.METHOD_NOT_FOUND, "Method not found: %.100s", x.msg.Method)
}

func invalidParams(format string, args ...any) *refusal {
	return refuse(http.StatusOK, mcp.INVALID_PARAMS, format, args...)
}

// unknownNamed returns the error for a tool or prompt that does not exist, or that policy hides from
// the client.
func unknownNamed(p upstream.Part, name string) *refusal {
	kind := "tool"
	if p == upstream.PartPrompts {
		kind = "prompt"
	}
	return invalidParams("Unknown %s: %.200s", kind, name)
}

// unknownResource returns the error for a URI that belongs to no upstream (2026-07-28,
// server/resources#error-handling, and 2025-11-25).
func unknownResource(era client.Era, uri string) *refusal {
	e := invalidParams("Resource not found")
	if era == client.EraLegacy {
		e.code = mcp.RESOURCE_NOT_FOUND
	}
	e.data = view.URIData(uri)
	return e
}

// noResource returns the error for a client of that era if SubjectView.Resource finds no upstream
// for a URI, or several.
func noResource(era client.Era, uri string, err error) *refusal {
	ambiguous, ok := errors.AsType[*view.AmbiguousError](err)
	if !ok {
		return unknownResource(era, uri)
	}
	first, more := ambiguous.Upstreams, ""
	if len(first) > 3 {
		first, more = first[:3], fmt.Sprintf(" and %d more", len(first)-3)
	}
	e := invalidParams("The URI could belong to %s%s. "+
		"Read it at /mcp/<upstream>, or by the URI that resources/list has for it", strings.Join(first, ", "), more)
	e.data = view.URIData(uri)
	return e
}

// cutOff is the cancellation cause of in-flight calls that Junction ends itself: when Kill is called
// (the zero value), or when another member may have the session. Upstreams see a cancelled call;
// the client gets this error.
type cutOff struct{ why string }

func (e cutOff) Error() string {
	return cmp.Or(e.why, "the proxy was shut down before the answer came")
}

// Is makes errors.Is treat cutOff as context.Canceled.
func (cutOff) Is(target error) bool { return target == context.Canceled }

// rpcError returns the JSON-RPC error for err, and the status if the response has not begun. An
// upstream's error is passed on, unless it concerns the connection between Junction and the
// upstream.
func rpcError(err error, upstreamName string) (*jsonrpc.Error, int) {
	var (
		own  *refusal
		peer *jsonrpc.Error
		ours *upstream.Error
		cut  cutOff
	)
	if need := needsSignIn(err); need != nil {
		return failure(need.Upstream, signInKind(need), signInMessage(need)), http.StatusOK
	}
	switch {
	case errors.As(err, &own):
		return &jsonrpc.Error{Code: own.code, Message: own.text, Data: own.data}, own.status
	case errors.As(err, &ours): // its chain may contain an upstream's error from the handshake
		return failure(ours.Upstream, string(ours.Kind), ours.Public()), http.StatusOK
	case errors.As(err, &peer):
		if !aboutHop(peer.Code) {
			return peer, http.StatusOK
		}
		return failure(upstreamName, "protocol", "upstream "+upstreamName+" refused our request: "+peer.Message),
			http.StatusOK
	case errors.As(err, new(headers.Mismatch)):
		return &jsonrpc.Error{Code: codeHeaderMismatch, Message: err.Error()}, http.StatusBadRequest
	case errors.Is(err, raw.ErrAmbiguous), errors.Is(err, raw.ErrMany):
		r := malformed(err)
		return &jsonrpc.Error{Code: r.code, Message: r.text}, r.status
	case errors.As(err, &cut):
		return failure(upstreamName, string(client.KindCancelled), cut.Error()), http.StatusOK
	case errors.Is(err, context.Canceled):
		return failure(upstreamName, string(client.KindCancelled), "the request was cancelled"), http.StatusOK
	}
	return &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: "Internal error"}, http.StatusInternalServerError
}

// aboutHop reports whether a code concerns the connection to the upstream, which is not the
// client's connection.
func aboutHop(code int64) bool {
	return slices.Contains([]int64{mcp.PARSE_ERROR, mcp.INVALID_REQUEST, mcp.METHOD_NOT_FOUND, codeHeaderMismatch,
		codeUnsupportedVersion}, code)
}

// failure returns an error of Junction's own; data.junction marks it.
func failure(upstreamName, kind, text string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: strings.ToValidUTF8(text, "\ufffd"),
		Data: fmt.Appendf(nil, `{"junction":{"upstream":%s,"kind":"%s"}}`, raw.Quote(upstreamName), kind)}
}

// overuseRefusal returns the error for a request beyond its account's limit. The status is 429 if
// the account has used its share. With 503, a proxy in front might treat Junction as broken and
// stop sending other callers' requests.
func overuseRefusal(e *budget.Exceeded) *refusal {
	things := [budget.Quotas]string{"requests are in progress", "streams are open", "bytes are held"}[e.Quota]
	wait, remedy := "1", "wait until a request of yours is over"
	if e.Quota == budget.Streams {
		wait, remedy = "30", "close a stream"
	}
	var r *refusal
	if e.Own > 0 && e.Own+e.Others < e.Total {
		r = refuse(http.StatusTooManyRequests, mcp.INTERNAL_ERROR,
			"too many %s for you: %d, and your share of %s is no more now; %s", things, e.Own, e.Quota.Limit(), remedy)
	} else {
		r = refuse(http.StatusServiceUnavailable, mcp.INTERNAL_ERROR,
			"too many %s: %d for you and %d for others (%s); try again later", things, e.Own, e.Others, e.Quota.Limit())
	}
	r.retry, r.outcome = wait, Limited
	return r
}

// overuseError converts a *budget.Exceeded into a refusal.
func overuseError(err error) error {
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		return overuseRefusal(e)
	}
	return err
}

// retry sets Retry-After if the refusal has a time.
func retry(w http.ResponseWriter, err error) {
	if own, ok := errors.AsType[*refusal](err); ok && own.retry != "" {
		w.Header().Set("Retry-After", own.retry)
	}
}

// limited returns the error for a caller over a limit of its policy, with the time to wait if it is
// known. The status stays 200, because some clients treat any other status as the end of the
// connection.
func limited(err error, wait time.Duration) *refusal {
	data := `{"junction":{"kind":"limited"}}`
	text := "too many of your calls are in progress (limits.concurrent of your policy); wait for one of them"
	again := ""
	if errors.Is(err, budget.ErrTooFast) {
		seconds := int(math.Ceil(wait.Seconds()))
		text = "too many requests (limits.rate of your policy); the next is possible in " + strconv.Itoa(seconds) + " s"
		data = fmt.Sprintf(`{"junction":{"kind":"limited","retryAfterMs":%d}}`, wait.Milliseconds()+1)
		again = strconv.Itoa(seconds)
	}
	return &refusal{status: http.StatusOK, code: mcp.INTERNAL_ERROR, text: text, data: []byte(data),
		retry: again, outcome: Limited}
}

// sessionError returns the error for a session that this process cannot serve: it is unknown, or
// another member has it.
func sessionError(err error) *refusal {
	if err == errUnknownSession {
		return refuse(http.StatusNotFound, codeSessionNotFound, "Session not found")
	}
	return unavailable("this process cannot reach the process that has the session")
}

// unavailable returns the error for a request that needs the other members while this process
// cannot reach them. Nothing was executed.
func unavailable(why string) *refusal {
	r := memberError(http.StatusServiceUnavailable, client.KindUnavailable, why+"; send the request again")
	r.retry = "1"
	return r
}

// memberError returns the error for a request that another member cannot answer. kind is that of
// calls of upstreams with the same outcome.
func memberError(status int, kind client.Kind, text string) *refusal {
	return &refusal{status: status, code: mcp.INTERNAL_ERROR, text: text,
		data: fmt.Appendf(nil, `{"junction":{"kind":"%s"}}`, kind), outcome: outcomeOf[kind]}
}

// errForward returns the error for a request that was sent to its owner, which has not answered.
func errForward() *refusal {
	return memberError(http.StatusBadGateway, client.KindLost, "the process that has the session has ended, "+
		"or has broken the connection, before it answered; the call may have been executed")
}

// errParkedGone returns the error for a parked call of a process that has ended.
func errParkedGone() *refusal {
	return memberError(http.StatusOK, client.KindLost, "the process that made this call has ended, and the call "+
		"with it; the call may have been executed. To make it again, send the request without requestState and "+
		"inputResponses")
}
