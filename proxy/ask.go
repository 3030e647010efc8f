package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/redact"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// This file sends server requests to clients. A legacy client gets a server request on the stream
// of its call, and responds with a POST.

var (
	// ErrNoAnswer means that the client did not answer a request.
	ErrNoAnswer = errors.New("the client did not answer")
	errShutdown = errors.New("the proxy is shutting down")
)

// Ask implements client.Peer for a legacy client.
func (x *Exchange) Ask(ctx context.Context, q *client.ServerRequest) ([]byte, error) {
	x.asked.Store(true)
	params, err := x.serverRequest(x.target.Backend.Name(), q.Method, q.Params, true)
	if err != nil {
		return nil, err
	}
	return x.send(ctx, x.asks(q.Method, q.Trace), params, q.Progress)
}

// send sends a request to a legacy client and waits for the response.
func (x *Exchange) send(
	ctx context.Context, q Question, params []byte, progress func([]byte),
) ([]byte, error) {
	if x.Session == nil || !x.front.Hears() {
		return nil, rejected("the client cannot be asked: it takes no event stream")
	}
	asked := x.question(q)
	answer, err := x.front.Ask(ctx, q.Method, asked.Join(params), progress)
	asked.End(err)
	return answer, err
}

// MaxPending bounds the pending server requests of one session, and those of one answer of an upstream.
const MaxPending = 64

// methodElicitationComplete is the notification that a URL elicitation is complete (2025-11-25,
// client/elicitation).
const methodElicitationComplete = "notifications/elicitation/complete"

// newElicitationID returns a new ID for a URL elicitation of a modern upstream. Modern elicitations
// have no ID, and legacy clients need one.
func (x *Exchange) newElicitationID() string {
	x.opening.Lock()
	defer x.opening.Unlock()
	x.opened = append(x.opened, "junction-"+rand.Text())
	return x.opened[len(x.opened)-1]
}

// closeElicitations notifies the client that the opened elicitations are done, because the upstream
// has answered.
func (x *Exchange) closeElicitations() {
	x.opening.Lock()
	defer x.opening.Unlock()
	for _, id := range x.opened {
		x.front.Notify(methodElicitationComplete, append(raw.AppendQuote([]byte(`{"elicitationId":`), id), '}'))
	}
}

// askAll sends the requests of a modern upstream to a legacy client, one after the other, and
// returns the responses as the params of the next call. A rejected form counts as cancelled. For
// every other failure the protocol has no response that the upstream would understand, so the call
// fails (2026-07-28, basic/patterns/mrtr has no slot for an error).
func (x *Exchange) askAll(ctx context.Context, requests raw.Object) ([]byte, error) {
	if requests.Len() > MaxPending {
		return nil, x.invalid(fmt.Sprintf("it sent more than %d requests at once", MaxPending))
	}
	answers := []byte{'{'}
	for i, m := range requests.Members() {
		method, params, err := parseInputRequest(m.Value)
		if err != nil {
			return nil, x.invalid(err.Error())
		}
		unanswered := func(err error) error {
			return &upstream.Error{Upstream: x.target.Backend.Name(), Kind: client.KindUnanswered,
				Err: fmt.Errorf("%s was not answered: %w", method, err)}
		}
		if params, err = x.serverRequest(x.target.Backend.Name(), method, params, true); err != nil {
			return nil, unanswered(err)
		}
		answer, err := x.send(ctx, x.asks(method, nil), params, nil)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && mcp.MCPMethod(method) == mcp.MethodElicitationCreate:
			answer = []byte(`{"action":"cancel"}`)
		case err != nil:
			return nil, unanswered(err)
		}
		if i > 0 {
			answers = append(answers, ',')
		}
		answers = append(append(append(answers, m.Key...), ':'), answer...)
	}
	return append(answers, '}'), nil
}

// pause waits between calls of an upstream that returned input_required without a request.
func pause(ctx context.Context, round int) error {
	if !pace.Sleep(ctx, min(100*time.Millisecond<<round, 2*time.Second), nil) {
		return context.Cause(ctx)
	}
	return nil
}

