package proxy

import (
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds what is the same for every question of an upstream to a client's person,
// whichever eras meet: whether the client can be asked it at all, and what of it is not passed on
// as the upstream wrote it.

// question makes a question of an upstream's one that the client may be sent: the params as its
// version knows them, with the upstream's name in what a person reads. meta says whether the params
// keep their _meta. The error is a *jsonrpc.Error, in words for the upstream.
func (x *exchange) question(from, method string, params []byte, meta bool) ([]byte, error) {
	refused := func(format string, args ...any) error {
		return &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: fmt.Sprintf(format, args...)}
	}
	if params == nil {
		params = []byte("{}")
	}
	params, _, err := x.share.redact.Text(params)
	if err != nil {
		return nil, refused("Invalid params of %s: %v", method, err)
	}
	o, err := raw.Parse(params)
	if err != nil {
		return nil, refused("Invalid params of %s", method)
	}
	// no client is asked to make its answer a task (2025-11-25, basic/utilities/tasks): we never
	// declare that it can
	edits := []raw.Edit{{Name: "task"}}
	if !meta {
		edits = append(edits, raw.Edit{Name: "_meta"})
	} else if own, err := raw.Get(params, "_meta"); err == nil {
		// The task that the question belongs to is one between us and the server: see
		// upstream/task.go.
		if _, err := raw.Get(own, "io.modelcontextprotocol/related-task"); err == nil {
			if own, err = raw.Set(own, nil, "io.modelcontextprotocol/related-task"); err == nil {
				if rest, err := raw.Parse(own); err == nil && rest.Len() == 0 {
					own = nil // it was all that there was
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
		case !x.profile.Sampling:
			x.lack(`{"sampling":{}}`)
			return nil, refused("the client has not declared sampling")
		case (tools != raw.ErrAbsent || choice != raw.ErrAbsent) && !x.profile.SamplingTools:
			x.lack(`{"sampling":{"tools":{}}}`)
			return nil, refused("the client has not declared sampling.tools")
		}
		// "This server" would be all our upstreams to the client, and what one of them said is none
		// of another's business.
		edits = append(edits, raw.Edit{Name: "includeContext"})
	case mcp.MethodListRoots:
		if !x.profile.Roots {
			x.lack(`{"roots":{}}`)
			return nil, &jsonrpc.Error{Code: mcp.METHOD_NOT_FOUND, Message: "the client has not declared roots"}
		}
	default:
		return nil, &jsonrpc.Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method not found: " + method}
	}
	text, err := o.Splice(edits...)
	if err != nil {
		return nil, refused("Invalid params of %s: a member occurs twice, or in another letter case", method)
	}
	return text, nil
}

// lack notes the capability that the client would need to answer a server request.
func (x *exchange) lack(capabilities string) { x.lacks.Store(&capabilities) }

// elicitation returns the edits of an elicitation. An elicitationId is kept out of the modern era,
// which does not have it; for a legacy client it is the upstream's or one of ours.
func (x *exchange) elicitation(from string, o raw.Object) ([]raw.Edit, error) {
	var edits []raw.Edit
	bad := func(format string, args ...any) ([]raw.Edit, error) {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: fmt.Sprintf(format, args...)}
	}
	mode, err := o.String("mode")
	if err == raw.ErrAbsent {
		mode = "form" // 2025-11-25, client/elicitation
	} else if err != nil {
		return bad("Invalid params: mode")
	}
	modern := x.era == upstream.EraModern
	switch {
	case mode == "form" && !x.profile.Form, mode == "url" && !x.profile.URL:
		x.lack(`{"elicitation":{"` + mode + `":{}}}`)
		return bad("the client has not declared elicitation in mode %s", mode)
	case mode != "form" && mode != "url":
		return bad("Invalid params: no elicitation has the mode %.40q", mode)
	case mode == "url" && modern:
		edits = append(edits, raw.Edit{Name: "elicitationId"})
	case mode == "url":
		if _, err := o.Get("elicitationId"); err == raw.ErrAbsent {
			edits = append(edits, raw.Edit{Name: "elicitationId", Value: raw.Quote(x.newElicitationID())})
		}
	case !modern && x.session.version < mcp.ProtocolVersion20251125:
		schema, err := olderSchema(o)
		if err != nil {
			return bad("the client speaks %s, which has no form for this: %v", x.session.version, err)
		}
		edits = append(edits, raw.Edit{Name: "mode"})
		if schema != nil {
			edits = append(edits, raw.Edit{Name: "requestedSchema", Value: schema})
		}
	}
	message, err := o.String("message")
	if err != nil && err != raw.ErrAbsent {
		return bad("Invalid params: message")
	}
	// The client shows one server, and its person must know who is asking (2025-11-25,
	// client/elicitation#user-interaction-model).
	return append(edits, raw.Edit{Name: "message", Value: raw.Quote("[" + from + "] " + message)}), nil
}

// olderSchema returns requestedSchema as versions before 2025-11-25 know it: a choice with titles
// is enum and enumNames instead of oneOf; nil when there is nothing to change. A choice of several
// values cannot be said there.
func olderSchema(params raw.Object) ([]byte, error) {
	schema, err := params.Object("requestedSchema")
	if err != nil {
		return nil, nil // its own fault, which the client will say
	}
	properties, err := schema.Object("properties")
	if err != nil {
		return nil, nil
	}
	var edits []raw.Edit
	for m := range properties.All() {
		name, err := m.Name()
		if err != nil {
			return nil, err
		}
		property, err := raw.Parse(m.Value)
		if err != nil {
			continue
		}
		if kind, _ := property.String("type"); kind == "array" {
			return nil, fmt.Errorf("%.60q chooses several values", name)
		}
		choices, err := property.Get("oneOf")
		if err != nil {
			continue
		}
		values, titles, err := constants(choices)
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", name, err)
		}
		text, err := property.Splice(raw.Edit{Name: "oneOf"}, raw.Edit{Name: "enum", Value: values}, raw.Edit{Name: "enumNames", Value: titles})
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", name, err)
		}
		edits = append(edits, raw.Edit{Name: name, Value: text})
	}
	if len(edits) == 0 {
		return nil, nil
	}
	text, err := properties.Splice(edits...)
	if err != nil {
		return nil, err
	}
	return schema.Splice(raw.Edit{Name: "properties", Value: text})
}

// constants turns [{"const":"a","title":"A"}] into ["a"] and ["A"].
func constants(choices []byte) (values, titles []byte, err error) {
	list, err := raw.Elements(choices)
	if err != nil {
		return nil, nil, err
	}
	values, titles = []byte{'['}, []byte{'['}
	for i, item := range list {
		choice, err := raw.Parse(item)
		if err != nil {
			return nil, nil, err
		}
		value, err := choice.Get("const")
		if err != nil {
			return nil, nil, fmt.Errorf("a choice without const: %w", err)
		}
		title, err := choice.Get("title")
		if err != nil {
			title = value
		}
		if i > 0 {
			values, titles = append(values, ','), append(titles, ',')
		}
		values, titles = append(values, value...), append(titles, title...)
	}
	return append(values, ']'), append(titles, ']'), nil
}
