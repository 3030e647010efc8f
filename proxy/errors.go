package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Only this file converts an error into the JSON-RPC error that a client gets.

// Refusal is Junction's own error for a request.
type Refusal struct {
	reason  Reason
	code    int64
	text    string
	Data    []byte
	Scopes  string  // that the caller's token lacks, separated by spaces; "" for none
	Retry   string  // seconds after which the client may try again; "" if unknown
	Outcome Outcome // of the call; "" is Invalid, or Denied if the verdict is deny
	limit   string  // the key of the limit of the policy that the request exceeds; "" for none
}

// Reason tells a front why there is an error, so that it can choose the status of its transport.
type Reason int

// The reasons of errors.
const (
	ReasonNone    Reason = iota // an answer as any other
	ReasonRequest               // the request is invalid
	ReasonSize                  // the request is too large
	ReasonStream                // the answer would be a stream, which the client does not accept
	ReasonScope                 // the caller's token lacks a scope
	ReasonMethod                // a client of the modern era uses a method that does not exist
	ReasonShare                 // the caller has used its share
	ReasonBusy                  // Junction has no capacity, or cannot reach the other members
	ReasonInternal
	Reasons // number of reasons
)

func (e *Refusal) Error() string { return e.text }

// Refuse returns a refusal with a formatted text.
func Refuse(reason Reason, code int64, format string, args ...any) *Refusal {
	return &Refusal{reason: reason, code: code, text: fmt.Sprintf(format, args...)}
}

// Malformed returns the error for an invalid body. err comes from jsonrpc.Parse or from package
// raw.
func Malformed(err error) *Refusal {
	var syntax *raw.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return Refuse(ReasonRequest, mcp.PARSE_ERROR, "Parse error: %v", err)
	case errors.Is(err, raw.ErrAmbiguous):
		return Refuse(ReasonRequest, mcp.INVALID_REQUEST,
			"Invalid Request: a member occurs twice, or in another letter case: %v", err)
	}
	return Refuse(ReasonRequest, mcp.INVALID_REQUEST, "Invalid Request: %v", err)
}

// unknownMethod returns the error for a method that the caller's era does not have.
func (x *Exchange) unknownMethod() *Refusal {
	reason := ReasonNone
	if x.Era == client.EraModern {
		reason = ReasonMethod // 2026-07-28, streamable-http#protocol-version-header
	}
	return Refuse(reason, mcp.METHOD_NOT_FOUND, "Method not found: %.100s", x.Msg.Method)
}

// needsSession returns the error for a legacy request without a session, although what it is about
// needs one (2025-11-25, basic/transports#session-management).
func needsSession(what string) *Refusal {
	return Refuse(ReasonRequest, mcp.INVALID_REQUEST, "Bad Request: %s needs the header Mcp-Session-Id; "+
		"send initialize first, and then the header of its answer with each request", what)
}

// InvalidParams returns the error for params that are wrong.
func InvalidParams(format string, args ...any) *Refusal {
	return Refuse(ReasonNone, mcp.INVALID_PARAMS, format, args...)
}

// unknownNamed returns the error for a tool or prompt that does not exist, or that policy hides from
// the client.
func unknownNamed(p upstream.Part, name string) *Refusal {
	kind := "tool"
	if p == upstream.PartPrompts {
		kind = "prompt"
	}
	return InvalidParams("Unknown %s: %.200s", kind, name)
}

// deniedArguments returns the error for a tool or prompt that the client sees, and whose arguments
// policy denies. It contains neither the rule nor the value, which would describe the policy.
func deniedArguments(p upstream.Part, name string) *Refusal {
	kind := "tool"
	if p == upstream.PartPrompts {
		kind = "prompt"
	}
	e := InvalidParams("The policy does not allow these arguments for the %s %.200s", kind, name)
	e.Data = []byte(`{"junction":{"kind":"denied"}}`)
	return e
}

// unknownResource returns the error for a URI that belongs to no upstream (2026-07-28,
// server/resources#error-handling, and 2025-11-25).
func unknownResource(era client.Era, uri string) *Refusal {
	e := InvalidParams("Resource not found")
	if era == client.EraLegacy {
		e.code = mcp.RESOURCE_NOT_FOUND
	}
	e.Data = view.URIData(uri)
	return e
}

