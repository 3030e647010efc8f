package front

import (
	"context"
	"errors"
	"net/http"

	"junction/proxy"
	"junction/proxy/members"
	"junction/upstream/client"
)

// Only this file chooses the HTTP status of an error.

// httpError is an error of a front: a refusal with a status of its own.
type httpError struct {
	*proxy.Refusal
	status int
}

// Unwrap returns the refusal.
func (e *httpError) Unwrap() error { return e.Refusal }

func refuse(status int, code int64, format string, args ...any) *httpError {
	return &httpError{proxy.Refuse(proxy.ReasonNone, code, format, args...), status}
}

// statuses are the HTTP statuses of the core's errors.
var statuses = [proxy.Reasons]int{
	proxy.ReasonNone:     http.StatusOK,
	proxy.ReasonRequest:  http.StatusBadRequest,
	proxy.ReasonSize:     http.StatusRequestEntityTooLarge,
	proxy.ReasonStream:   http.StatusNotAcceptable,
	proxy.ReasonScope:    http.StatusForbidden,
	proxy.ReasonMethod:   http.StatusNotFound,
	proxy.ReasonShare:    http.StatusTooManyRequests,
	proxy.ReasonBusy:     http.StatusServiceUnavailable,
	proxy.ReasonInternal: http.StatusInternalServerError,
}

// statusOf returns the status of an error, if the response has not begun.
func statusOf(err error, reason proxy.Reason) int {
	if own, ok := errors.AsType[*httpError](err); ok {
		return own.status
	}
	return statuses[reason]
}

// mismatch returns the error for a header that does not repeat what the body says.
func mismatch(format string, args ...any) *httpError {
	e := refuse(http.StatusBadRequest, proxy.CodeHeaderMismatch, "Header mismatch: "+format, args...)
	e.Outcome = proxy.Invalid
	return e
}

// retry sets Retry-After if the error has a time.
func retry(w http.ResponseWriter, err error) {
	if own, ok := errors.AsType[*proxy.Refusal](err); ok && own.Retry != "" {
		w.Header().Set("Retry-After", own.Retry)
	}
}

// sessionError returns the error for a session that this process cannot serve: it is unknown, or
// another member has it.
func sessionError(err error) error {
	if _, ok := errors.AsType[*proxy.Refusal](err); ok {
		return err
	}
	if err == errUnknownSession {
		return refuse(http.StatusNotFound, codeSessionNotFound, "Session not found")
	}
	return proxy.UnavailableError("this process cannot reach the process that has the session")
}

// codeSessionNotFound is the legacy code for an unknown session; clients use the status.
const codeSessionNotFound = -32001

// errReleased is the error for a session that this process has given up, because it is stopping. A
// forwarded request with this error is sent to another member, which becomes the owner.
var errReleased = proxy.UnavailableError("this process is stopping")

// errForeign is the error for a session or a parked call of a process with another database. The
// next request may reach that process.
var errForeign = proxy.UnavailableError("a process with another database has this session or call")

// forwardError returns the error for a request that was not forwarded (ErrGone, ErrUnreachable,
// ErrAlone and others), or was sent to its owner, which has not answered.
func forwardError(err error) error {
	for _, refused := range []error{members.ErrGone, members.ErrUnreachable, members.ErrReleased, members.ErrAlone,
		context.DeadlineExceeded} {
		if errors.Is(err, refused) {
			return sessionError(err)
		}
	}
	return &httpError{proxy.MemberError(proxy.ReasonNone, client.KindLost, "the process that has the session has "+
		"ended, or has broken the connection, before it answered; the call may have been executed"),
		http.StatusBadGateway}
}
