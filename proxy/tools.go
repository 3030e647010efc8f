package proxy

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// listTools answers from the prepared list.
func listTools(_ context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	l := &x.endpoint.view.legacy
	if x.era == upstream.EraModern {
		l = &x.endpoint.view.modern
	}
	offset, err := s.readCursor(x, l)
	if err != nil {
		return result{}, err
	}
	text, next := l.page(offset, s.limits.Page)
	tail := []byte{']'}
	if next > 0 {
		sealed := s.cursors.Seal(cursor{l.print, uint32(next)}.encode(x.endpoint.name))
		tail = raw.AppendQuote(append(tail, `,"nextCursor":`...), sealed)
	}
	if x.era == upstream.EraModern {
		ttl, public := x.endpoint.view.freshness(time.Now())
		tail = appendFreshness(tail, ttl, public)
		tail = append(append(tail, `,"resultType":"complete","_meta":`...), s.modernMeta...)
	}
	return result{head: []byte(`{"tools":[`), body: text, tail: append(tail, '}')}, nil
}

// appendFreshness appends the members ttlMs and cacheScope, a comma before them.
func appendFreshness(b []byte, ttl time.Duration, public bool) []byte {
	b = strconv.AppendInt(append(b, `,"ttlMs":`...), ttl.Milliseconds(), 10)
	if public {
		return append(b, `,"cacheScope":"public"`...)
	}
	return append(b, `,"cacheScope":"private"`...)
}

// readCursor returns the offset that the request's cursor stands for. One that is not ours, or of a list that has changed, is refused.
func (s *Server) readCursor(x *exchange, l *listing) (int, error) {
	if !x.params.Present() {
		return 0, nil
	}
	v, err := x.params.Get("cursor")
	if err == raw.ErrAbsent || err == nil && string(v) == "null" {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	sealed, err := raw.String(v)
	if err != nil {
		return 0, invalidParams("Invalid cursor")
	}
	plain, err := s.cursors.Open(sealed)
	if err != nil {
		return 0, invalidParams("Invalid cursor")
	}
	c, endpoint, ok := decodeCursor(plain)
	if !ok || endpoint != x.endpoint.name || c.print != l.print {
		return 0, invalidParams("Invalid cursor: the list has changed; start again")
	}
	return int(c.offset), nil
}

// callTool passes a call on to the tool's upstream.
func callTool(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	name, err := x.params.String("name")
	if err == raw.ErrAbsent {
		return result{}, invalidParams("Invalid params: no name")
	} else if err != nil {
		return result{}, err
	}
	info.Name = name
	t := x.endpoint.view.byName[name]
	if t == nil || x.era == upstream.EraModern && t.tool.HeaderProblem != "" {
		return result{}, unknownTool(name)
	}
	info.Upstream = t.backend.Name()
	var extra []upstream.HeaderField
	if x.era == upstream.EraModern {
		if extra, err = checkParamHeaders(x, t.tool); err != nil {
			return result{}, err
		}
	}
	return s.call(ctx, x, t, extra)
}

// checkParamHeaders compares the Mcp-Param headers with the arguments that they repeat (2026-07-28, streamable-http#server-validation), and returns
// those that no argument is declared for.
func checkParamHeaders(x *exchange, tool *upstream.Tool) ([]upstream.HeaderField, error) {
	var extra []upstream.HeaderField
	const prefix = "Mcp-Param-"
	for name, values := range x.header {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		declared := false
		for _, p := range tool.Params {
			declared = declared || strings.EqualFold(name, p.Header())
		}
		if !declared {
			for _, v := range values {
				extra = append(extra, upstream.HeaderField{Name: name, Value: v})
			}
		}
	}
	if len(tool.Params) == 0 {
		return extra, nil
	}
	arguments, err := x.params.Object("arguments")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	for _, p := range tool.Params {
		want, given := p.Value(arguments)
		values := x.header[http.CanonicalHeaderKey(p.Header())]
		switch {
		case !given && len(values) == 0:
		case !given:
			return nil, mismatch("%s is set, and the argument that it repeats is not", p.Header())
		case len(values) != 1:
			return nil, mismatch("%s is missing, or occurs twice", p.Header())
		default:
			got, ok := mcp.DecodeHeaderValue(strings.TrimSpace(values[0]))
			if !ok || !p.Matches(got, want) {
				return nil, mismatch("%s differs from the argument that it repeats", p.Header())
			}
		}
	}
	return extra, nil
}
