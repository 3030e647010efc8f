package proxy

import (
	"cmp"
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Outcome says how a call ended. The audit, the log and the status page share these words.
type Outcome string

const (
	OK        Outcome = "ok"         // the upstream answered, or it asked the client something
	ToolError Outcome = "tool_error" // the upstream's result has isError
	// the upstream answered with an error, or with something that is no valid answer; also an
	// internal error of Junction
	Error Outcome = "error"
	// policy hides the target or cannot check its arguments, or the caller's token lacks a scope
	Denied      Outcome = "denied"
	Declined    Outcome = "declined"    // the user at the client did not approve the call
	Unanswered  Outcome = "unanswered"  // a question that the call depends on was not answered
	Limited     Outcome = "limited"     // the caller, the proxy or the upstream has too much to do
	Invalid     Outcome = "invalid"     // the request is wrong, such as an unknown name or wrong arguments
	Unavailable Outcome = "unavailable" // there is no connection to the upstream, or the user must sign in to it
	Timeout     Outcome = "timeout"     // the upstream did not answer in time
	Lost        Outcome = "lost"        // the connection broke during the call, which may have been executed
	Cancelled   Outcome = "cancelled"   // the client gave up, or the proxy was shut down
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OK, ToolError, Error, Denied, Declined, Unanswered, Limited, Invalid, Unavailable, Timeout, Lost,
		Cancelled}
}

// decideOutcome sets the outcome of a call that has ended with err. It is the only place that does.
// A step that ends the call with a result has set info.Outcome before, if the result is no success.
func decideOutcome(info *CallInfo, err error) {
	var (
		own  *Refusal
		peer *jsonrpc.Error
		ours *upstream.Error
	)
	switch {
	case errors.Is(err, context.Canceled) && !errors.As(err, &ours):
		info.Outcome = Cancelled
	case info.Approval == approvalDeclined:
		info.Outcome = Declined
	case info.Approval == approvalAsked, info.Approval == approvalUnanswered, info.Approval == approvalImpossible:
		info.Outcome = Unanswered
	case err == nil && info.Outcome != "":
	case err == nil:
		info.Outcome = OK
	case needsSignIn(err) != nil:
		info.Outcome = Unavailable
	case errors.As(err, &peer) && peer.Code == mcp.URL_ELICITATION_REQUIRED && ours == nil:
		info.Outcome = Unanswered
	case errors.As(err, &own) && own.Outcome != "":
		info.Outcome = own.Outcome
	case own != nil && denies(info.Verdict):
		info.Outcome = Denied
	case own != nil, errors.Is(err, raw.ErrAmbiguous), errors.Is(err, raw.ErrMany):
		info.Outcome = Invalid
	case errors.As(err, &ours):
		info.Outcome = cmp.Or(outcomeOf[ours.Kind], Error)
	default: // also an error of the upstream
		info.Outcome = Error
	}
}

// outcomeOf has the outcomes of calls that failed between Junction and the upstream. Others are
// Error, also client.KindInvalid: the answer is invalid, not the request.
var outcomeOf = map[client.Kind]Outcome{client.KindUnavailable: Unavailable, client.KindTimeout: Timeout,
	client.KindLost: Lost, client.KindBusy: Limited, client.KindCancelled: Cancelled,
	client.KindUnanswered: Unanswered, client.KindStateLost: Unavailable}
