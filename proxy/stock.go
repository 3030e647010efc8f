package proxy

import (
	"cmp"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"

	"junction/policy"
	"junction/proxy/pins"
	"junction/upstream"
	"junction/upstream/raw"
)

// stock is the items of one upstream's catalog, as clients see them. All views that have the
// upstream with this catalog share it, also those of a later world. Each item has a place, which is
// a number: first come the tools, then the other parts in their order, and last the tool that
// offers to connect the upstream, if people sign in to it.
type stock struct {
	backend backend
	catalog *upstream.Catalog
	making  making
	serial  uint64
	first   [upstream.Parts + 1]int // the place of the first item of each part; at the end, of none
	places  int

	merged, alone face // on endpoints of several upstreams, and on the endpoint of the upstream alone
	sorting       sync.Once
	items         *policy.Items // by place

	uris         map[string]bool // of resources and templates
	templates    [][]string      // literals
	offers       offers
	instructions string // of the server, if the configuration lets it speak to the model; "" for none
}

// making is what a stock is made by, beside the catalog.
type making struct {
	names  Names
	pinned bool       // some policy is, so that pins matter
	pins   *pins.Pins // nil holds all tools back
	count  *atomic.Uint64
}

// face is a stock with one kind of names.
type face struct {
	made     sync.Once
	targets  []*target // by place; nil where the item is not offered
	problems []Problem // without their endpoint
}

// target is an item as clients see it, and the way back to its upstream.
type target struct {
	exposed    string // name or URI
	definition []byte // with the exposed name
	older      []byte // the definition for legacy clients; nil where it is the same
	print      uint64 // of the definition
	stock      *stock // nil for what is in no list
	place      int    // in the stock
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
	held       string         // why those who are to see accepted definitions do not see it; "" when they may
}

// newStock makes the stock of a catalog. Its targets are made when a view needs them.
func newStock(b backend, c *upstream.Catalog, m making) *stock {
	st := &stock{backend: b, catalog: c, making: m, uris: map[string]bool{}}
	if m.count != nil {
		st.serial = m.count.Add(1)
	}
	for p := range upstream.Parts {
		st.first[p+1] = st.first[p] + c.Items(p)
	}
	if st.places = st.first[upstream.Parts]; b.Config().Personal() {
		st.places++
	}
	for p := upstream.PartResources; p <= upstream.PartTemplates; p++ {
		for i := range c.Items(p) {
			uri := c.Item(p, i).Name
			if st.uris[uri] = true; p == upstream.PartTemplates {
				st.templates = append(st.templates, literals(uri))
			}
		}
	}
	st.offers = offers{
		completions: completes(c),
		subscribe:   c.Offers("resources", "subscribe") || unknown(c),
		logging:     c.Offers("logging") || unknown(c),
		tasks:       c.Era == upstream.EraModern && c.Offers("extensions", upstream.ExtensionTasks),
	}
	if text := strings.TrimSpace(c.Instructions); text != "" && b.Config().Instructions {
		if len(text) > maxInstructions {
			text = strings.ToValidUTF8(text[:maxInstructions], "") + "…"
		}
		st.instructions = "Instructions of " + b.Name() + ":\n" + text
	}
	return st
}

// maxInstructions bounds what one upstream may say: it goes into the system prompt of many clients.
const maxInstructions = 2 << 10

// face returns the stock as endpoints show it: with bare set, that of the upstream alone.
func (st *stock) face(bare bool) *face {
	f := &st.merged
	if bare {
		f = &st.alone
	}
	f.made.Do(func() {
		f.targets = make([]*target, st.places)
		for p := range upstream.Parts {
			for i := range st.catalog.Items(p) {
				f.add(st, p, i, bare)
			}
		}
		if st.places > st.first[upstream.Parts] {
			f.addConnect(st, bare)
		}
	})
	return f
}

