package proxy

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"junction/upstream"
	"junction/upstream/raw"
)

// backend is an upstream as the proxy needs it.
type backend interface {
	Name() string
	Config() upstream.Config
	Catalog() *upstream.Catalog
	Tried() bool
	Call(context.Context, *upstream.Call) (upstream.Result, error)
	RootsChanged(p upstream.Profile, session, principal string)
}

// view is what one endpoint offers: the catalogs of its upstreams, merged and renamed, with the way back. It is immutable.
type view struct {
	tools    []*target
	byName   map[string]*target
	problems []Problem

	settled        bool    // all upstreams were tried, so that names belong to whoever has them
	last           *view   // of a view that is not settled: the settled one before it, whose names stay; nil for none
	legacy, modern listing // what tools/list answers in each era
	sources        []*upstream.Catalog
}

// target is a tool as clients see it, and the way back to its upstream.
type target struct {
	exposed    string
	definition []byte // with the exposed name
	backend    backend
	tool       *upstream.Tool
}

// Problem is an item that is not offered on an endpoint, and why.
type Problem struct{ Endpoint, Upstream, Name, Reason string }

// compile builds the view of an endpoint over backends, which are in the order of their names. With bare set the items keep their own names. Of two items that
// want one name the one that had it in old keeps it, and the other one is left out. Until all upstreams were tried nobody has a name yet: the order decides, so
// that a restart gives the same names whoever is ready first.
func compile(endpoint string, backends []backend, names Names, bare bool, old *view) *view {
	v := &view{byName: map[string]*target{}, settled: true}
	if old != nil && !old.settled {
		old = old.last
	}
	for _, b := range backends {
		catalog, config := b.Catalog(), b.Config()
		v.sources = append(v.sources, catalog)
		v.settled = v.settled && b.Tried()
		for i := range catalog.Tools {
			tool := &catalog.Tools[i]
			rule, ruled := config.Tools.Match(tool.Name)
			if rule.Enabled != nil && !*rule.Enabled || !ruled && config.Expose == upstream.ExposeListed {
				continue
			}
			t := &target{backend: b, tool: tool, exposed: cmp.Or(rule.As, tool.Name)}
			if !bare {
				prefix := b.Name()
				if config.Prefix != nil {
					prefix = *config.Prefix
				}
				t.exposed = names.expose(prefix, t.exposed)
			}
			v.take(endpoint, t, old)
		}
	}
	if !v.settled {
		v.last = old
	}
	if len(v.problems) > 0 { // an item that lost its name left a gap
		v.tools = slices.DeleteFunc(v.tools, func(t *target) bool { return v.byName[t.exposed] != t })
	}
	for _, t := range v.tools {
		t.rename()
	}
	v.legacy = newList(v.tools, func(*target) bool { return true })
	v.modern = newList(v.tools, func(t *target) bool { return t.tool.HeaderProblem == "" })
	for _, t := range v.tools {
		if t.tool.HeaderProblem != "" {
			v.problems = append(v.problems, Problem{endpoint, t.backend.Name(), t.tool.Name, "not offered to clients of 2026-07-28: " + t.tool.HeaderProblem})
		}
	}
	return v
}

// take adds a tool, unless another one has its name already.
func (v *view) take(endpoint string, t *target, old *view) {
	owner := v.byName[t.exposed]
	if owner == nil {
		v.tools = append(v.tools, t)
		v.byName[t.exposed] = t
		return
	}
	stays, goes := owner, t
	if old != nil {
		if before := old.byName[t.exposed]; before != nil && before.backend.Name() == t.backend.Name() && before.tool.Name == t.tool.Name {
			stays, goes = t, owner
			v.tools = append(v.tools, t)
			v.byName[t.exposed] = t
		}
	}
	v.problems = append(v.problems, Problem{endpoint, goes.backend.Name(), goes.tool.Name,
		fmt.Sprintf("its name %s belongs to %s of %s already; set prefix or tools.%s.as", t.exposed, stays.tool.Name, stays.backend.Name(), goes.tool.Name)})
}

// rename makes the definition that clients see: the upstream's bytes, but for the name.
func (t *target) rename() {
	t.definition = t.tool.Definition.Text()
	if t.exposed != t.tool.Name {
		// The catalog has read the name already, so there is exactly one.
		if renamed, err := t.tool.Definition.Splice(raw.Edit{Name: "name", Value: raw.Quote(t.exposed)}); err == nil {
			t.definition = renamed
		}
	}
}

// freshness returns how long the merged list stays fresh, and whether it is the same for every user: the least that its parts say
// (2026-07-28, server/utilities/caching). An upstream that says nothing says 0.
func (v *view) freshness(now time.Time) (ttl time.Duration, public bool) {
	for i, c := range v.sources {
		left := max(0, c.TTL-now.Sub(c.Listed))
		if i == 0 {
			ttl, public = left, c.Public
			continue
		}
		ttl, public = min(ttl, left), public && c.Public
	}
	return ttl, public
}

// listing is the answer to a list request, prepared: the definitions, joined, and where each ends.
type listing struct {
	text  []byte
	ends  []int // of each definition in text; a comma follows all but the last
	print uint64
}

func newList(tools []*target, keep func(*target) bool) listing {
	var l listing
	size := 0
	for _, t := range tools {
		size += len(t.definition) + 1
	}
	l.text = make([]byte, 0, size)
	for _, t := range tools {
		if !keep(t) {
			continue
		}
		if len(l.text) > 0 {
			l.text = append(l.text, ',')
		}
		l.text = append(l.text, t.definition...)
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

func (c cursor) encode(endpoint string) []byte {
	b := binary.BigEndian.AppendUint64(nil, c.print)
	b = binary.BigEndian.AppendUint32(b, c.offset)
	return append(b, endpoint...)
}

func decodeCursor(b []byte) (c cursor, endpoint string, ok bool) {
	if len(b) < 12 {
		return c, "", false
	}
	return cursor{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}, string(b[12:]), true
}
