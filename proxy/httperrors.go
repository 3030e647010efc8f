package proxy

import (
	"errors"
	"net/http"

	"junction/upstream"
)

// Only this file chooses the HTTP status of an error.

// httpError is an error of a front: a refusal with a status of its own.
type httpError struct {
	*refusal
	status int
}

// Unwrap returns the refusal.
func (e *httpError) Unwrap() error { return e.refusal }

func refuseHTTP(status int, code int64, format string, args ...any) *httpError {
	return &httpError{refuse(ReasonNone, code, format, args...), status}
}

// statuses are the HTTP statuses of the core's errors.
var statuses = [Reasons]int{
	ReasonNone:     http.StatusOK,
	ReasonRequest:  http.StatusBadRequest,
	ReasonSize:     http.StatusRequestEntityTooLarge,
	ReasonStream:   http.StatusNotAcceptable,
	ReasonScope:    http.StatusForbidden,
	ReasonMethod:   http.StatusNotFound,
	ReasonShare:    http.StatusTooManyRequests,
	ReasonBusy:     http.StatusServiceUnavailable,
	ReasonInternal: http.StatusInternalServerError,
}

// statusOf returns the status of an error, if the response has not begun.
func statusOf(err error, reason Reason) int {
	if own, ok := errors.AsType[*httpError](err); ok {
		return own.status
	}
	return statuses[reason]
}

// mismatch returns the error for a header that does not repeat what the body says.
func mismatch(format string, args ...any) *httpError {
	e := refuseHTTP(http.StatusBadRequest, codeHeaderMismatch, "Header mismatch: "+format, args...)
	e.outcome = Invalid
	return e
}

// retry sets Retry-After if the error has a time.
func retry(w http.ResponseWriter, err error) {
	if own, ok := errors.AsType[*refusal](err); ok && own.retry != "" {
		w.Header().Set("Retry-After", own.retry)
	}
}

// sessionError returns the error for a session that this process cannot serve: it is unknown, or
// another member has it.
func sessionError(err error) error {
	if err == errUnknownSession {
		return refuseHTTP(http.StatusNotFound, codeSessionNotFound, "Session not found")
	}
	return unavailable("this process cannot reach the process that has the session")
}

// codeSessionNotFound is the legacy code for an unknown session; clients use the status.
const codeSessionNotFound = -32001

// errForward returns the error for a request that was sent to its owner, which has not answered.
func errForward() error {
	return &httpError{memberError(ReasonNone, upstream.KindLost, "the process that has the session has ended, "+
		"or has broken the connection, before it answered; the call may have been executed"), http.StatusBadGateway}
}
