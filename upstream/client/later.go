package client

import (
	"errors"
	"net/http"
	"time"

	"junction/upstream/transport"
)

// laterError is the JSON-RPC error of a rejected handshake whose HTTP answer says when to come back.
type laterError struct {
	error
	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// handshakeError returns the error of a handshake as asRPCError does, and keeps the time of Retry-After.
func handshakeError(err error) error {
	rejection, after := asRPCError(err), RetryAfter(err)
	if rejection == err || after == 0 {
		return rejection
	}
	return &laterError{rejection, after}
}

// RetryAfter returns how long the server that has rejected an attempt to connect with 429 or 503 asks to
// wait (RFC 9110, section 10.2.3); 0 if it does not ask.
func RetryAfter(err error) time.Duration {
	if later, ok := errors.AsType[*laterError](err); ok {
		return later.after
	}
	status, ok := errors.AsType[*transport.StatusError](err)
	if !ok || status.Status != http.StatusTooManyRequests && status.Status != http.StatusServiceUnavailable {
		return 0
	}
	return status.RetryAfter
}
