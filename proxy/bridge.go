package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file connects the two eras. An upstream may send requests to the client before it answers:
//
//	client   upstream
//	legacy   legacy    the request goes to the client's stream, the response comes back (ask.go)
//	legacy   modern    input_required: its requests go to the client's stream, and the upstream
//	                   is called again with the responses
//	modern   modern    input_required is passed on; Junction's state wraps the upstream's (state.go)
//	modern   legacy    the call is parked; the client gets input_required and returns (parked.go)

// answerResult converts an upstream's result to the client's era.
func (s *Core) answerResult(x *Exchange, r client.Result) (Result, error) {
	switch {
	case r.Type == client.TypeComplete:
	case x.Era == client.EraLegacy:
		return Result{}, x.invalid("a result of type " + r.Type)
	case r.Type == client.TypeInputRequired:
		return s.relayRequests(x, r.Object)
	default:
		return s.wrapTask(x, r.Object)
	}
	x.closeElicitations()
	if mcp.MCPMethod(x.Msg.Method) == mcp.MethodToolsCall && r.Failed() {
		x.Info.Outcome = ToolError
	}
	var err error
	if r.Object, err = x.target.RenameResult(x.Msg.Method, r.Object); err != nil {
		return Result{}, x.invalid(err.Error())
	}
	if r.Object, err = x.withoutNulls(r.Object); err != nil {
		return Result{}, x.invalid(err.Error())
	}
	if x.Era == client.EraModern {
		return s.modernResult(x.Msg.Method, r.Object, x.target)
	}
	return s.legacyResult(x, r)
}

// answerError converts an upstream's error to the client's era.
func (s *Core) answerError(x *Exchange, err error) (Result, error) {
	if need := needsSignIn(err); need != nil {
		return s.offer(x, need)
	}
	peer, ok := err.(*jsonrpc.Error) // errors inside an *upstream.Error concern the connection to the upstream
	switch {
	case !ok:
		return Result{}, err
	case peer.Code == mcp.INVALID_REQUEST && x.answers():
		peer = x.target.RenameError(peer)
		return Result{}, &Refusal{code: peer.Code, text: peer.Message, Data: peer.Data, Outcome: Error}
	case x.Era == client.EraModern:
		return s.modernError(x, peer)
	}
	return s.legacyError(x, peer)
}

// answers reports whether the call had answers of the client, or the upstream's requestState. Then the
// error "invalid request" is about these, and not about the connection (aboutHop).
func (x *Exchange) answers() bool {
	_, err := x.Params.Get("requestState")
	return err == nil || x.asked.Load()
}

// legacyTarget reports whether the target's upstream is of the legacy era.
func (x *Exchange) legacyTarget() bool { return x.target.Backend.Catalog().Era == client.EraLegacy }

// rounds counts the rounds of one call of a modern upstream for a legacy client.
type rounds struct {
	count int
	waits int // rounds after which only time may make a difference
}

// maxRounds bounds the rounds of one call.
const maxRounds = 10

// next sends the requests of an input_required result to a legacy client, and puts the responses
// into the params of the next call.
func (n *rounds) next(ctx context.Context, x *Exchange, c *upstream.Call, r client.Result) error {
	if n.count == maxRounds {
		return x.invalid(fmt.Sprintf("it returned input_required more than %d times", maxRounds))
	}
	n.count++
	x.asked.Store(true)
	requests, state, err := x.inputRequired(r.Object)
	if err != nil {
		return err
	}
	opened := len(x.opened)
	// the next call overwrites r
	edits := []raw.Edit{{Name: "inputResponses"}, {Name: "requestState", Value: append([]byte(nil), state...)}}
	if requests.Len() > 0 {
		if edits[0].Value, err = x.askAll(ctx, requests); err != nil {
			return err
		}
	}
	if requests.Len() == 0 || len(x.opened) > opened { // the upstream waits for an external event
		if err := pause(ctx, n.waits); err != nil {
			return err
		}
		n.waits++
	}
	c.Continues = true
	return spliceParams(c, edits...)
}

