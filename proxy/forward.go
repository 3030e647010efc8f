package proxy

import (
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/proxy/sealed"
	"junction/upstream"
	"junction/upstream/client"
)

// This file has what a server gets of the caller: the headers of the client (forward_headers), and who calls
// (identity).
//
// The headers of a client go to the server of its call. They belong to the
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

// carried returns the headers of a call that begins a task, for its ID.
func carried(f upstream.Forwarded) (list [][2]string) {
	for _, field := range f {
		list = append(list, [2]string{field.Name, field.Value})
	}
	return list
}

// forwardAgain settles the headers of the call that has begun a task, for a request about it. The client need not send
// them again, and cannot send others.
func forwardAgain(x *Exchange, task sealed.Task) error {
	if err := forward(x); err != nil {
		return err
	}
	config, had := x.target.Backend.Config(), upstream.Forwarded{}
	for _, f := range task.Forwarded {
		had = append(had, client.HeaderField{Name: f[0], Value: f[1]})
	}
	begun, ok := config.Again(had)
	if !ok { // the entry names other headers now
		return unknownTask()
	}
	for _, f := range x.forwarded {
		if !slices.Contains(begun, f) {
			return InvalidParams("Invalid params: the task was begun with another value of the header %s, or "+
				"without it", f.Name)
		}
	}
	x.forwarded, x.Info.Forwarded = begun, begun.Names()
	return nil
}

// Identified returns who calls, for a server with identity. The subject names the issuer, so that users of two issuers
// are never one. A caller without authentication has none.
func Identified(p *auth.Principal) upstream.Identified {
	switch p.Kind {
	case auth.KindKey:
		return upstream.Identified{Subject: auth.KeyPrincipal(p.Key)}
	case auth.KindUser, auth.KindService:
		return upstream.Identified{Subject: string(p.Kind) + ":" + p.Issuer + " " + p.User, Email: p.Email,
			Groups: p.Groups, Client: p.OAuthClient}
	}
	return upstream.Identified{}
}
