package proxy

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"junction/upstream"
	"junction/upstream/raw"
)

// list answers from the prepared list of a part.
func (s *Server) list(x *exchange, p upstream.Part) (result, error) {
	l := x.share.view.parts[p].listing(x.era, x.who.profile)
	offset, err := s.readCursor(x, l)
	if err != nil {
		return result{}, err
	}
	text, next := l.page(offset, s.limits.Page)
	tail := []byte{']'}
	if next > 0 {
		sealed := s.cursors.Seal(cursor{l.print, uint32(next)}.encode(x.owner()))
		tail = raw.AppendQuote(append(tail, `,"nextCursor":`...), sealed)
	}
	if x.era == upstream.EraModern {
		ttl, public := x.share.view.freshness(p, time.Now())
		tail = appendFreshness(tail, ttl, public && !x.share.private)
		tail = append(append(tail, `,"resultType":"complete","_meta":`...), s.modernMeta...)
	}
	return result{head: []byte(`{"` + p.Member() + `":[`), body: text, tail: append(tail, '}')}, nil
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
	c, owner, ok := decodeCursor(plain)
	if !ok || owner != x.owner() || c.print != l.print {
		return 0, invalidParams("Invalid cursor: the list has changed; start again")
	}
	return int(c.offset), nil
}

// owner is whose a cursor is: of no use on another endpoint, or to somebody else.
func (x *exchange) owner() string { return x.endpoint.name + "\x00" + x.principal.ID }

// listing is the answer to a list request, prepared: the definitions, joined, and where each ends.
type listing struct {
	text  []byte
	ends  []int // of each definition in text; a comma follows all but the last
	print uint64
}

// listings are the answers for clients that show MCP Apps, and for those that do not. They are one where there is no difference.
type listings struct{ apps, plain *listing }

func newListings(targets []*target, definition func(*target) []byte) listings {
	all := newListing(targets, definition)
	if !slices.ContainsFunc(targets, func(t *target) bool { return t.forApps }) {
		return listings{&all, &all}
	}
	plain := newListing(targets, func(t *target) []byte {
		if t.forApps {
			return nil
		}
		return definition(t)
	})
	return listings{&all, &plain}
}

// newListing joins what definition returns for each target; nil leaves it out.
func newListing(targets []*target, definition func(*target) []byte) listing {
	var l listing
	size := 0
	for _, t := range targets {
		size += len(t.definition) + 1
	}
	l.text = make([]byte, 0, size)
	for _, t := range targets {
		text := definition(t)
		if text == nil {
			continue
		}
		if len(l.text) > 0 {
			l.text = append(l.text, ',')
		}
		l.text = append(l.text, text...)
		l.ends = append(l.ends, len(l.text))
	}
	h := fnv.New64a()
	h.Write(l.text)
	l.print = h.Sum64()
	return l
}

// page returns the definitions from the offset on, at most n of them, and the offset of the next page; 0 when there is none.
func (l *listing) page(offset, n int) (text []byte, next int) {
	if offset >= len(l.ends) {
		return nil, 0
	}
	start := 0
	if offset > 0 {
		start = l.ends[offset-1] + 1
	}
	if offset+n < len(l.ends) {
		return l.text[start:l.ends[offset+n-1]], offset + n
	}
	return l.text[start:], 0
}

// cursor is what a cursor of ours says: which list, and how far. A list that has changed since is another one.
type cursor struct {
	print  uint64
	offset uint32
}

func (c cursor) encode(owner string) []byte {
	b := binary.BigEndian.AppendUint64(nil, c.print)
	b = binary.BigEndian.AppendUint32(b, c.offset)
	return append(b, owner...)
}

func decodeCursor(b []byte) (c cursor, owner string, ok bool) {
	if len(b) < 12 {
		return c, "", false
	}
	return cursor{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}, string(b[12:]), true
}
