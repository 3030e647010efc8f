package client

import (
	"errors"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// Suspicious reports whether the answer to a call, a list or a ping may mean that a server of the
// legacy era has lost the session. Good servers answer 404 then, which ends the session without a
// question; many answer one of the rows below. Each row can also be about the request alone, so a
// suspicious answer decides nothing.
func Suspicious(err error) bool {
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		return !ofRequest(status.Message) && suspiciousStatus(status)
	}
	rpcErr, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && suspiciousCode(rpcErr.Code)
}

// RejectsToken reports whether the server has answered 401 to a request that decides nothing about the
// sign-in, although its token is good as far as Junction knows.
func RejectsToken(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return ok && status.Renewed
}

// FailsControl reports whether an answer to a control question does not show that the session lives, but
// rather that it is lost. A 401 with a challenge counts, too: the server has answered the same question
// before.
func FailsControl(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return Suspicious(err) || ok && status.Status == http.StatusUnauthorized
}

// suspiciousStatus is the table of HTTP statuses.
func suspiciousStatus(e *transport.StatusError) bool {
	if e.HasResult { // so the server has read the request, and has the session
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusGone:
		return true
	case http.StatusUnauthorized: // otherwise the token, or headers of the entry, are wrong
		return len(e.Challenge) == 0 || e.Renewed
	case http.StatusForbidden:
		_, lacks := e.Lacks()
		return !lacks
	}
	return e.Status/100 == 5 && e.RetryAfter == 0 // with Retry-After, the server is busy
}

// suspiciousCode is the table of the codes of JSON-RPC errors.
func suspiciousCode(code int64) bool {
	switch code {
	case mcp.INVALID_REQUEST, mcp.INTERNAL_ERROR:
		return true
	}
	return -32099 <= code && code <= -32000 && !aboutRequest(code)
}

// aboutRequest reports whether a server that has the session uses the code: for an unknown method,
// wrong params, an unknown resource, and a user who has to open a URL.
func aboutRequest(code int64) bool {
	switch code {
	case mcp.METHOD_NOT_FOUND, mcp.INVALID_PARAMS, mcp.RESOURCE_NOT_FOUND, mcp.URL_ELICITATION_REQUIRED:
		return true
	}
	return false
}

// ofRequest reports whether an HTTP error has a JSON-RPC error that answers the request itself. An
// error without an id comes from a server that did not read the request.
func ofRequest(m *jsonrpc.Message) bool {
	return m != nil && m.ID != "" && aboutRequest(m.Error.Code)
}
