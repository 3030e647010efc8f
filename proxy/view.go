package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
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

// view is what one endpoint offers: the catalogs of its upstreams, merged and renamed, with the way back. It is immutable.
type view struct {
	bare     bool // names and URIs are the upstream's own, of which there is one
	backends []backend
	sources  []*upstream.Catalog // of the backends
	parts    [upstream.Parts]part
	table    table // of URIs that do not say whose they are
	offers   offers
	problems []Problem
	connects []*target // what offers to connect the upstreams that people sign in to themselves, listed or not

	instructions string // of the upstreams that may say something to the model; "" when there are none

	separates bool // an upstream may offer clients different things: see fitted.go

	settled bool  // all upstreams were tried, so that names belong to whoever has them
	last    *view // of a view that is not settled: the settled one before it, whose names stay; nil for none
}

// part is one kind of items of a view.
type part struct {
	targets []*target
	byName  map[string]*target
	// byOwn is by the upstream's own name, which the HTML of MCP Apps has in it; nil for one that several upstreams have, or that is not offered.
	byOwn          map[string]*target
	legacy, modern listings // what the list request answers in each era
}

// target is an item as clients see it, and the way back to its upstream.
type target struct {
	exposed    string // name or URI
	definition []byte // with the exposed name
	backend    backend
	name       string   // the upstream's own name or URI
	member     []string // of params where it stands; nil is name
	part       upstream.Part
	bare       bool // on an endpoint whose names are the upstream's own
	item       *upstream.Item
	tool       *upstream.Tool // nil unless it is one
	names      []string       // by which policy knows a tool or a prompt, the same on every endpoint
	requires   []string       // capabilities
	forApps    bool           // only clients that show MCP Apps see it
	connects   bool           // it is no item of the upstream's, but our offer to connect it
	held       string         // why it is not offered to those who are to see accepted definitions only; "" when it may be
}

// offers is what some upstream of an endpoint can do, or may be able to do as far as we know, and its clients may therefore ask for.
type offers struct {
	completions bool
	subscribe   bool // to resources
	logging     bool
	tasks       bool // the extension; modern upstreams only
}

// Problem is an item that is not offered on an endpoint, and why.
type Problem struct {
	Endpoint, Upstream string
	Part               upstream.Part
	Name, Reason       string
}

// compile builds the view of an endpoint over backends, which are in the order of their names. With bare set the items keep their own names. Of two items that
// want one name the one that had it in old keeps it, and the other one is left out. Until all upstreams were tried nobody has a name yet: the order decides, so
// that a restart gives the same names whoever is ready first.
func compile(endpoint string, backends []backend, names Names, bare bool, old *view) *view {
	v := newView(bare)
	if old != nil && !old.settled {
		old = old.last
	}
	for _, b := range backends {
		v.addAll(endpoint, b, b.Catalog(), names, old)
	}
	v.finish(endpoint, old)
	return v
}

// addAll adds a backend and all that it offers on the endpoint.
func (v *view) addAll(endpoint string, b backend, catalog *upstream.Catalog, names Names, old *view) {
	v.include(b, catalog)
	for p := range upstream.Parts {
		for i := range catalog.Items(p) {
			v.add(endpoint, p, b, catalog, i, names, old)
		}
	}
	if b.Config().Personal() {
		v.addConnect(endpoint, b, catalog, names, old)
	}
}

// finish makes of a view to which nothing more is added one that can be used.
func (v *view) finish(endpoint string, old *view) {
	if !v.settled {
		v.last = old
	}
	if !v.bare {
		v.table = newTable(v.backends, v.sources)
	}
	for p := range upstream.Parts {
		v.close(endpoint, p)
		v.parts[p].prepare(p)
	}
}

func newView(bare bool) *view {
	v := &view{bare: bare, settled: true}
	for p := range v.parts {
		v.parts[p].byName, v.parts[p].byOwn = map[string]*target{}, map[string]*target{}
	}
	return v
}

// include adds an upstream, and what it can do, without its items.
func (v *view) include(b backend, catalog *upstream.Catalog) {
	v.backends, v.sources = append(v.backends, b), append(v.sources, catalog)
	v.settled = v.settled && b.Tried()
	v.separates = v.separates || b.Separates()
	v.offers.subscribe = v.offers.subscribe || catalog.Offers("resources", "subscribe") || unknown(catalog)
	v.offers.completions = v.offers.completions || completes(catalog)
	v.offers.logging = v.offers.logging || catalog.Offers("logging") || unknown(catalog)
	v.offers.tasks = v.offers.tasks || catalog.Era == upstream.EraModern && catalog.Offers("extensions", upstream.ExtensionTasks)
	v.instruct(b, catalog)
}

