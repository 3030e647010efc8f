package proxy

import (
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/sealed"
)

// This file takes the headers of a client that go to the server of its call (forward_headers). They belong to the
// identity of the request: a state of Junction, an approval or a kept result of a request with other values is worth
// nothing for it. A task keeps the values of the call that has begun it.

// forward settles the headers of the client for the server of the target. The error is for the client.
func forward(x *Exchange) error {
	config := x.target.Backend.Config()
	var err error
	if x.forwarded, err = config.Forwarded(x.Header); err != nil {
		return Refuse(ReasonRequest, mcp.INVALID_REQUEST, "Bad Request: %v (the server %s gets it)", err,
			x.target.Backend.Name())
	}
	x.Info.Forwarded = x.forwarded.Names()
	return nil
}

// forwardAgain settles the headers of the call that has begun a task, for a request about it. The client need not send
// them again, and cannot send others.
func forwardAgain(x *Exchange, task sealed.Task) error {
	if err := forward(x); err != nil {
		return err
	}
	config, header := x.target.Backend.Config(), http.Header{}
	for _, f := range task.Forwarded {
		header.Add(f.Name, f.Value)
	}
	begun, err := config.Forwarded(header)
	if err != nil || len(begun) != len(task.Forwarded) { // the entry names other headers now
		return unknownTask()
	}
	for _, f := range x.forwarded {
		if !slices.Contains(begun, f) {
			return InvalidParams("Invalid params: the task was begun with another value of the header %s, or without it",
				f.Name)
		}
	}
	x.forwarded, x.Info.Forwarded = begun, begun.Names()
	return nil
}
