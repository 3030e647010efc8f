// Package view merges the tools, prompts and resources of several upstreams into one list. It also
// maps a name or URI back to its upstream.
//
// A Stock (stock.go) holds the items of one upstream's catalog. Each item is a Target (target.go)
// with its exposed name (names.go) or URI (resource.go, template.go). A View (view.go) merges
// stocks for one endpoint. A SubjectView (subject.go) is the part of a View that one policy subject
// may use; a Sight (sight.go) stores that part as one bit per item. File uris.go rewrites URIs in
// results and errors, definitions.go holds the items of a list, and rulings.go keeps the rulings of
// policies.
package view

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/definition"
)

// Backend is the interface of an upstream for the proxy.
type Backend interface {
	Name() string
	Config() upstream.Config
	Catalog() *upstream.Catalog
	Announced() uint64
	Tried() bool
	Met() <-chan struct{}
	Ready(context.Context) error
	Subscribe(ctx context.Context, of *upstream.Call, uris []string) (upstream.Source, []string, error)
	Unsubscribe(upstream.Source, []string)
	Call(context.Context, *upstream.Call) (client.Result, error)
	SignedIn(context.Context) error
	Current(context.Context) bool
	Relist()
	// Reread reads the lists again for a caller that names an item which they do not have. It reports
	// whether a reading has ended.
	Reread(ctx context.Context, p client.Profile, session, principal string) bool
	RootsChanged(p client.Profile, session, principal string)
	// Separates reports whether CatalogFor may differ from Catalog.
	Separates() bool
	CatalogFor(p client.Profile, session, principal string) *upstream.Catalog
	Prepare(ctx context.Context, p client.Profile, session, principal string) bool
	// Holder, Keeps and Discard are about the state of a server (stateful).
	Holder(upstream.Window) (holder string, ok bool)
	Keeps(holder string) bool
	Discard(holder string)
	// ByFolder reports whether a process belongs to a folder of a client, and NeedsFolder whether no call is made
	// without one.
	ByFolder() bool
	NeedsFolder() bool
	// AwaitsFolder reports whether the lists were not read yet, and are read in a folder of a client if the server
	// ends in an empty one.
	AwaitsFolder() bool
	// Bring lends the folders of a client to the first reading of the lists, and reports whether it had to wait.
	// BringLater does not wait for the reading.
	Bring(context.Context, *upstream.Folders) bool
	BringLater(*upstream.Folders)
	// Warm opens the connection of a caller before the first call, if the configuration says so.
	Warm(c *upstream.Call)
}

// View holds the items of one endpoint: the merged stocks of its upstreams, and the map from names
// back to items. A View is immutable.
//
// The view of a user, or of a client with its own connections, is derived from the common view. It
// has other or additional stocks for some upstreams, and stores only the names of these. So a
// derived view takes memory only for the difference.
type View struct {
	Bare    bool     // names and URIs are as the single upstream has them
	Stocks  []*Stock // in the order of the upstreams' names
	begin   []int    // of each stock: the byte of offered where its places begin; then the end of the last
	offered bitset   // the places of offered items; a name may belong to another upstream
	Base    *View    // the view that this view is derived from; nil for none
	parts   [upstream.Parts]part

	Problems []Problem
	eras     bool // some tool is different or missing for clients of the other era
	apps     bool // some tool is only for clients that show MCP Apps

	Separates bool  // an upstream may have different catalogs for different clients
	settled   bool  // all upstreams were tried, so later views keep the owners of names
	last      *View // of a view that is not settled: the last settled view, whose names stay; nil for none
	whole     *Sight
}

// part holds the names of one kind of items. A derived view holds only the names of its own stocks;
// the others are in its base.
type part struct {
	byName map[string]*Target
	// byOwn is keyed by the upstream's own name, which HTML of MCP Apps may contain. The value is
	// nil if several upstreams have the name, or if the item is not offered.
	byOwn  map[string]*Target
	rivals map[string][]*Target // the offered targets of own names whose byOwn is nil
}

// Problem is a hidden item of an endpoint, and the reason. /readyz has its JSON.
type Problem struct {
	Endpoint string        `json:"-"`
	Upstream string        `json:"upstream"`
	Part     upstream.Part `json:"-"`
	Name     string        `json:"name"`
	Reason   string        `json:"reason"`
}