// add makes the target of an item, if it is offered.
func (f *face) add(st *stock, p upstream.Part, i int, bare bool) {
	b, names := st.backend, st.making.names
	t := &target{stock: st, place: st.first[p] + i, backend: b, part: p, item: st.catalog.Item(p, i), bare: bare}
	t.name, t.exposed = t.item.Name, t.item.Name
	if p == upstream.PartTools {
		t.tool = &st.catalog.Tools[i]
		config := b.Config()
		rule, offered := config.Offers(t.name)
		if !offered {
			return
		}
		if !bare && (names.AppTools == nil || !*names.AppTools) && appOnly(t.item.Definition) {
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
		f.problems = append(f.problems, Problem{"", b.Name(), p, t.name, "a URI in its _meta is ambiguous"})
		return
	}
	if t.tool != nil && len(t.tool.Older) > 0 {
		t.older = t.olderDefinition()
	}
	if t.tool != nil && st.making.pinned {
		t.held, _ = st.making.pins.Held(b.Name(), t.name, t.item.Definition.Text())
	}
	t.finish()
	f.targets[t.place] = t
}

// finish makes the print of the definition.
func (t *target) finish() {
	h := fnv.New64a()
	h.Write(t.definition)
	t.print = h.Sum64()
}

// addConnect adds the tool that offers to connect an upstream. It is in the lists while there is
// nothing else to list; calls of it are answered also after that has changed.
func (f *face) addConnect(st *stock, bare bool) {
	b := st.backend
	text := raw.AppendQuote([]byte(`{"name":"`+connectTool+`","title":`), "Connect "+b.Name())
	text = raw.AppendQuote(append(text, `,"description":`...), b.Name()+" is not connected for the person that you "+
		"work for, so that none of its tools are here yet. Calling this tool gives the address of a page where they "+
		"connect it with their own account. Once they have, its tools appear in the list.")
	text = append(text, `,"inputSchema":{"type":"object","properties":{}},`+
		`"annotations":{"readOnlyHint":true,"openWorldHint":true}}`...)
	definition, err := raw.Parse(text)
	if err != nil {
		return // it is JSON
	}
	t := &target{stock: st, place: st.places - 1, backend: b, part: upstream.PartTools, bare: bare, connects: true}
	t.name, t.exposed, t.requires = connectTool, connectTool, b.Config().Capabilities
	t.tool = &upstream.Tool{Item: upstream.Item{Name: connectTool, Definition: definition}}
	t.item = &t.tool.Item
	if t.rename(st.making.names) != nil {
		return // it has no URI
	}
	t.finish()
	f.targets[t.place] = t
}

// connect returns the tool that offers to connect the upstream; nil for none.
func (st *stock) connect(bare bool) *target {
	if st.places == st.first[upstream.Parts] {
		return nil
	}
	return st.face(bare).targets[st.places-1]
}

// visible sets the bits of the places of items that the rights make visible. It does not know of
// pins, nor of the offer to connect.
func (st *stock) visible(r *policy.Rights, bits []byte) {
	st.sorting.Do(func() { st.items = policy.NewItems(st.policyItems()) })
	st.items.Visible(r, bits)
}

// policyItems returns the items of the catalog as policyItem of their targets does, by place.
func (st *stock) policyItems() []policy.Item {
	b, config := st.backend, st.backend.Config()
	list := make([]policy.Item, 0, st.first[upstream.Parts])
	for p := range upstream.Parts {
		for i := range st.catalog.Items(p) {
			t := target{backend: b, part: p, name: st.catalog.Item(p, i).Name, requires: config.Capabilities}
			switch as := t.name; p {
			case upstream.PartTools:
				rule, _ := config.Offers(t.name)
				t.requires, as = union(config.Capabilities, rule.Capabilities), cmp.Or(rule.As, t.name)
				fallthrough
			case upstream.PartPrompts:
				t.names = st.making.names.of(b, as)
			}
			list = append(list, t.policyItem())
		}
	}
	return list
}

// part returns the places of the items of a part: from the first to the one before the end.
func (st *stock) part(p upstream.Part) (first, end int) { return st.first[p], st.first[p+1] }

// lacks reports whether the stock has nothing that could be in the lists of a part.
func (st *stock) lacks(p upstream.Part) bool {
	first, end := st.part(p)
	return first == end && (p != upstream.PartTools || st.places == st.first[upstream.Parts])
}

// mayHave reports whether the URI may be an expansion of one of the upstream's templates. It adds
// to steps how many bytes it has searched; beyond maxSearched every template of the same beginning
// counts.
func (st *stock) mayHave(uri string, steps *int) bool {
	for _, t := range st.templates {
		if strings.HasPrefix(uri, t[0]) && (*steps > maxSearched || matches(t, uri, steps)) {
			return true
		}
	}
	return false
}

// bytes is about how much memory the stock takes, beside its catalog.
func (st *stock) bytes() int {
	n := 2000 + 700*st.places
	for p := range upstream.Parts {
		for i := range st.catalog.Items(p) {
			n += len(st.catalog.Item(p, i).Definition.Text())
		}
	}
	return n
}

// offers is what some upstream of an endpoint can do, or may be able to do as far as we know, and
// its clients may therefore ask for.
type offers struct {
	completions bool
	subscribe   bool // to resources
	logging     bool
	tasks       bool // the extension; modern upstreams only
}

// or returns what one of both can do.
func (o offers) or(p offers) offers {
	return offers{
		completions: o.completions || p.completions,
		subscribe:   o.subscribe || p.subscribe,
		logging:     o.logging || p.logging,
		tasks:       o.tasks || p.tasks,
	}
}

// named reports whether it has a name, and no URI.
func (t *target) named() bool { return t.part == upstream.PartTools || t.part == upstream.PartPrompts }

// union returns what is in a or in b.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	return append(a[:len(a):len(a)], b...)
}

// prefixOf returns what the names of an upstream's tools and prompts begin with on the merged
// endpoint, before the separator; "" is nothing.
func prefixOf(b backend) string { return b.Config().PrefixOr(b.Name()) }

// rename finds the exposed name and makes the definition that clients see: the upstream's bytes,
// but for the name and the URIs in _meta.
func (t *target) rename(names Names) error {
	definition := t.item.Definition
	t.definition = definition.Text()
	if t.named() {
		if t.names = names.of(t.backend, t.exposed); !t.bare {
			t.exposed = t.names[len(t.names)-1]
		}
	} else if !t.bare {
		t.exposed = exposeURI(t.backend.Name(), t.name)
	}
	var edits []raw.Edit
	if t.exposed != t.name { // the catalog has read it already, so there is exactly one
		edits = append(edits, raw.Edit{Name: t.part.Key(), Value: raw.Quote(t.exposed)})
	}
	if t.tool != nil && !t.bare {
		meta, err := t.renameMeta(definition)
		if err != nil {
			return err
		}
		edits = append(edits, meta...)
	}
	if t.tool != nil && t.tool.TaskOnly {
		// We make the task, so that clients call it like any other tool. Those who believe that
		// they must make one do not call it.
		edits = append(edits, raw.Edit{Name: "execution"})
	}
	if len(edits) == 0 {
		return nil
	}
	renamed, err := definition.Splice(edits...)
	t.definition = renamed
	return err
}
