package proxy

import (
	"context"
	"errors"
	"slices"

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

// An OutcomeRow has what an outcome decides.
type OutcomeRow struct {
	Outcome
	// Kinds are the failures between Junction and an upstream that end a call so. Each kind is in one row.
	Kinds []client.Kind
	// Fails says which calls the alert JunctionCallsFail counts.
	Fails Failing
	// Unreached means that the upstream was not reached or did not answer, so that the audit has the error.
	Unreached bool
	// Doubtful means that the upstream may have executed the call without an answer: the log warns.
	Doubtful bool
}

// Failing says which calls of an outcome are failures of their upstream, for the alert JunctionCallsFail.
type Failing string

const (
	NeverFails  Failing = "never"    // the caller, the user or a policy decided, or the call succeeded
	ServerFails Failing = "upstream" // those that name an upstream; the others are limits of the caller
	AlwaysFails Failing = "always"
)

// outcomes is the table of the outcomes.
var outcomes = []OutcomeRow{
	{Outcome: OK, Fails: NeverFails},
	{Outcome: ToolError, Fails: NeverFails},
	{Outcome: Error, Kinds: []client.Kind{client.KindInvalid}, Fails: AlwaysFails},
	{Outcome: Denied, Fails: NeverFails},
	{Outcome: Declined, Fails: NeverFails},
	{Outcome: Unanswered, Kinds: []client.Kind{client.KindUnanswered}, Fails: NeverFails},
	{Outcome: Limited, Kinds: []client.Kind{client.KindBusy}, Fails: ServerFails},
	{Outcome: Invalid, Fails: NeverFails},
	{Outcome: Unavailable, Kinds: []client.Kind{client.KindUnavailable, client.KindStateLost}, Fails: AlwaysFails,
		Unreached: true},
	{Outcome: Timeout, Kinds: []client.Kind{client.KindTimeout}, Fails: AlwaysFails, Unreached: true, Doubtful: true},
	{Outcome: Lost, Kinds: []client.Kind{client.KindLost}, Fails: AlwaysFails, Unreached: true, Doubtful: true},
	{Outcome: Cancelled, Kinds: []client.Kind{client.KindCancelled}, Fails: NeverFails},
}

// Outcomes returns all outcomes.
func Outcomes() (all []Outcome) {
	for i := range outcomes {
		all = append(all, outcomes[i].Outcome)
	}
	return all
}

// Row returns what the outcome decides; the zero row for another word.
func (o Outcome) Row() OutcomeRow {
	for i := range outcomes {
		if outcomes[i].Outcome == o {
			return outcomes[i]
		}
	}
	return OutcomeRow{}
}

// OutcomeOf returns the outcome of a call that failed between Junction and the upstream.
func OutcomeOf(k client.Kind) Outcome {
	for i := range outcomes {
		if slices.Contains(outcomes[i].Kinds, k) {
			return outcomes[i].Outcome
		}
	}
	return Error
}

// decideOutcome sets the outcome of a call that has ended with err. It is the only place that does.
// A step that ends the call with a result has set info.Outcome before, if the result is no success.
func decideOutcome(info *CallInfo, err error) {
	own, refused := errors.AsType[*Refusal](err)
	peer, answered := errors.AsType[*jsonrpc.Error](err)
	ours, failed := errors.AsType[*upstream.Error](err)
	cancelled := errors.Is(err, context.Canceled)
	switch {
	case cancelled && !failed:
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
	case answered && peer.Code == mcp.URL_ELICITATION_REQUIRED && !cancelled:
		info.Outcome = Unanswered
	case refused && own.Outcome != "":
		info.Outcome = own.Outcome
	case refused && denies(info.Verdict):
		info.Outcome = Denied
	case refused, errors.Is(err, raw.ErrAmbiguous), errors.Is(err, raw.ErrMany):
		info.Outcome = Invalid
	case failed:
		info.Outcome = OutcomeOf(ours.Kind)
	default: // also an error of the upstream
		info.Outcome = Error
	}
}
