package proxy

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
)

// backend is an upstream as the proxy needs it.
type backend interface {
	Name() string
	Config() upstream.Config
	Catalog() *upstream.Catalog
	Tried() bool
	Met() <-chan struct{}
	Ready(context.Context) error
	Subscribe(ctx context.Context, p upstream.Profile, session, principal string, uris []string) (upstream.Source, []string, error)
	Unsubscribe(upstream.Source, []string)
	Call(context.Context, *upstream.Call) (upstream.Result, error)
	SignedIn(context.Context) error
	RootsChanged(p upstream.Profile, session, principal string)
	// Separates reports whether CatalogFor may differ from Catalog.
	Separates() bool
	CatalogFor(p upstream.Profile, session, principal string) *upstream.Catalog
	Prepare(ctx context.Context, p upstream.Profile, session, principal string) bool
}

// view is what one endpoint offers: the stocks of its upstreams, merged, with the way back. It is
// immutable.
//
// The view of a person, or of a client with connections of its own, is derived from that of
// everybody: it has other stocks for some upstreams, or more of them, and names of its own for
// these alone. So it takes memory for what is different.
type view struct {
	bare    bool     // names and URIs are the upstream's own, of which there is one
	stocks  []*stock // in the order of the upstreams' names
	begin   []int    // of each stock: the byte of offered where its places begin; and the end of the last
	offered bitset   // the places whose items have their names; they may belong to another upstream
	base    *view    // what the view is derived from; nil for nothing
	parts   [upstream.Parts]part

	problems []Problem
	eras     bool // some tool is not the same, or not there, for clients of the other era
	apps     bool // some tool is for clients that show MCP Apps

	separates bool  // an upstream may offer clients different things: see fitted.go
	settled   bool  // all upstreams were tried, so that names belong to whoever has them
	last      *view // of a view that is not settled: the settled one before it, whose names stay; nil for none
	whole     *sight
}

// part is the names of one kind of items. Those of a derived view are in its base, unless it has a
// stock of its own that has the name.
type part struct {
	byName map[string]*target
	// byOwn is by the upstream's own name, which the HTML of MCP Apps has in it; nil for one that
	// several upstreams have, or that is not offered.
	byOwn  map[string]*target
	rivals map[string][]*target // those that are offered of the own names that byOwn has nil for
}

// Problem is an item that is not offered on an endpoint, and why.
type Problem struct {
	Endpoint, Upstream string
	Part               upstream.Part
	Name, Reason       string
}

// compile builds the view of an endpoint over stocks, which are in the order of their upstreams'
// names. With bare set the items keep their own names. Of two items that want one name the one that
// had it in old keeps it, and the other one is left out. Until all upstreams were tried nobody has
// a name yet: the order decides, so that a restart gives the same names whoever is ready first.
func compile(endpoint string, stocks []*stock, bare bool, old *view) *view {
	if old != nil && !old.settled {
		old = old.last
	}
	v := newView(stocks, bare)
	for i := range stocks {
		v.addAll(endpoint, i, nil, old)
	}
	v.finish(endpoint)
	if !v.settled {
		v.last = old
	}
	return v
}

// derive returns the view of the same endpoint with other stocks: those that v has, too, offer what
// they offer in v, and the others are added. The names of v stay.
func (v *view) derive(endpoint string, stocks []*stock) *view {
	d := newView(stocks, v.bare)
	if d.base = v.base; d.base == nil {
		d.base = v
	}
	for i, st := range stocks {
		if k := slices.Index(v.stocks, st); k >= 0 {
			copy(d.of(i), v.of(k))
		}
	}
	for i, st := range stocks {
		if slices.Contains(d.base.stocks, st) {
			continue // its names are those of the base
		}
		var only bitset
		if slices.Contains(v.stocks, st) {
			only = slices.Clone(d.of(i))
			clear(d.of(i))
		}
		d.addAll(endpoint, i, only, v)
	}
	d.finish(endpoint)
	return d
}

func newView(stocks []*stock, bare bool) *view {
	v := &view{bare: bare, stocks: stocks, begin: make([]int, 1, len(stocks)+1), settled: true}
	for i, st := range stocks {
		v.begin = append(v.begin, v.begin[i]+(st.places+7)/8)
		v.settled = v.settled && st.backend.Tried()
		v.separates = v.separates || st.backend.Separates()
	}
	v.offered = make(bitset, v.begin[len(stocks)])
	for p := range v.parts {
		v.parts[p].byName = map[string]*target{}
	}
	return v
}

