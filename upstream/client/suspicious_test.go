package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// TestSuspicious is the table of the answers that may be those of a lost session.
func TestSuspicious(t *testing.T) {
	said := func(code int) error { return &jsonrpc.Error{Code: int64(code)} }
	status := func(code int, change ...func(*transport.StatusError)) error {
		e := &transport.StatusError{Status: code}
		for _, f := range change {
			f(e)
		}
		return e
	}
	challenge := func(text string) func(*transport.StatusError) {
		return func(e *transport.StatusError) { e.Challenge = []string{text} }
	}
	message := func(id string, code int) func(*transport.StatusError) {
		return func(e *transport.StatusError) {
			e.Message = &jsonrpc.Message{ID: jsonrpc.ID(id), Error: &jsonrpc.Error{Code: int64(code)}}
		}
	}
	renewed := func(e *transport.StatusError) { e.Renewed = true }
	result := func(e *transport.StatusError) { e.HasResult = true }
	later := func(e *transport.StatusError) { e.RetryAfter = time.Second }
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"400", status(400), true},
		{"400 with an error for the request", status(400, message("7", -32000)), true},
		{"400 about the params", status(400, message("7", -32602)), false},
		{"400 about the params of no request", status(400, message("", -32602)), true},
		{"400 with the result", status(400, result), false},
		{"500 with the result", status(500, result), false},
		{"401", status(401), true},
		{"401 with a challenge", status(401, challenge("Bearer")), false},
		{"401 with a challenge to a renewed token", status(401, challenge("Bearer"), renewed), true},
		{"403", status(403), true},
		{"403 for lack of a scope", status(403, challenge(`Bearer error="insufficient_scope"`)), false},
		{"404", status(404), false},
		{"404 that has ended the session", transport.NotSent(fmt.Errorf("%w: %w", transport.ErrSessionGone, status(404))), false},
		{"405", status(405), false},
		{"410", status(410), true},
		{"429", status(429), false},
		{"429 with a code", status(429, message("7", -32000)), false},
		{"500", status(500), true},
		{"502", status(502), true},
		{"503", status(503), true},
		{"503 that names a time", status(503, later), false},
		{"a page", status(200), false},
		{"an invalid request", said(-32600), true},
		{"an internal error", said(-32603), true},
		{"the first code of servers", said(-32000), true},
		{"the last code of servers", said(-32099), true},
		{"a code beyond them", said(-32100), false},
		{"an unknown method", said(-32601), false},
		{"invalid params", said(-32602), false},
		{"an unknown resource", said(-32002), false},
		{"a URL to open", said(-32042), false},
		{"a code of the server's own", said(-1), false},
		{"a wrapped answer", fmt.Errorf("tools/list: %w", status(500)), true},
		{"no answer", errors.New("connection refused"), false},
		{"success", nil, false},
	} {
		if got := Suspicious(row.err); got != row.want {
			t.Errorf("%s: Suspicious = %v, want %v", row.name, got, row.want)
		}
		if got, want := FailsControl(row.err), row.want || row.name == "401 with a challenge"; got != want {
			t.Errorf("%s: FailsControl = %v, want %v", row.name, got, want)
		}
	}
}