// Compile builds the view of an endpoint. The stocks are in the order of their upstreams' names. If
// bare is set, the items keep their own names. If two items have the same name, the owner of the
// name in old keeps it, and the other item is hidden. Until all upstreams were tried, the order of
// the stocks decides instead. So a restart gives the same names, whichever upstream is ready first.
func Compile(endpoint string, stocks []*Stock, bare bool, old *View) *View {
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

// Current reports whether Compile would make the same view of these stocks again, with v as old.
func (v *View) Current(stocks []*Stock) bool {
	separates := slices.ContainsFunc(stocks, func(st *Stock) bool { return st.Backend.Separates() })
	return v.settled && v.Base == nil && v.Separates == separates && slices.Equal(v.Stocks, stocks)
}

// Derive returns the view of the same endpoint with other stocks. Stocks that v also has offer the
// same items as in v; the items of the other stocks are added. Names of v do not change.
func (v *View) Derive(endpoint string, stocks []*Stock) *View {
	d := newView(stocks, v.Bare)
	if d.Base = v.Base; d.Base == nil {
		d.Base = v
	}
	for i, st := range stocks {
		if k := slices.Index(v.Stocks, st); k >= 0 {
			copy(d.offeredBy(i), v.offeredBy(k))
		}
	}
	for i, st := range stocks {
		if slices.Contains(d.Base.Stocks, st) {
			continue // its names are in the base
		}
		var only bitset
		if slices.Contains(v.Stocks, st) {
			only = slices.Clone(d.offeredBy(i))
			clear(d.offeredBy(i))
		}
		d.addAll(endpoint, i, only, v)
	}
	d.finish(endpoint)
	return d
}

func newView(stocks []*Stock, bare bool) *View {
	v := &View{Bare: bare, Stocks: stocks, begin: make([]int, 1, len(stocks)+1), settled: true}
	for i, st := range stocks {
		v.begin = append(v.begin, v.begin[i]+(st.places+7)/8)
		v.settled = v.settled && st.Backend.Tried()
		v.Separates = v.Separates || st.Backend.Separates()
	}
	v.offered = make(bitset, v.begin[len(stocks)])
	for p := range v.parts {
		v.parts[p].byName = map[string]*Target{}
	}
	return v
}

// addAll offers the items of stock i. If only is not nil, it offers only these places, which
// another view offers.
func (v *View) addAll(endpoint string, i int, only bitset, old *View) {
	st := v.Stocks[i]
	naming := st.naming(v.Bare)
	for _, problem := range naming.problems {
		problem.Endpoint = endpoint
		v.Problems = append(v.Problems, problem)
	}
	for place, t := range naming.targets {
		if t != nil && (only == nil || only.has(place)) && (!t.Connects || st.Catalog.SignIn) {
			v.take(endpoint, i, t, old)
		}
	}
}

// take offers a target of stock i, unless another target keeps the name.
func (v *View) take(endpoint string, i int, t *Target, old *View) {
	owner := v.Exposed(t.Part, t.Exposed)
	if owner != nil && !v.outranks(t, owner, old) {
		v.Problems = append(v.Problems, Problem{endpoint, t.Backend.Name(), t.Part, t.Name, collision(owner, t)})
		return
	}
	if owner != nil {
		v.offered.clear(v.place(owner))
		lost := Problem{endpoint, owner.Backend.Name(), t.Part, owner.Name, collision(t, owner)}
		v.Problems = append(v.Problems, lost)
	}
	v.parts[t.Part].byName[t.Exposed] = t
	v.offeredBy(i).set(int(t.place))
}

// outranks reports whether t takes its name from owner.
func (v *View) outranks(t, owner *Target, old *View) bool {
	if old != nil {
		switch before := old.Exposed(t.Part, t.Exposed); {
		case before == nil:
		case before.Backend.Name() == t.Backend.Name() && before.Name == t.Name:
			return true
		case before.Backend.Name() == owner.Backend.Name() && before.Name == owner.Name:
			return false
		}
	}
	return slices.Index(v.Stocks, t.stock) < slices.Index(v.Stocks, owner.stock)
}

// offeredBy returns the offered places of stock i.
func (v *View) offeredBy(i int) bitset { return v.offered[v.begin[i]:v.begin[i+1]] }

// place returns the target's bit in offered; -1 if the view does not have its stock.
func (v *View) place(t *Target) int {
	i := slices.Index(v.Stocks, t.stock)
	if i < 0 {
		return -1
	}
	return 8*v.begin[i] + int(t.place)
}

// has reports whether the view offers the target.
func (v *View) has(t *Target) bool {
	place := v.place(t)
	return place >= 0 && v.offered.has(place)
}

// collision returns the problem text for two items with the same name, with the fix.
func collision(stays, goes *Target) string {
	switch goes.Part {
	case upstream.PartTools:
		return fmt.Sprintf("its name %s belongs to %s of %s already; set upstreams.%s.tools.%s.as or "+
			"upstreams.%s.tools.%s.as, or a prefix of one of them", goes.Exposed, stays.Name, stays.Backend.Name(),
			goes.Backend.Name(), goes.Name, stays.Backend.Name(), stays.Name)
	case upstream.PartPrompts:
		return fmt.Sprintf("its name %s belongs to %s of %s already; set upstreams.%s.prefix or upstreams.%s.prefix",
			goes.Exposed, stays.Name, stays.Backend.Name(), goes.Backend.Name(), stays.Backend.Name())
	}
	return fmt.Sprintf("%s has it too, and a web address has no room for the upstream's name; "+
		"it can be read at /mcp/%s", stays.Backend.Name(), goes.Backend.Name())
}

// finish completes a view after all stocks were added.
func (v *View) finish(endpoint string) {
	if v.Base != nil {
		v.eras, v.apps = v.Base.eras, v.Base.apps // perhaps for tools that v does not have
	}
	for i, st := range v.Stocks {
		if v.Base != nil && slices.Contains(v.Base.Stocks, st) {
			continue
		}
		if !v.Bare {
			v.addOwn(i)
		}
		for _, t := range st.naming(v.Bare).targets[:st.first[upstream.PartTools+1]] {
			if t == nil || !v.offeredBy(i).has(int(t.place)) {
				continue
			}
			v.apps, v.eras = v.apps || t.ForApps, v.eras || t.older != nil
			if t.Tool.HeaderProblem != "" {
				v.eras = true
				reason := "not offered to clients of 2026-07-28: " + t.Tool.HeaderProblem
				v.Problems = append(v.Problems, Problem{endpoint, t.Backend.Name(), t.Part, t.Name, reason})
			}
		}
	}
	v.whole = newSight(v, v.offered, func(int) bool { return true })
}

// addOwn adds the own names of a stock's tools and prompts.
func (v *View) addOwn(i int) {
	st := v.Stocks[i]
	targets := st.naming(v.Bare).targets
	for p := upstream.PartTools; p <= upstream.PartPrompts; p++ {
		part := &v.parts[p]
		if part.byOwn == nil {
			part.byOwn, part.rivals = map[string]*Target{}, map[string][]*Target{}
		}
		first, end := st.part(p)
		for place := first; place < end; place++ {
			name, t := st.Catalog.Item(p, place-first).Name, targets[place]
			if !v.offeredBy(i).has(place) {
				t = nil
			}
			owner, known := part.byOwn[name]
			if !known && v.Base != nil {
				var among []*Target
				if owner, among = v.owners(p, name); len(among) > 0 {
					part.rivals[name] = among
				}
				known = owner != nil || len(among) > 0
			}
			if part.byOwn[name] = t; !known {
				continue
			}
			part.byOwn[name] = nil
			for _, rival := range []*Target{owner, t} {
				if rival != nil {
					part.rivals[name] = append(part.rivals[name], rival)
				}
			}
		}
	}
}

// Exposed returns the target of a name or URI on the endpoint; nil for none.
func (v *View) Exposed(p upstream.Part, name string) *Target {
	if t := v.parts[p].byName[name]; t != nil || v.Base == nil {
		return t
	}
	if t := v.Base.parts[p].byName[name]; t != nil && v.has(t) {
		return t
	}
	return nil
}

// owners returns the only target with an upstream's own name. If several offered targets have the
// name, sure is nil and among lists them.
func (v *View) owners(p upstream.Part, own string) (sure *Target, among []*Target) {
	if t, known := v.parts[p].byOwn[own]; known || v.Base == nil {
		return t, v.parts[p].rivals[own]
	}
	if sure = v.Base.parts[p].byOwn[own]; sure != nil && !v.has(sure) {
		sure = nil
	}
	for _, t := range v.Base.parts[p].rivals[own] {
		if v.has(t) {
			among = append(among, t)
		}
	}
	return sure, among
}

// Named returns the tool or prompt with this name; nil for none. An upstream's own name also works
// if only one item has it, because HTML of MCP Apps and other texts of upstreams contain such
// names.
func (v *View) Named(p upstream.Part, name string) *Target {
	if t := v.Exposed(p, name); t != nil {
		return t
	}
	sure, _ := v.owners(p, name)
	return sure
}

// SamePart reports whether o offers the same items of a part, from the same stocks. It may return
// false for equal views.
func (v *View) SamePart(o *View, p upstream.Part) bool {
	next := func(v *View, i int) int { // the next stock that has such items
		for i < len(v.Stocks) && v.Stocks[i].lacks(p) {
			i++
		}
		return i
	}
	for i, k := next(v, 0), next(o, 0); ; i, k = next(v, i+1), next(o, k+1) {
		if i == len(v.Stocks) || k == len(o.Stocks) {
			return i == len(v.Stocks) && k == len(o.Stocks)
		}
		if v.Stocks[i] != o.Stocks[k] || string(v.offeredBy(i)) != string(o.offeredBy(k)) {
			return false
		}
	}
}

// Bytes returns the approximate memory of a derived view in bytes, without its base.
func (v *View) Bytes() int {
	n := 2000 + 16*len(v.Stocks) + 3*len(v.offered)
	for _, st := range v.Stocks {
		if !slices.Contains(v.Base.Stocks, st) {
			n += st.Bytes()
		}
	}
	return n
}

// All returns the offered items of a part, in list order.
func (v *View) All(p upstream.Part) iter.Seq[*Target] { return v.whole.All(p) }

// Print returns a hash that identifies a list with all items of the view.
func (v *View) Print(p upstream.Part, k ListKind) uint64 { return v.whole.Print(p, k) }

// declaresCompletions reports whether an upstream declares completions, has a version without such a
// declaration (2024-11-05 and before), or has never connected.
func declaresCompletions(c *upstream.Catalog) bool {
	return c.Offers("completions") || c.Version != "" && c.Version <= mcp.ProtocolVersion20241105 || unlisted(c)
}

// declaresSubscribe reports whether an upstream declares subscriptions to resources, or has never connected.
func declaresSubscribe(c *upstream.Catalog) bool {
	return c.Offers("resources", "subscribe") || unlisted(c)
}

// Completes and Subscribes report whether an upstream gets such a request of a client of an era. A legacy
// upstream gets one of a legacy client although it does not declare the capability (offers.Takes).
func Completes(c *upstream.Catalog, era client.Era) bool {
	return declaresCompletions(c) || c.Era == client.EraLegacy && era == client.EraLegacy
}

func Subscribes(c *upstream.Catalog, era client.Era) bool {
	return declaresSubscribe(c) || c.Era == client.EraLegacy && era == client.EraLegacy
}

// unlisted reports whether the upstream's capabilities are still unknown.
func unlisted(c *upstream.Catalog) bool { return c.Listed.IsZero() && !c.Capabilities.Present() }

// AppendCapabilities appends the capabilities of the endpoint for clients of an era. Tools, prompts
// and resources are always declared, because an upstream may add them at any time and an empty list
// is valid. Other capabilities are declared if at least one upstream has them.
//
// The extension for skills is declared in both eras, and resources/directory/read with it if each
// upstream with skills has that method: it must answer for each of their folders.
//
// MCP Apps are always declared. The extension has no methods, and its members in tools and
// resources pass through unchanged.
func (o offers) AppendCapabilities(b []byte, era client.Era) []byte {
	b = append(b, `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true`...)
	if o.Subscribe {
		b = append(b, `,"subscribe":true`...)
	}
	b = append(b, '}')
	if o.Completions {
		b = append(b, `,"completions":{}`...)
	}
	if o.Logging {
		b = append(b, `,"logging":{}`...)
	}
	var extensions []string
	if era == client.EraModern {
		extensions = append(extensions, `"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}`)
		if o.Tasks {
			extensions = append(extensions, `"`+client.ExtensionTasks+`":{}`)
		}
	}
	if o.Skills && !o.NoDirectory {
		extensions = append(extensions, `"`+definition.ExtensionSkills+`":{"directoryRead":true}`)
	} else if o.Skills {
		extensions = append(extensions, `"`+definition.ExtensionSkills+`":{}`)
	}
	if extensions != nil {
		b = append(append(append(b, `,"extensions":{`...), strings.Join(extensions, ",")...), '}')
	}
	return append(b, '}')
}