// addAll offers the items of a stock; of a stock that another view has already, those that have
// their names there.
func (v *view) addAll(endpoint string, i int, only bitset, old *view) {
	st := v.stocks[i]
	face := st.face(v.bare)
	for _, problem := range face.problems {
		problem.Endpoint = endpoint
		v.problems = append(v.problems, problem)
	}
	for place, t := range face.targets {
		if t != nil && (only == nil || only.has(place)) && (!t.connects || st.catalog.SignIn) {
			v.take(endpoint, i, t, old)
		}
	}
}

// take offers a target of the stock i, unless another one has its name already.
func (v *view) take(endpoint string, i int, t *target, old *view) {
	owner := v.exposed(t.part, t.exposed)
	if owner != nil && !v.outranks(t, owner, old) {
		v.problems = append(v.problems, Problem{endpoint, t.backend.Name(), t.part, t.name, collision(owner, t)})
		return
	}
	if owner != nil {
		v.offered.clear(v.place(owner))
		lost := Problem{endpoint, owner.backend.Name(), t.part, owner.name, collision(t, owner)}
		v.problems = append(v.problems, lost)
	}
	v.parts[t.part].byName[t.exposed] = t
	v.of(i).set(t.place)
}

// outranks reports whether a target takes its name from the one that has it.
func (v *view) outranks(t, owner *target, old *view) bool {
	if old != nil {
		switch before := old.exposed(t.part, t.exposed); {
		case before == nil:
		case before.backend.Name() == t.backend.Name() && before.name == t.name:
			return true
		case before.backend.Name() == owner.backend.Name() && before.name == owner.name:
			return false
		}
	}
	return slices.Index(v.stocks, t.stock) < slices.Index(v.stocks, owner.stock)
}

// of returns what is offered of the stock i, by place.
func (v *view) of(i int) bitset { return v.offered[v.begin[i]:v.begin[i+1]] }

// place returns the bit of offered that is the target's; -1 if the view does not have its stock.
func (v *view) place(t *target) int {
	i := slices.Index(v.stocks, t.stock)
	if i < 0 {
		return -1
	}
	return 8*v.begin[i] + t.place
}

// has reports whether the view offers the target.
func (v *view) has(t *target) bool {
	place := v.place(t)
	return place >= 0 && v.offered.has(place)
}

// collision says what to do about two items that want one name.
func collision(stays, goes *target) string {
	switch goes.part {
	case upstream.PartTools:
		return fmt.Sprintf("its name %s belongs to %s of %s already; set prefix or tools.%s.as", goes.exposed, stays.name, stays.backend.Name(), goes.name)
	case upstream.PartPrompts:
		return fmt.Sprintf("its name %s belongs to %s of %s already; set prefix", goes.exposed, stays.name, stays.backend.Name())
	}
	return fmt.Sprintf("%s has it too, and a web address has no room for the upstream's name; it can be read at /mcp/%s", stays.backend.Name(), goes.backend.Name())
}

// finish makes of a view to which nothing more is added one that can be used.
func (v *view) finish(endpoint string) {
	if v.base != nil {
		v.eras, v.apps = v.base.eras, v.base.apps // perhaps for tools that are not in v
	}
	for i, st := range v.stocks {
		if v.base != nil && slices.Contains(v.base.stocks, st) {
			continue
		}
		if !v.bare {
			v.addOwn(i)
		}
		for _, t := range st.face(v.bare).targets[:st.first[upstream.PartTools+1]] {
			if t == nil || !v.of(i).has(t.place) {
				continue
			}
			v.apps, v.eras = v.apps || t.forApps, v.eras || t.older != nil
			if t.tool.HeaderProblem != "" {
				v.eras = true
				reason := "not offered to clients of 2026-07-28: " + t.tool.HeaderProblem
				v.problems = append(v.problems, Problem{endpoint, t.backend.Name(), t.part, t.name, reason})
			}
		}
	}
	v.whole = newSight(v, v.offered, func(int) bool { return true })
}