// serverRequest converts the params of a server request for the client: to the client's version,
// and with the upstream's name in the message. If meta is set, the params keep their _meta. The
// error is a *jsonrpc.Error for the upstream.
func (x *Exchange) serverRequest(from, method string, params []byte, meta bool) ([]byte, error) {
	if params == nil {
		params = []byte("{}")
	}
	params, _, err := x.reader().Text(params, redact.MetaToken)
	if err != nil {
		return nil, rejected("Invalid params of %s: %v", method, err)
	}
	o, err := raw.Parse(params)
	if err != nil {
		return nil, rejected("Invalid params of %s", method)
	}
	// Junction never declares that clients support tasks (2025-11-25, basic/utilities/tasks)
	edits := []raw.Edit{{Name: "task"}}
	if !meta {
		edits = append(edits, raw.Edit{Name: "_meta"})
	} else if own, err := raw.Get(params, "_meta"); err == nil {
		// The related task is between Junction and the server: see upstream/client/task.go.
		if _, err := raw.Get(own, "io.modelcontextprotocol/related-task"); err == nil {
			if own, err = raw.Set(own, nil, "io.modelcontextprotocol/related-task"); err == nil {
				if rest, err := raw.Parse(own); err == nil && rest.Len() == 0 {
					own = nil // _meta is empty now
				}
				edits = append(edits, raw.Edit{Name: "_meta", Value: own})
			}
		}
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodElicitationCreate:
		more, err := x.elicitation(from, o)
		if err != nil {
			return nil, err
		}
		edits = append(edits, more...)
	case mcp.MethodSamplingCreateMessage:
		_, tools := o.Get("tools")
		_, choice := o.Get("toolChoice")
		switch {
		case !x.Who.Profile.Sampling:
			x.lack(`{"sampling":{}}`)
			return nil, rejected("the client has not declared sampling")
		case (tools != raw.ErrAbsent || choice != raw.ErrAbsent) && !x.Who.Profile.SamplingTools:
			x.lack(`{"sampling":{"tools":{}}}`)
			return nil, rejected("the client has not declared sampling.tools")
		}
		// For the client, "this server" would include all upstreams. An upstream must not see
		// another upstream's context.
		edits = append(edits, raw.Edit{Name: "includeContext"})
	case mcp.MethodListRoots:
		if !x.Who.Profile.Roots {
			x.lack(`{"roots":{}}`)
			return nil, &jsonrpc.Error{Code: mcp.METHOD_NOT_FOUND, Message: "the client has not declared roots"}
		}
	default:
		return nil, &jsonrpc.Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method not found: " + method}
	}
	text, err := o.Splice(edits...)
	if err != nil {
		return nil, rejected("Invalid params of %s: a member occurs twice, or in another letter case", method)
	}
	return text, nil
}

// rejected returns an error for the upstream.
func rejected(format string, args ...any) error {
	return &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: fmt.Sprintf(format, args...)}
}

// lack stores the client capability that a server request needs.
func (x *Exchange) lack(capabilities string) { x.lacks.Store(&capabilities) }

// elicitation returns the edits of an elicitation. The modern era has no elicitationId. A legacy
// client gets the upstream's ID or a new one.
func (x *Exchange) elicitation(from string, o raw.Object) ([]raw.Edit, error) {
	var edits []raw.Edit
	mode, err := o.String("mode")
	if err == raw.ErrAbsent {
		mode = "form" // 2025-11-25, client/elicitation
	} else if err != nil {
		return nil, rejected("Invalid params: mode")
	}
	modern := x.Era == client.EraModern
	switch {
	case mode == "form" && !x.Who.Profile.Form, mode == "url" && !x.Who.Profile.URL:
		x.lack(`{"elicitation":{"` + mode + `":{}}}`)
		return nil, rejected("the client has not declared elicitation in mode %s", mode)
	case mode != "form" && mode != "url":
		return nil, rejected("Invalid params: no elicitation has the mode %.40q", mode)
	case mode == "url" && modern:
		edits = append(edits, raw.Edit{Name: "elicitationId"})
	case mode == "url":
		if _, err := o.Get("elicitationId"); err == raw.ErrAbsent {
			edits = append(edits, raw.Edit{Name: "elicitationId", Value: raw.Quote(x.newElicitationID())})
		}
	case !modern && x.Session.Version < mcp.ProtocolVersion20251125:
		schema, err := olderSchema(o)
		if err != nil {
			return nil, rejected("the client speaks %s, which has no form for this: %v", x.Session.Version, err)
		}
		edits = append(edits, raw.Edit{Name: "mode"})
		if schema != nil {
			edits = append(edits, raw.Edit{Name: "requestedSchema", Value: schema})
		}
	}
	message, err := o.String("message")
	if err != nil && err != raw.ErrAbsent {
		return nil, rejected("Invalid params: message")
	}
	// The user must see which server sends the elicitation (2025-11-25,
	// client/elicitation#user-interaction-model).
	return append(edits, raw.Edit{Name: "message", Value: raw.Quote("[" + from + "] " + message)}), nil
}

// parseInputRequest parses one request of an input_required result. params is nil if there are
// none.
func parseInputRequest(v []byte) (method string, params []byte, err error) {
	o, err := raw.Parse(v)
	if err == nil {
		method, err = o.String("method")
	}
	if err == nil {
		params, err = o.Get("params")
	}
	if string(params) == "null" {
		params = nil
	}
	switch {
	case method == "" || err != nil && err != raw.ErrAbsent:
		return "", nil, errors.New("an input request without method or with several")
	case params != nil && params[0] != '{':
		return "", nil, errors.New("an input request whose params are no object")
	}
	return method, params, nil
}