// noResource returns the error for a client of that era if SubjectView.Resource finds no upstream
// for a URI, or several.
func noResource(era client.Era, uri string, err error) *Refusal {
	ambiguous, ok := errors.AsType[*view.AmbiguousError](err)
	if !ok {
		return unknownResource(era, uri)
	}
	first, more := ambiguous.Upstreams, ""
	if len(first) > 3 {
		first, more = first[:3], fmt.Sprintf(" and %d more", len(first)-3)
	}
	e := InvalidParams("The URI could belong to %s%s. "+
		"Read it at /mcp/<upstream>, or by the URI that resources/list has for it", strings.Join(first, ", "), more)
	e.Data = view.URIData(uri)
	return e
}

// CutOff is the cancellation cause of in-flight calls that Junction ends itself: when Kill is called
// (the zero value), or when another member may have the session. Upstreams see a cancelled call;
// the client gets this error.
type CutOff struct{ Why string }

func (e CutOff) Error() string {
	return cmp.Or(e.Why, "the proxy was shut down before the answer came; the call may have been executed")
}

// Is makes errors.Is treat CutOff as context.Canceled.
func (CutOff) Is(target error) bool { return target == context.Canceled }

// RPCError returns the JSON-RPC error for err, and the reason for the status. An
// upstream's error is passed on, unless it concerns the connection between Junction and the
// upstream.
func RPCError(err error, upstreamName string) (*jsonrpc.Error, Reason) {
	return rpcError(err, upstreamName, nil)
}

// rpcError is RPCError for a client that must not read what clean removes, if clean is not nil. clean is
// only applied to words of an upstream that Junction shortens.
func rpcError(err error, upstreamName string, clean func(string) string) (*jsonrpc.Error, Reason) {
	var (
		own  *Refusal
		peer *jsonrpc.Error
		ours *upstream.Error
		cut  CutOff
	)
	if need := needsSignIn(err); need != nil {
		return failure(need.Upstream, signInKind(need), signInMessage(need)), ReasonNone
	}
	switch {
	case errors.As(err, &own):
		return &jsonrpc.Error{Code: own.code, Message: own.text, Data: own.Data}, own.reason
	case errors.As(err, &ours): // its chain may contain an upstream's error from the handshake
		text := ours.Public()
		if clean != nil {
			text = ours.Clean(clean)
		}
		return failure(ours.Upstream, string(ours.Kind), text), ReasonNone
	case errors.As(err, &peer):
		if !aboutHop(peer.Code) {
			return peer, ReasonNone
		}
		return failure(upstreamName, "protocol", "upstream "+upstreamName+" refused our request: "+peer.Message),
			ReasonNone
	case errors.Is(err, raw.ErrAmbiguous), errors.Is(err, raw.ErrMany):
		r := Malformed(err)
		return &jsonrpc.Error{Code: r.code, Message: r.text}, r.reason
	case errors.As(err, &cut):
		return failure(upstreamName, string(client.KindCancelled), cut.Error()), ReasonNone
	case errors.Is(err, context.Canceled):
		return failure(upstreamName, string(client.KindCancelled), "the request was cancelled"), ReasonNone
	}
	return &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: "Internal error"}, ReasonInternal
}

// aboutHop reports whether a code concerns the connection to the upstream, which is not the
// client's connection.
func aboutHop(code int64) bool {
	return slices.Contains([]int64{mcp.PARSE_ERROR, mcp.INVALID_REQUEST, mcp.METHOD_NOT_FOUND, CodeHeaderMismatch,
		CodeUnsupportedVersion}, code)
}

// failure returns an error of Junction's own; data.junction marks it.
func failure(upstreamName, kind, text string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: strings.ToValidUTF8(text, "\ufffd"),
		Data: fmt.Appendf(nil, `{"junction":{"upstream":%s,"kind":"%s"}}`, raw.Quote(upstreamName), kind)}
}

// unmarked returns an upstream's error without data.junction, which only errors of Junction have. If a
// reader may find the member under another spelling, the data is dropped.
func unmarked(e *jsonrpc.Error) *jsonrpc.Error {
	if len(e.Data) == 0 || e.Data[0] != '{' {
		return e
	}
	data, err := raw.Parse(e.Data)
	if err == nil {
		if _, err = data.Get("junction"); err == raw.ErrAbsent {
			return e
		}
	}
	var text []byte
	if err == nil {
		text, err = data.Splice(raw.Edit{Name: "junction"})
	}
	if err != nil {
		text = nil
	}
	return e.WithData(text)
}

