package proxy

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// call makes one call, whichever eras meet, and returns the result as the client's era wants it.
//
// Questions of an upstream to the person are not bridged yet: upstreams hear of no client capability, so that they ask none, and one that asks all the same is
// refused by the conn.
func (s *Server) call(ctx context.Context, x *exchange, t *target, header []upstream.HeaderField) (result, error) {
	x.reply.begin()
	c := x.call(t, header)
	c.Buffer = x.buffer
	answer, err := t.backend.Call(ctx, c)
	if err != nil {
		return result{}, err
	}
	if x.era == upstream.EraModern {
		return s.modernResult(answer, t)
	}
	return result{body: answer.Text()}, nil
}

// modernResult adds what 2026-07-28 wants of a result, where the upstream did not say it: resultType, and who produced it.
func (s *Server) modernResult(o raw.Object, t *target) (result, error) {
	body := o.Text()
	var tail []byte
	if _, err := o.Get("resultType"); err == raw.ErrAbsent {
		tail = append(tail, `,"resultType":"complete"`...)
	}
	switch meta, err := o.Object("_meta"); {
	case err == nil:
		if _, err := meta.Get(mcp.MetaKeyServerInfo); err == raw.ErrAbsent {
			if body, err = raw.Set(body, s.serverInfo, "_meta", mcp.MetaKeyServerInfo); err != nil {
				return result{}, &upstream.Error{Upstream: t.backend.Name(), Kind: upstream.KindInvalid, Err: err}
			}
		}
	case err == raw.ErrAbsent:
		if _, err := o.Get("_meta"); err == raw.ErrAbsent {
			tail = append(append(tail, `,"_meta":`...), s.modernMeta...)
		}
	}
	if len(tail) == 0 {
		return result{body: body}, nil
	}
	if len(o.Members()) == 0 {
		tail = tail[1:]
	}
	end := len(body) - 1 // of the closing brace: body is a value without white space around it
	return result{body: body[:end], tail: append(tail, '}')}, nil
}