// inputRequired returns the requests and the state of an input_required result; absent and nil if it
// has none.
func (x *Exchange) inputRequired(o raw.Object) (requests raw.Object, state []byte, err error) {
	if requests, err = o.Object("inputRequests"); err != nil && err != raw.ErrAbsent {
		return requests, nil, x.invalid("inputRequests: " + err.Error())
	}
	switch state, err = o.Get("requestState"); {
	case err == nil && state[0] != '"':
		return requests, nil, x.invalid("requestState is no string")
	case err == raw.ErrAbsent && requests.Len() == 0:
		return requests, nil, x.invalid("input_required without a request and without a state")
	case err != nil && err != raw.ErrAbsent:
		return requests, nil, x.invalid("requestState: " + err.Error())
	}
	return requests, state, nil
}

// relayRequests passes the requests of a modern upstream on to a modern client. A request that the
// client does not support is the upstream's error: the upstream has the client's capabilities.
func (s *Core) relayRequests(x *Exchange, o raw.Object) (Result, error) {
	requests, upstreamState, err := x.inputRequired(o)
	if err != nil {
		return Result{}, err
	}
	var edits []raw.Edit
	var methods []string
	if requests.Present() {
		var text []byte
		if text, methods, err = x.inputRequests(requests); err != nil {
			return Result{}, err
		}
		edits = append(edits, raw.Edit{Name: "inputRequests", Value: text})
	}
	if upstreamState != nil || x.approved || len(x.rooted) > 0 { // the approval is in the state
		own := s.seal(x, sealed.State{Kind: sealed.Relayed, Upstream: upstreamState, Rooted: x.rooted,
			Asked: x.asking(x.target.Backend.Name(), methods...)})
		edits = append(edits, raw.Edit{Name: "requestState", Value: raw.Quote(own)})
	}
	if o, err = o.With(edits...); err != nil {
		return Result{}, x.invalid(err.Error())
	}
	return s.modernResult("", o, x.target)
}

// inputRequests returns the requests of a modern upstream in the form for a modern client, and their
// methods.
func (x *Exchange) inputRequests(requests raw.Object) (text []byte, methods []string, err error) {
	var edits []raw.Edit
	for m := range requests.All() {
		name, err := m.Name()
		if err != nil {
			return nil, nil, x.invalid("inputRequests: " + err.Error())
		}
		text, method, err := x.inputRequest(m.Value)
		if err != nil {
			return nil, nil, err
		}
		edits, methods = append(edits, raw.Edit{Name: name, Value: text}), append(methods, method)
	}
	if text, err = requests.Splice(edits...); err != nil {
		return nil, nil, x.invalid("inputRequests: " + err.Error())
	}
	return text, methods, nil
}

// inputRequest returns one entry of inputRequests in the form for the client, and its method.
func (x *Exchange) inputRequest(v []byte) (text []byte, method string, err error) {
	method, params, err := parseInputRequest(v)
	if err != nil {
		return nil, "", x.invalid(err.Error())
	}
	if text, err = x.serverRequest(x.target.Backend.Name(), method, params, false); err != nil {
		return nil, "", x.invalid("it asked what this client cannot be asked: " + err.Error())
	}
	text, err = raw.Set(v, text, "params")
	return text, method, err
}

// invalid returns the error for an invalid answer of the upstream.
func (x *Exchange) invalid(text string) error {
	return &upstream.Error{Upstream: x.target.Backend.Name(), Kind: client.KindInvalid, Err: errors.New(text)}
}

// spliceParams changes the params of a call.
func spliceParams(c *upstream.Call, edits ...raw.Edit) error {
	params := c.Params
	if !params.Present() {
		params, _ = raw.Parse([]byte("{}"))
	}
	var err error
	c.Params, err = params.With(edits...)
	return err
}

