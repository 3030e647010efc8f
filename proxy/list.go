package proxy

import (
	"encoding/binary"
	"hash/maphash"
	"io"
	"strconv"
	"sync/atomic"
	"time"
	"unique"

	"junction/upstream"
	"junction/upstream/raw"
)

// list answers with a page of a part.
func (s *Server) list(x *exchange, p upstream.Part) (result, error) {
	seen := x.share.sight()
	k := seen.view.kind(p, x.era, x.who.profile)
	offset, err := s.readCursor(x, seen, p, k)
	if err != nil {
		return result{}, err
	}
	r, next := x.endpoint.page(seen, p, k, offset, s.limits.Page)
	r.tail = []byte{']'}
	if next > 0 {
		sealed := s.cursors.Seal(cursor{seen.print(p, k), uint32(next)}.encode(x.owner()))
		r.tail = raw.AppendQuote(append(r.tail, `,"nextCursor":`...), sealed)
	}
	if x.era == upstream.EraModern {
		ttl, public := seen.freshness(p, time.Now())
		r.tail = appendFreshness(r.tail, ttl, public && !x.share.private())
		r.tail = append(append(r.tail, `,"resultType":"complete","_meta":`...), s.modernMeta...)
	}
	r.head, r.tail = []byte(`{"`+p.Member()+`":[`), append(r.tail, '}')
	return r, nil
}

// appendFreshness appends the members ttlMs and cacheScope, a comma before them.
func appendFreshness(b []byte, ttl time.Duration, public bool) []byte {
	b = strconv.AppendInt(append(b, `,"ttlMs":`...), ttl.Milliseconds(), 10)
	if public {
		return append(b, `,"cacheScope":"public"`...)
	}
	return append(b, `,"cacheScope":"private"`...)
}

// readCursor returns the offset that the request's cursor stands for. One that is not ours, or of a
// list that has changed, is refused.
func (s *Server) readCursor(x *exchange, seen *sight, p upstream.Part, k listKind) (int, error) {
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
	if !ok || owner != x.owner() || c.print != seen.print(p, k) {
		return 0, invalidParams("Invalid cursor: the list has changed; start again")
	}
	return int(c.offset), nil
}

// owner is whose a cursor is: of no use on another endpoint, or to somebody else.
func (x *exchange) owner() string { return x.endpoint.name + "\x00" + x.principal.ID }

// definitions are items of a list, with commas between them when they are written.
type definitions struct {
	list [][]byte
	size int // when they are written
}

func (d *definitions) add(text []byte) {
	if len(d.list) > 0 {
		d.size++
	}
	d.list = append(d.list, text)
	d.size += len(text)
}

// appendTo appends them to b.
func (d *definitions) appendTo(b []byte) []byte {
	for i, text := range d.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
	}
	return b
}

// writeTo writes them, small ones together. What cannot be written to a client has no one to be
// reported to.
func (d *definitions) writeTo(w io.Writer, buffer *[]byte) {
	const together = 32 << 10
	b := (*buffer)[:0]
	for i, text := range d.list {
		if i > 0 {
			b = append(b, ',')
		}
		if len(b)+len(text) > together {
			w.Write(b)
			b = b[:0]
		}
		if len(text) > together {
			w.Write(text)
			continue
		}
		b = append(b, text...)
	}
	w.Write(b)
	*buffer = b
}

// pages are those of one endpoint that are prepared.
type pages struct {
	of      cache[pageKey, prepared]
	wanted  *wanted
	refused atomic.Uint32
}

// pageKey is a page of a list that some subjects see.
type pageKey struct {
	view   *view
	seen   unique.Handle[string]
	part   upstream.Part
	kind   listKind
	offset int
	count  int
}

// prepared is the text of a page, and the offset of the next one; 0 when there is none.
type prepared struct {
	text []byte
	next int
}

// wanted are the pages that were asked for last, by their hashes. Each has one place.
type wanted [1 << 12]atomic.Uint64

// again reports whether a page was asked for before, and notes that it was. It may be wrong.
func (a *wanted) again(key pageKey) bool {
	hash := maphash.Comparable(claimSeed, key)
	return a[hash%uint64(len(a))].Swap(hash) == hash
}

// page returns a page of a list, and the offset of the next one; 0 when there is none. It is made
// of the definitions, which all subjects share. A page that is asked for again is prepared for
// those who see the same, so that it need not be joined any more. While all room for pages is taken
// most pages are not: to prepare pages that leave before they are asked for once more takes longer
// than to make them.
func (e *endpoint) page(seen *sight, p upstream.Part, k listKind, offset, n int) (r result, next int) {
	key := pageKey{seen.view, seen.seen, p, k, offset, n}
	if known, ok := e.pages.of.get(key); ok {
		return result{body: known.text}, known.next
	}
	list, next := seen.page(p, k, offset, n)
	bytes := 200 + len(seen.seen.Value()) + list.size
	if list.size == 0 || list.size > maxPages/4 || !e.pages.wanted.again(key) ||
		!e.pages.of.fits(bytes) && e.pages.refused.Add(1)%pagesRefused != 0 {
		return result{items: list}, next
	}
	text := list.appendTo(make([]byte, 0, list.size))
	e.pages.of.put(key, prepared{text, next}, bytes)
	return result{body: text}, next
}

// pagesRefused is of how many pages one takes the room of others.
const pagesRefused = 16

// cursor is what a cursor of ours says: which list, and how far. A list that has changed since is
// another one.
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