// restricted returns the view of somebody who may use these items of v, and none of the upstreams that are not reached.
func (v *view) restricted(may func(*target) bool, reached []bool) *view {
	r := newView(v.bare)
	for i, b := range v.backends {
		if reached[i] {
			r.include(b, v.sources[i])
		}
	}
	for p := range v.parts {
		part := &r.parts[p]
		for _, t := range v.parts[p].targets {
			if !may(t) {
				continue
			}
			part.targets = append(part.targets, t)
			part.byName[t.exposed] = t
			if _, shared := part.byOwn[t.name]; t.named() && !v.bare && !shared {
				part.byOwn[t.name] = t
			} else if shared {
				part.byOwn[t.name] = nil
			}
		}
		part.prepare(upstream.Part(p))
	}
	for _, t := range v.connects {
		if slices.Contains(r.backends, t.backend) {
			r.connects = append(r.connects, t)
		}
	}
	if !v.bare {
		r.table = newTable(r.backends, r.sources)
	}
	return r
}

// add adds an item of a catalog, if it is offered on the endpoint.
func (v *view) add(endpoint string, p upstream.Part, b backend, catalog *upstream.Catalog, i int, names Names, old *view) {
	t := &target{backend: b, part: p, item: catalog.Item(p, i), bare: v.bare}
	t.name, t.exposed = t.item.Name, t.item.Name
	own, shared := v.parts[p].byOwn, false
	if t.named() && !v.bare {
		_, shared = own[t.name]
		own[t.name] = nil // until we know that it is offered
	}
	if p == upstream.PartTools {
		t.tool = &catalog.Tools[i]
		config := b.Config()
		rule, offered := config.Offers(t.name)
		if !offered {
			return
		}
		if !v.bare && (names.AppTools == nil || !*names.AppTools) && appOnly(t.item.Definition) {
			if names.AppTools != nil {
				return
			}
			t.forApps = true
		}
		t.exposed = cmp.Or(rule.As, t.name)
		t.requires = union(config.Capabilities, rule.Capabilities)
	} else {
		t.requires = b.Config().Capabilities
	}
	if err := t.rename(names); err != nil {
		v.problems = append(v.problems, Problem{endpoint, b.Name(), p, t.name, "a URI in its _meta is ambiguous"})
		return
	}
	if v.take(endpoint, t, old) && t.named() && !v.bare && !shared {
		own[t.name] = t
	}
}

// hold marks the tools whose definition nobody has accepted. The view is not in use yet.
func (v *view) hold(pins *Pins) {
	for _, t := range v.parts[upstream.PartTools].targets {
		if t.connects {
			continue
		}
		t.held, _ = pins.held(t.backend.Name(), t.name, t.item.Definition.Text())
	}
}

// named reports whether it has a name, and no URI.
func (t *target) named() bool { return t.part == upstream.PartTools || t.part == upstream.PartPrompts }

// take adds a target, and reports whether it did: another one may have its name already.
func (v *view) take(endpoint string, t *target, old *view) bool {
	part := &v.parts[t.part]
	owner := part.byName[t.exposed]
	if owner == nil {
		part.targets = append(part.targets, t)
		part.byName[t.exposed] = t
		return true
	}
	stays, goes := owner, t
	if old != nil {
		if before := old.parts[t.part].byName[t.exposed]; before != nil && before.backend.Name() == t.backend.Name() && before.name == t.name {
			stays, goes = t, owner
			part.targets = append(part.targets, t)
			part.byName[t.exposed] = t
		}
	}
	v.problems = append(v.problems, Problem{endpoint, goes.backend.Name(), t.part, goes.name, collision(stays, goes)})
	return stays == t
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

// union returns what is in a or in b.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	return append(a[:len(a):len(a)], b...)
}

// close takes out of a part what lost its name, once all its items are there.
func (v *view) close(endpoint string, p upstream.Part) {
	part := &v.parts[p]
	if len(v.problems) > 0 { // an item that lost its name left a gap
		part.targets = slices.DeleteFunc(part.targets, func(t *target) bool { return part.byName[t.exposed] != t })
		for name, t := range part.byOwn {
			if t != nil && part.byName[t.exposed] != t {
				part.byOwn[name] = nil
			}
		}
	}
	for _, t := range part.targets {
		if t.tool != nil && t.tool.HeaderProblem != "" {
			v.problems = append(v.problems, Problem{endpoint, t.backend.Name(), p, t.name, "not offered to clients of 2026-07-28: " + t.tool.HeaderProblem})
		}
	}
}

// prepare makes the answers to the part's list request.
func (part *part) prepare(p upstream.Part) {
	part.modern = newListings(part.targets, func(t *target) []byte { return t.definition })
	part.legacy = part.modern
	if p != upstream.PartTools {
		return
	}
	part.legacy = newListings(part.targets, (*target).olderDefinition)
	part.modern = newListings(part.targets, func(t *target) []byte {
		if t.tool.HeaderProblem != "" {
			return nil
		}
		return t.definition
	})
}

// listing returns what the list request of a client answers.
func (part *part) listing(era upstream.Era, client upstream.Profile) *listing {
	l := &part.legacy
	if era == upstream.EraModern {
		l = &part.modern
	}
	if client.UI != "" {
		return l.apps
	}
	return l.plain
}