// addOwn adds the own names of a stock's tools and prompts.
func (v *view) addOwn(i int) {
	st := v.stocks[i]
	targets := st.face(v.bare).targets
	for p := upstream.PartTools; p <= upstream.PartPrompts; p++ {
		part := &v.parts[p]
		if part.byOwn == nil {
			part.byOwn, part.rivals = map[string]*target{}, map[string][]*target{}
		}
		first, end := st.part(p)
		for place := first; place < end; place++ {
			name, t := st.catalog.Item(p, place-first).Name, targets[place]
			if !v.of(i).has(place) {
				t = nil
			}
			owner, known := part.byOwn[name]
			if !known && v.base != nil {
				var among []*target
				if owner, among = v.owners(p, name); len(among) > 0 {
					part.rivals[name] = among
				}
				known = owner != nil || len(among) > 0
			}
			if part.byOwn[name] = t; !known {
				continue
			}
			part.byOwn[name] = nil
			for _, rival := range []*target{owner, t} {
				if rival != nil {
					part.rivals[name] = append(part.rivals[name], rival)
				}
			}
		}
	}
}

// exposed returns the target that has a name or URI on the endpoint; nil for none.
func (v *view) exposed(p upstream.Part, name string) *target {
	if t := v.parts[p].byName[name]; t != nil || v.base == nil {
		return t
	}
	if t := v.base.parts[p].byName[name]; t != nil && v.has(t) {
		return t
	}
	return nil
}

// owners returns the one target that has an upstream's own name; nil where that is not sure. Then
// it returns those that have it and are offered.
func (v *view) owners(p upstream.Part, own string) (sure *target, among []*target) {
	if t, known := v.parts[p].byOwn[own]; known || v.base == nil {
		return t, v.parts[p].rivals[own]
	}
	if sure = v.base.parts[p].byOwn[own]; sure != nil && !v.has(sure) {
		sure = nil
	}
	for _, t := range v.base.parts[p].rivals[own] {
		if v.has(t) {
			among = append(among, t)
		}
	}
	return sure, among
}

// named returns the tool or prompt of that name. An upstream's own name is as good as the exposed
// one where it can only be one item: the HTML of MCP Apps, and other texts of upstreams, have such
// names in them.
func (v *view) named(p upstream.Part, name string) *target {
	if t := v.exposed(p, name); t != nil {
		return t
	}
	sure, _ := v.owners(p, name)
	return sure
}

// samePart reports whether another view offers the same items of a part, from the same stocks.
// False may be wrong.
func (v *view) samePart(o *view, p upstream.Part) bool {
	next := func(v *view, i int) int { // the next stock that has such items
		for i < len(v.stocks) && v.stocks[i].lacks(p) {
			i++
		}
		return i
	}
	for i, k := next(v, 0), next(o, 0); ; i, k = next(v, i+1), next(o, k+1) {
		if i == len(v.stocks) || k == len(o.stocks) {
			return i == len(v.stocks) && k == len(o.stocks)
		}
		if v.stocks[i] != o.stocks[k] || string(v.of(i)) != string(o.of(k)) {
			return false
		}
	}
}

// bytes is about how much memory a derived view takes, beside its base.
func (v *view) bytes() int {
	n := 2000 + 16*len(v.stocks) + 3*len(v.offered)
	for _, st := range v.stocks {
		if !slices.Contains(v.base.stocks, st) {
			n += st.bytes()
		}
	}
	return n
}

// all returns the items of a part that the view offers, in the order of the lists.
func (v *view) all(p upstream.Part) iter.Seq[*target] { return v.whole.all(p) }

// completes reports whether an upstream may complete arguments: it declares that, or is of
// 2024-11-05, where there was nothing to declare it with, or was never there so far.
func completes(c *upstream.Catalog) bool {
	return c.Offers("completions") || c.Version == mcp.ProtocolVersion20241105 || unknown(c)
}

// unknown reports whether we do not know yet what the upstream can do.
func unknown(c *upstream.Catalog) bool { return c.Listed.IsZero() && !c.Capabilities.Present() }

// appendCapabilities appends what clients of an era may ask of the endpoint. Tools, prompts and
// resources are always there: which of them an upstream has may change at any time, and an empty
// list is an honest answer. The rest is there as soon as some upstream can do it.
//
// MCP Apps are always there as well: the extension has no methods of its own, and its parts in
// tools and resources pass through whatever an upstream declares.
func (o offers) appendCapabilities(b []byte, era upstream.Era) []byte {
	b = append(b, `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true`...)
	if o.subscribe {
		b = append(b, `,"subscribe":true`...)
	}
	b = append(b, '}')
	if o.completions {
		b = append(b, `,"completions":{}`...)
	}
	if o.logging {
		b = append(b, `,"logging":{}`...)
	}
	if era == upstream.EraModern {
		b = append(b, `,"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}`...)
		if o.tasks {
			b = append(b, `,"`+upstream.ExtensionTasks+`":{}`...)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}