// modernError converts an upstream's error for a modern client.
func (s *Core) modernError(x *Exchange, peer *jsonrpc.Error) (Result, error) {
	peer = x.target.RenameError(peer)
	// a modern server would have rejected the call (2026-07-28, basic/index#error-codes)
	if lacks := x.lacks.Load(); lacks != nil {
		return Result{}, &Refusal{reason: ReasonRequest, code: codeMissingCapability, text: peer.Message,
			Data: []byte(`{"requiredCapabilities":` + *lacks + `}`), Outcome: Unanswered}
	}
	switch peer.Code {
	case mcp.RESOURCE_NOT_FOUND: // 2026-07-28, server/resources#error-handling: this code must not be sent any more
		return Result{}, x.target.NotFound(peer)
	case mcp.URL_ELICITATION_REQUIRED:
		return s.openURLs(x, peer)
	case codeMissingCapability:
		return Result{}, &Refusal{reason: ReasonRequest, code: peer.Code, text: peer.Message, Data: peer.Data,
			Outcome: Unanswered}
	}
	return Result{}, peer
}

// legacyError converts an upstream's error for a legacy client. -32042 exists since 2025-11-25, and
// a client that cannot open URLs cannot use it.
func (s *Core) legacyError(x *Exchange, peer *jsonrpc.Error) (Result, error) {
	if peer.Code != mcp.URL_ELICITATION_REQUIRED || x.Who.Profile.URL {
		return Result{}, x.target.RenameError(peer)
	}
	if mcp.MCPMethod(x.Msg.Method) != mcp.MethodToolsCall {
		return Result{}, &upstream.Error{Upstream: x.target.Backend.Name(), Kind: client.KindUnanswered,
			Err: errors.New("it requires a page in a browser, and this client does not support URL elicitation")}
	}
	x.Info.Outcome = Unanswered
	text := "The server " + x.target.Backend.Name() +
		" requires a page in a browser before it continues, and this client cannot open it. Open it yourself:"
	for _, u := range urls(peer) {
		text += "\n" + u.message + " " + u.url
	}
	return s.toolText(x, text, isError), nil
}

// elicitation is an entry of the data of -32042.
type elicitation struct{ message, url string }

// urls returns the elicitations in the data of -32042.
func urls(e *jsonrpc.Error) []elicitation {
	var list []elicitation
	if e.Data == nil {
		return nil
	}
	data, _ := raw.Get(e.Data, "elicitations")
	items, _ := raw.Elements(data)
	for _, item := range items {
		o, err := raw.Parse(item)
		if err != nil {
			continue
		}
		var u elicitation
		u.message, _ = o.String("message")
		if u.url, err = o.String("url"); err == nil {
			list = append(list, u)
		}
	}
	return list
}