// named returns the tool or prompt of that name. An upstream's own name is as good as the exposed one where it can only be one item: the HTML of MCP Apps, and
// other texts of upstreams, have such names in them.
func (v *view) named(p upstream.Part, name string) *target {
	if t := v.parts[p].byName[name]; t != nil {
		return t
	}
	return v.parts[p].byOwn[name]
}

// prefixOf returns what the names of an upstream's tools and prompts begin with on the merged endpoint, before the separator; "" is nothing.
func prefixOf(b backend) string { return b.Config().PrefixOr(b.Name()) }

// rename finds the exposed name and makes the definition that clients see: the upstream's bytes, but for the name and the URIs in _meta.
func (t *target) rename(names Names) error {
	definition := t.item.Definition
	t.definition = definition.Text()
	if t.named() {
		full := names.full(prefixOf(t.backend), t.exposed)
		merged := names.shorten(full)
		if t.names = []string{full}; merged != full {
			t.names = append(t.names, merged)
		}
		if !t.bare {
			t.exposed = merged
		}
	} else if !t.bare {
		t.exposed = exposeURI(t.backend.Name(), t.name)
	}
	var edits []raw.Edit
	if t.exposed != t.name {
		edits = append(edits, raw.Edit{Name: t.part.Key(), Value: raw.Quote(t.exposed)}) // the catalog has read it already, so there is exactly one
	}
	if t.tool != nil && !t.bare {
		meta, err := t.renameMeta(definition)
		if err != nil {
			return err
		}
		edits = append(edits, meta...)
	}
	if t.tool != nil && t.tool.TaskOnly {
		// We make the task, so that clients call it like any other tool. Those who believe that they must make one do not call it.
		edits = append(edits, raw.Edit{Name: "execution"})
	}
	if len(edits) == 0 {
		return nil
	}
	renamed, err := definition.Splice(edits...)
	t.definition = renamed
	return err
}

// freshness returns how long the merged list of a part stays fresh, and whether it is the same for every user: the least that its sources say
// (2026-07-28, server/utilities/caching). An upstream that says nothing, or that was not listed yet, says 0.
func (v *view) freshness(p upstream.Part, now time.Time) (ttl time.Duration, public bool) {
	first := true
	for _, c := range v.sources {
		fresh := c.Fresh[p]
		if !fresh.Has && !c.Listed.IsZero() {
			continue
		}
		left := max(0, fresh.TTL-now.Sub(c.Listed))
		if first {
			ttl, public, first = left, fresh.Public, false
			continue
		}
		ttl, public = min(ttl, left), public && fresh.Public
	}
	return ttl, public
}

// instruct adds what an upstream says to the model about itself, if the configuration allows it to.
func (v *view) instruct(b backend, catalog *upstream.Catalog) {
	if text := strings.TrimSpace(catalog.Instructions); text != "" && b.Config().Instructions {
		if len(text) > maxInstructions {
			text = strings.ToValidUTF8(text[:maxInstructions], "") + "…"
		}
		if v.instructions != "" {
			v.instructions += "\n\n"
		}
		v.instructions += "Instructions of " + b.Name() + ":\n" + text
	}
}

// appendInstructions appends the member instructions, a comma before it, if there are any.
func (v *view) appendInstructions(b []byte) []byte {
	if v.instructions == "" {
		return b
	}
	return raw.AppendQuote(append(b, `,"instructions":`...), v.instructions)
}

// maxInstructions bounds what one upstream may say: it goes into the system prompt of many clients.
const maxInstructions = 2 << 10

// completes reports whether an upstream may complete arguments: it declares that, or is of 2024-11-05, where there was nothing to declare it with, or was never
// there so far.
func completes(c *upstream.Catalog) bool {
	return c.Offers("completions") || c.Version == mcp.ProtocolVersion20241105 || unknown(c)
}

// unknown reports whether we do not know yet what the upstream can do.
func unknown(c *upstream.Catalog) bool { return c.Listed.IsZero() && !c.Capabilities.Present() }

// capabilities is what clients of an era may ask of the endpoint. Tools, prompts and resources are always there: which of them an upstream has may change at any
// time, and an empty list is an honest answer. The rest is there as soon as some upstream can do it.
//
// MCP Apps are always there as well: the extension has no methods of its own, and its parts in tools and resources pass through whatever an upstream declares.
func (v *view) capabilities(era upstream.Era) []byte {
	b := []byte(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true`)
	if v.offers.subscribe {
		b = append(b, `,"subscribe":true`...)
	}
	b = append(b, '}')
	if v.offers.completions {
		b = append(b, `,"completions":{}`...)
	}
	if v.offers.logging {
		b = append(b, `,"logging":{}`...)
	}
	if era == upstream.EraModern {
		b = append(b, `,"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}`...)
		if v.offers.tasks {
			b = append(b, `,"`+upstream.ExtensionTasks+`":{}`...)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}