// overuseRefusal returns the error for a request beyond its account's limit. If only the account has
// used its share, the reason is ReasonShare and not ReasonBusy: a proxy in front might take Junction
// for broken, and stop sending the requests of other callers.
func overuseRefusal(e *budget.Exceeded) *Refusal {
	// One of each quota: else it does not compile.
	var nouns [budget.Quotas]string = [...]string{"requests are in progress", "streams are open", "bytes are held"}
	things := nouns[e.Quota]
	wait, remedy := "1", "wait until one of your requests has ended"
	if e.Quota == budget.Streams {
		wait, remedy = "30", "close a stream"
	}
	var r *Refusal
	// If the others have many times as much, the whole is full, and the caller is not to blame.
	if e.Own > 0 && e.Own+e.Others < e.Total && e.Others < 16*e.Own {
		r = Refuse(ReasonShare, mcp.INTERNAL_ERROR,
			"too many %s for you: %d, and more would exceed your share of %s; %s", things, e.Own,
			e.Quota.Limit(), remedy)
	} else {
		r = Refuse(ReasonBusy, mcp.INTERNAL_ERROR,
			"too many %s: %d for you and %d for others (%s); try again later", things, e.Own, e.Others,
			e.Quota.Limit())
	}
	r.Retry, r.Outcome = wait, Limited
	return r
}

// OveruseError converts a *budget.Exceeded into a refusal.
func OveruseError(err error) error {
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		return overuseRefusal(e)
	}
	return err
}

// limited returns the error for a caller over a limit of its policy, with the time to wait if it is
// known. The status stays 200, because some clients treat any other status as the end of the
// connection.
func limited(over *budget.LimitError, wait time.Duration) *Refusal {
	data, remedy, again := `{"junction":{"kind":"limited"}}`, over.Remedy, ""
	if wait > 0 {
		again = strconv.Itoa(int(math.Ceil(wait.Seconds())))
		remedy = "the next is possible in " + again + " s"
		data = fmt.Sprintf(`{"junction":{"kind":"limited","retryAfterMs":%d}}`, wait.Milliseconds()+1)
	}
	return &Refusal{code: mcp.INTERNAL_ERROR, text: over.Text + " (" + over.Key + " of your policy); " + remedy,
		Data: []byte(data), Retry: again, Outcome: Limited, limit: over.Key}
}

// UnavailableError returns the error for a request that needs the other members while this process
// cannot reach them. Nothing was executed.
func UnavailableError(why string) *Refusal {
	r := MemberError(ReasonBusy, client.KindUnavailable, why+"; send the request again")
	r.Retry = "1"
	return r
}

// MemberError returns the error for a request that another member cannot answer. kind is the kind of a
// failed call of an upstream with the same outcome.
func MemberError(reason Reason, kind client.Kind, text string) *Refusal {
	return &Refusal{reason: reason, code: mcp.INTERNAL_ERROR, text: text,
		Data: fmt.Appendf(nil, `{"junction":{"kind":"%s"}}`, kind), Outcome: OutcomeOf(kind)}
}

// errParkedGone returns the error for the return to a parked call that has ended: it has its answer,
// the client came too late, or the process that made the call has ended.
func errParkedGone() *Refusal {
	return MemberError(ReasonNone, client.KindLost, "the call that asked for this answer has already ended, or its "+
		"process has; the call may have been executed. Check its effect first; to call again, send the request "+
		"without requestState and inputResponses")
}

// Codes of 2026-07-28 (basic/index#error-codes).
const (
	CodeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// BytesText returns a number of bytes as text.
func BytesText(n int64) string {
	if n%(1<<20) == 0 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// lostText returns the text for a call whose arguments have a mark that no text replaces: for the
// model, which can make another call.
func lostText(name string, e *redact.MarkError) string {
	text := name + " was not called: its arguments contain " + e.Mark + ". "
	switch e.Why {
	case redact.NotKept:
		return text + "Junction writes this in place of a text that the policy removes (redact), and does not " +
			"put the text back. The server would get these words instead. Make the call without them. The " +
			"operator can have the text put back for the same server: redact: { restore: true }."
	case redact.InName:
		return text + "Junction puts removed text back into values only, and this is the name of a member. " +
			"Use another name."
	case redact.TooMuch:
		return text + "Together with the other removed text, it is too long for one call. Make several calls."
	case redact.Misplaced:
		return text + "Junction puts a removed text back only where the policy would remove it again, and in this " +
			"string it would not, because of the characters around it. Write the same characters around it as in the " +
			"answer that it came from, or send it as a string of its own."
	}
	return text + "Junction has no text for it: it keeps removed text for the server and the session that the " +
		"text came from, until an hour after its last use, and within limits. Read the text again from that " +
		"server, or make the call without these words."
}
