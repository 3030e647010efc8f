package client

import (
	"context"
	"errors"
	"net/http"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// Probed is how a server answers a client that has no token.
type Probed struct {
	// Err is the error of the first request that failed: of the handshake, or of the first page of a
	// list. It is nil if the server has answered both. Many servers ask for a sign-in only later, at a
	// call, so that nil does not mean that there is none.
	Err error
	// Status is the HTTP status of Err; 0 for none.
	Status int
	// Metadata is where the challenge says that the metadata of the resource are (RFC 9728, section
	// 5.1), as the server wrote it, and Scope what it asks for. They are "" without a challenge.
	Metadata, Scope string
}

// Asks reports whether the server has asked for a sign-in.
func (p *Probed) Asks() bool {
	return p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden && p.Metadata != ""
}

// Later reports whether another attempt may have another result: the server gave no answer, or one that
// tells nothing about a sign-in (429, 5xx).
func (p *Probed) Later() bool {
	_, answered := errors.AsType[*jsonrpc.Error](p.Err)
	answered = answered || errors.Is(p.Err, transport.ErrInvalid)
	return p.Err != nil && !answered && (p.Status == 0 || p.Status == http.StatusTooManyRequests || p.Status >= 500)
}

// probeMessage limits the messages of a probe in bytes, unless the caller does. What they say does not
// count.
const probeMessage = 1 << 20

// Probe connects to a server without a token, as the proxy does, asks for a list, and ends its session.
func Probe(ctx context.Context, o Options) *Probed {
	o.Token = nil
	if o.MessageLimit == 0 {
		o.MessageLimit = probeMessage
	}
	d := NewDialer(o)
	defer d.CloseIdle()
	c, err := d.Dial(ctx, Profile{}, Hooks{Changed: func() {}})
	if err == nil {
		err = firstPage(ctx, c)
		_ = c.Close()
	}
	if d.mayBeSSE(err) { // Dial does not return what HTTP+SSE has answered
		second := Probe(ctx, withTransport(o, o.Transport.row().next))
		if second.Err == nil || second.Asks() {
			return second
		}
	}
	p := &Probed{Err: err}
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		challenge, _ := transport.OfBearer(status.Challenge)
		p.Status = status.Status
		p.Metadata, p.Scope = challenge.Parameters["resource_metadata"], challenge.Parameters["scope"]
	}
	return p
}

func withTransport(o Options, t Transport) Options {
	o.Transport = t
	return o
}

// firstPage asks for the first page of one list. A server that has no list is not asked.
func firstPage(ctx context.Context, c Conn) error {
	info := c.Info()
	for _, listing := range listings {
		// some old servers do not declare their tools
		if info.Capabilities.HasObject(listing) || info.Era == EraLegacy && listing == "tools" {
			_, err := c.List(ctx, listing+"/list", nil, nil)
			if errors.Is(err, transport.ErrInvalid) {
				return nil // it has answered
			}
			return unlessAnswered(err)
		}
	}
	return nil
}
