package client

import (
	"errors"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file decides what the answer to a handshake proves about the era of a server.

// A verdict is what the error of server/discover proves.
type verdict int

const (
	// provesNothing: the server, or a gateway in front of it, got the request, and the answer is no
	// evidence of an era. initialize decides.
	provesNothing verdict = iota
	// provesLegacy: the server does not support the modern era (2026-07-28, basic/versioning).
	provesLegacy
	// provesModern: a recognized error of the modern era.
	provesModern
	// notAsked: the server did not get the request, or Junction could not read the answer.
	notAsked
)

// verdictOf returns what an error of server/discover proves.
func verdictOf(err error) verdict {
	if errors.As(err, new(*notModernError)) {
		return provesLegacy
	}
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		switch {
		case !mayDeny(status.Status):
			return provesNothing
		case status.Message == nil:
			return provesLegacy
		}
	}
	rpcErr, ok := errors.AsType[*jsonrpc.Error](asRPCError(err))
	switch {
	case !ok && (errors.Is(err, transport.ErrNotSent) || errors.Is(err, transport.ErrClosed) ||
		errors.As(err, new(*transport.MemoryError)) && !errors.Is(err, transport.ErrInvalid)):
		return notAsked
	case !ok:
		return provesNothing
	}
	switch rpcErr.Code {
	case mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY:
		return provesModern
	case mcp.UNSUPPORTED_PROTOCOL_VERSION:
		list := supportedVersions(rpcErr)
		if len(list) == 0 || slices.ContainsFunc(list, mcp.IsModernProtocol) {
			return provesModern
		}
	}
	return provesLegacy
}

// mayDeny reports whether an HTTP error with this status is evidence of an era. 401, 403, 429, 5xx
// and redirects are none.
func mayDeny(status int) bool {
	switch status {
	case 401, 403, 407, 408, 429:
		return false
	}
	return status >= 400 && status < 500
}

// classifyDiscoverError returns a *notModernError if the answer to server/discover proves that the
// server belongs to the legacy era. Otherwise it returns err.
func classifyDiscoverError(err error) error {
	if verdictOf(err) == provesLegacy {
		return &notModernError{asRPCError(err)}
	}
	return err
}

// supportedVersions returns the versions that the error lists as supported; nil for none.
func supportedVersions(e *jsonrpc.Error) (versions []string) {
	v, _ := raw.Get(e.Data, "supported")
	list, _ := raw.Elements(v)
	for _, item := range list {
		if s, err := raw.String(item); err == nil {
			versions = append(versions, s)
		}
	}
	return versions
}

// deniesLegacy reports whether the error of initialize shows that the server supports only the
// modern era.
func deniesLegacy(err error) bool {
	rpcErr, ok := errors.AsType[*jsonrpc.Error](asRPCError(err))
	if !ok {
		return false
	}
	switch rpcErr.Code {
	case mcp.UNSUPPORTED_PROTOCOL_VERSION, mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY,
		mcp.METHOD_NOT_FOUND:
		return true
	}
	return false
}

// refused reports whether the server has answered initialize, and will give the same answer again.
func refused(err error) bool {
	if status, ok := errors.AsType[*transport.StatusError](err); ok && !mayDeny(status.Status) {
		return false
	}
	_, answered := errors.AsType[*jsonrpc.Error](err)
	return answered || errors.Is(err, transport.ErrInvalid) || errors.As(err, new(*transport.StatusError))
}

// asRPCError returns the JSON-RPC error in the body of an HTTP error. It returns err itself for
// 401, 403, 407 and an ended session.
func asRPCError(err error) error {
	status, ok := errors.AsType[*transport.StatusError](err)
	if ok && status.Message != nil && status.Message.Error != nil &&
		status.Status != 401 && status.Status != 403 && status.Status != 407 &&
		!errors.Is(err, transport.ErrSessionGone) {
		return status.Message.Error
	}
	return err
}

// unlessAnswered returns the error of a request whose answer is not of interest; nil if the server
// has answered with an error.
func unlessAnswered(err error) error {
	if _, answered := errors.AsType[*jsonrpc.Error](asRPCError(err)); answered {
		return nil
	}
	return err
}

// A RejectedError is the error of an attempt to connect in which a server rejected two handshakes: one in
// each era, or one over each of two transports. Err is one of them; it gives the text and the chain.
type RejectedError struct {
	Err    error
	Method string // of the other handshake, or its transport
	Other  error
}

func (e *RejectedError) Error() string { return e.Err.Error() }
func (e *RejectedError) Unwrap() error { return e.Err }

// rejected returns the error of an attempt whose handshakes have failed. An error with a challenge
// says how to sign in, so it counts first. If the server rejects initialize as a server of the
// modern era does, the reason is the error of server/discover.
func rejected(discover, initialize error) error {
	proof := verdictOf(discover)
	if discover == nil || proof == provesLegacy { // only initialize could succeed
		return handshakeError(initialize)
	}
	first, second := challenge(discover), challenge(initialize)
	discover, initialize = handshakeError(discover), handshakeError(initialize)
	if first == second && discover.Error() == initialize.Error() {
		return initialize
	}
	if first > second || second == 0 && (proof == provesModern || deniesLegacy(initialize)) {
		return &RejectedError{discover, string(mcp.MethodInitialize), initialize}
	}
	return &RejectedError{initialize, string(mcp.MethodServerDiscover), discover}
}

// rejectedOverSSE returns the error of an attempt that Streamable HTTP and then HTTP+SSE have rejected. The
// error over HTTP+SSE counts first only if its challenge tells more.
func rejectedOverSSE(err, sse error) error {
	if challenge(sse) > challenge(err) {
		return &RejectedError{sse, "Streamable HTTP", err}
	}
	return &RejectedError{err, "HTTP+SSE", sse}
}

// challenge returns how much an error tells about the sign-in: 2 if it names the metadata of the
// sign-in, 1 if it has another challenge, and 0 if it has none.
func challenge(err error) int {
	status, ok := errors.AsType[*transport.StatusError](err)
	if !ok {
		return 0
	}
	_, lacks := status.Lacks()
	switch {
	case status.WantsOAuth():
		return 2
	case lacks, status.Status == 401 && len(status.Challenge) > 0:
		return 1
	}
	return 0
}