// openURLs converts -32042 into input_required. The upstream did not carry out the call, so the
// call is made again when the client returns.
func (s *Core) openURLs(x *Exchange, e *jsonrpc.Error) (Result, error) {
	list := urls(e)
	switch {
	case mcp.MCPMethod(x.Msg.Method) == mcp.MethodCompletionComplete || len(list) == 0:
		text := "it requires a page in a browser, and sent no URL: " + e.Message
		return Result{}, x.invalid(strings.TrimSuffix(text, ": "))
	case !x.Who.Profile.URL:
		return Result{}, &Refusal{reason: ReasonRequest, code: codeMissingCapability, text: e.Message,
			Data: []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`), Outcome: Unanswered}
	}
	var requests [][]byte
	var methods []string
	for i, u := range list[:min(len(list), 26)] {
		methods = append(methods, string(mcp.MethodElicitationCreate))
		requests = append(requests, fmt.Appendf(nil,
			`"url-%c":{"method":"elicitation/create","params":{"mode":"url","message":%s,"url":%s}}`,
			'a'+i, raw.Quote("["+x.target.Backend.Name()+"] "+u.message), raw.Quote(u.url)))
	}
	kind := sealed.Again
	if x.target.Connects {
		kind = sealed.Connect
	}
	return s.inputRequired(x, requests,
		sealed.State{Kind: kind, Asked: x.asking(x.target.Backend.Name(), methods...)}), nil
}

// modernResult adds the members that 2026-07-28 requires of a result, if the upstream did not send
// them: resultType, the server info, and the freshness of a resource or of a skill.
func (s *Core) modernResult(method string, o raw.Object, t *view.Target) (Result, error) {
	body := o.Text()
	tail := make([]byte, 0, len(s.modernMeta)+48) // for the members that most results lack
	if _, err := o.Get("resultType"); err == raw.ErrAbsent {
		tail = append(tail, `,"resultType":"complete"`...)
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodResourcesRead, view.MethodSkillsGet:
		if _, err := o.Get("ttlMs"); err == raw.ErrAbsent {
			tail = append(tail, `,"ttlMs":0`...)
		}
		if _, err := o.Get("cacheScope"); err == raw.ErrAbsent {
			tail = append(tail, `,"cacheScope":"private"`...)
		}
	}
	switch meta, err := o.Object("_meta"); {
	case err == nil:
		if _, err := meta.Get(mcp.MetaKeyServerInfo); err == raw.ErrAbsent {
			if body, err = raw.Set(body, s.serverInfo, "_meta", mcp.MetaKeyServerInfo); err != nil {
				return Result{}, &upstream.Error{Upstream: t.Backend.Name(), Kind: client.KindInvalid, Err: err}
			}
		}
	case err == raw.ErrAbsent:
		if _, err := o.Get("_meta"); err == raw.ErrAbsent {
			tail = append(append(tail, `,"_meta":`...), s.modernMeta...)
		}
	}
	if len(tail) == 0 {
		return Result{Body: body}, nil
	}
	if o.Len() == 0 {
		tail = tail[1:]
	}
	end := len(body) - 1 // of the closing brace: body has no white space around it
	return Result{Body: body[:end], Tail: append(tail, '}')}, nil
}

// legacyResult converts a result for a legacy client. It changes only what the client's version
// does not have.
func (s *Core) legacyResult(x *Exchange, r client.Result) (Result, error) {
	var few [4]raw.Edit
	edits := few[:0]
	if !x.legacyTarget() {
		edits = modernMembers(edits, r.Object)
	}
	content := "content" // the member with content blocks; "" for none, or if it is changed already
	switch mcp.MCPMethod(x.Msg.Method) {
	case mcp.MethodToolsCall:
		structured, err := r.Get("structuredContent")
		// Before 2026-07-28 only objects are allowed (SEP-2106). Other values of a legacy server
		// stay if its outputSchema has stayed.
		if err == nil && structured[0] != '{' && (!x.legacyTarget() || x.target.WithoutOutput()) {
			edits = append(edits, raw.Edit{Name: "structuredContent"})
			if text := olderText(r.Object, structured); text != nil {
				edits = append(edits, raw.Edit{Name: "content", Value: text})
				content = ""
			}
		}
	case mcp.MethodPromptsGet:
		content = "messages"
	default:
		content = ""
	}
	if content != "" && x.Session.Version < mcp.ProtocolVersion20250618 {
		blocks, err := r.Elements(content)
		if err == nil {
			if text := olderBlocks(blocks, content == "messages", x.Session.Version); text != nil {
				edits = append(edits, raw.Edit{Name: content, Value: text})
			}
		}
	}
	if len(edits) == 0 {
		return Result{Body: r.Text()}, nil
	}
	text, err := r.Splice(edits...)
	if err != nil {
		return Result{}, x.invalid(err.Error())
	}
	return Result{Body: text}, nil
}

// modernMembers appends the edits that remove what only a modern server writes about itself. A legacy
// client without Junction does not get it, and may reject members that it does not know.
func modernMembers(edits []raw.Edit, o raw.Object) []raw.Edit {
	if _, err := o.Get("resultType"); err != raw.ErrAbsent {
		edits = append(edits, raw.Edit{Name: "resultType"})
	}
	meta, err := o.Object("_meta")
	if err != nil {
		return edits
	}
	if _, err := meta.Get(mcp.MetaKeyServerInfo); err == raw.ErrAbsent {
		return edits
	}
	rest, err := meta.Splice(raw.Edit{Name: mcp.MetaKeyServerInfo})
	if meta.Len() == 1 {
		rest = nil
	}
	if err != nil {
		return edits // ambiguous; the client decides
	}
	return append(edits, raw.Edit{Name: "_meta", Value: rest})
}
