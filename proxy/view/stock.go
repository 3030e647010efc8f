package view

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"junction/policy"
	"junction/proxy/pins"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// Stock holds the items of one upstream's catalog, as clients see them. All views with the same
// upstream and catalog share the Stock, also views of later snapshots. Each item has a number, its
// place: first the tools, then the other parts in order, then the connect tool if users sign in to
// the upstream.
type Stock struct {
	Backend  Backend
	Catalog  *upstream.Catalog
	Warm     bool // a list begins connections of its caller (Backend.Warm)
	settings StockSettings
	serial   uint64
	first    [upstream.Parts + 1]int // the place of each part's first item; then the end of the last part
	places   int

	merged, alone naming               // namings for endpoints of several upstreams and for the upstream's own endpoint
	items         func() *policy.Items // by place
	files         func() *skillFiles

	uris         map[string]bool // of resources and templates
	templates    [][]string      // literals
	offers       offers
	instructions string // of the server, if the configuration permits them; "" for none
}

// StockSettings holds the settings for making a stock from a catalog.
type StockSettings struct {
	Names  Names
	Pinned bool       // some policy is pinned
	Pins   *pins.Pins // nil hides all tools
	Count  *atomic.Uint64
}

// naming is the items of a stock under one kind of names.
type naming struct {
	made     sync.Once
	targets  []*Target            // by place; nil if the item is not offered
	problems []Problem            // without their endpoint
	index    func() *search.Index // of the tools, by place
}

// NewStock makes the stock of a catalog. Its targets are made when a view needs them.
func NewStock(b Backend, c *upstream.Catalog, m StockSettings) *Stock {
	st := &Stock{Backend: b, Catalog: c, Warm: b.Config().Warm, settings: m, uris: map[string]bool{}}
	st.items = sync.OnceValue(func() *policy.Items { return policy.NewItems(st.policyItems()) })
	st.files = sync.OnceValue(st.newSkillFiles)
	if m.Count != nil {
		st.serial = m.Count.Add(1)
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
		Completions: declaresCompletions(c),
		Subscribe:   declaresSubscribe(c),
		Logging:     c.Offers("logging") || unlisted(c),
		Tasks:       c.Era == client.EraModern && c.Offers("extensions", client.ExtensionTasks),
		Undeclared:  c.Era == client.EraLegacy,
		Skills:      offersSkills(c),
		NoDirectory: offersSkills(c) && !readsDirectories(c),
	}
	if b.Config().Instructions {
		st.instructions = strings.TrimSpace(c.Instructions)
	}
	return st
}

const (
	// maxInstructions bounds the instructions of one upstream, in bytes: they are in the system prompt
	// of many clients.
	maxInstructions = 2 << 10
	// mostSearched bounds the part of the instructions that is searched, in bytes.
	mostSearched = 64 << 10
)

// instructionsFor returns the instructions with a heading; "" if there are none. clean is applied before
// they are shortened, because it would not find a part of a match.
func (st *Stock) instructionsFor(clean func(string) string) string {
	text := st.instructions[:min(len(st.instructions), mostSearched)]
	cleaned := clean(text)
	if len(text) < len(st.instructions) && cleaned != text && len(cleaned) <= maxInstructions {
		cleaned = "" // perhaps a match begins before the end of the part that was searched
	}
	if cleaned == "" {
		return ""
	}
	if len(cleaned) > maxInstructions {
		cleaned = strings.ToValidUTF8(cleaned[:maxInstructions], "") + "…"
	}
	return "Instructions of " + st.Backend.Name() + ":\n" + cleaned
}

// naming returns the naming for an endpoint: with bare set, for the upstream's own endpoint.
func (st *Stock) naming(bare bool) *naming {
	f := &st.merged
	if bare {
		f = &st.alone
	}
	f.made.Do(func() {
		f.targets = make([]*Target, st.places)
		for p := range upstream.Parts {
			for i := range st.Catalog.Items(p) {
				f.add(st, p, i, bare)
			}
		}
		if st.places > st.first[upstream.Parts] {
			f.addConnect(st, bare)
		}
		f.index = sync.OnceValue(func() *search.Index { return st.buildIndex(f) })
	})
	return f
}

// add makes the target of an item, if it is offered.
func (f *naming) add(st *Stock, p upstream.Part, i int, bare bool) {
	b, names := st.Backend, st.settings.Names
	t := &Target{stock: st, home: st, place: int32(st.first[p] + i), Backend: b, Part: p, Item: st.Catalog.Item(p, i),
		Bare: bare}
	t.Name, t.Exposed = t.Item.Name, t.Item.Name
	if p == upstream.PartTools {
		t.Tool = &st.Catalog.Tools[i]
		config := b.Config()
		rule, offered := config.Offers(t.Name)
		if !offered {
			return
		}
		if !bare && (names.AppTools == nil || !*names.AppTools) && appOnly(t.Item.Definition) {
			if names.AppTools != nil {
				return
			}
			t.ForApps = true
		}
		t.Exposed = cmp.Or(rule.As, t.Name)
		t.requires = union(union(config.Capabilities, rule.Capabilities), t.Tool.Requires)
		if lasts := config.CacheOf(t.Name); lasts > 0 && idempotent(t.Item.Definition) {
			t.Reuse = lasts
		}
	} else {
		t.requires = b.Config().Capabilities
	}
	if (p == upstream.PartTools || p == upstream.PartPrompts) && !names.agree(b, t.Exposed) {
		return
	}
	if err := t.rename(names); err != nil {
		f.problems = append(f.problems, Problem{"", b.Name(), p, t.Name, "a URI in its _meta is ambiguous"})
		return
	}
	if t.Tool != nil && len(t.Tool.Older) > 0 {
		t.older = t.olderDefinition()
	}
	if st.settings.Pinned {
		t.Withheld = t.unaccepted()
	}
	t.finish()
	f.targets[t.place] = t
}

// unaccepted returns why pinned policies hide the target; "" if they do not.
func (t *Target) unaccepted() (reason string) {
	switch {
	case t.Tool != nil:
		reason, _ = t.stock.settings.Pins.Held(t.Backend.Name(), t.Name, t.Item.Definition.Text())
	case t.Part == upstream.PartSkills:
		reason = t.stock.held(t.Name, t.Item.Definition)
	}
	return reason
}

// withheld reports whether pinned policies hide the target. If no policy of this process is pinned, those of
// another member are, which are rare: then each call compares the definition.
func (t *Target) withheld() bool {
	if t.stock != nil && !t.stock.settings.Pinned && t.Item != nil {
		return t.unaccepted() != ""
	}
	return t.Withheld != ""
}

// addConnect adds the connect tool of an upstream. The lists contain the tool while the user is not
// connected; calls of the tool are always answered.
func (f *naming) addConnect(st *Stock, bare bool) {
	b := st.Backend
	definition, err := raw.Parse(fmt.Appendf(nil, `{"name":"%s","title":%s,"description":%s,`+
		`"inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true,"openWorldHint":true}}`,
		connectTool, raw.Quote("Connect "+b.Name()), raw.Quote(b.Name()+" is not connected for the person that you "+
			"work for, so that none of its tools are here yet. Calling this tool gives the address of a page where "+
			"they connect it with their own account. Once they have, its tools appear in the list.")))
	if err != nil {
		return // cannot happen: the text is valid JSON
	}
	t := &Target{stock: st, place: int32(st.places - 1), Backend: b, Part: upstream.PartTools, Bare: bare,
		Connects: true}
	t.Name, t.Exposed, t.requires = connectTool, connectTool, b.Config().Capabilities
	t.Tool = &upstream.Tool{Item: upstream.Item{Name: connectTool, Definition: definition}}
	t.Item = &t.Tool.Item
	if t.rename(st.settings.Names) != nil {
		return // cannot happen: the tool has no URI
	}
	t.finish()
	f.targets[t.place] = t
}

// Connect returns the connect tool of the upstream; nil for none.
func (st *Stock) Connect(bare bool) *Target {
	if st.places == st.first[upstream.Parts] {
		return nil
	}
	return st.naming(bare).targets[st.places-1]
}

// policyItems returns the policy items of the catalog by place, equal to PolicyItem of their
// targets.
func (st *Stock) policyItems() []policy.Item {
	b, config := st.Backend, st.Backend.Config()
	list := make([]policy.Item, 0, st.first[upstream.Parts])
	for p := range upstream.Parts {
		for i := range st.Catalog.Items(p) {
			item := st.Catalog.Item(p, i)
			t := Target{Backend: b, home: st, Part: p, Name: item.Name, Item: item, requires: config.Capabilities}
			switch as := t.Name; p {
			case upstream.PartTools:
				rule, _ := config.Offers(t.Name)
				t.requires = union(union(config.Capabilities, rule.Capabilities), st.Catalog.Tools[i].Requires)
				as = cmp.Or(rule.As, t.Name)
				fallthrough
			case upstream.PartPrompts:
				t.Names = st.settings.Names.policyNames(b, as)
			}
			list = append(list, t.PolicyItem())
		}
	}
	return list
}

// part returns the places of the items of a part: the first, and the end.
func (st *Stock) part(p upstream.Part) (first, end int) { return st.first[p], st.first[p+1] }

// lacks reports whether the stock has no item for the lists of a part.
func (st *Stock) lacks(p upstream.Part) bool {
	first, end := st.part(p)
	return first == end && (p != upstream.PartTools || st.places == st.first[upstream.Parts])
}

// mayHave reports whether the URI may be an expansion of one of the upstream's templates. It adds
// the searched bytes to steps. Beyond maxSearched, every template with the same beginning matches.
func (st *Stock) mayHave(uri string, steps *int) bool {
	for _, t := range st.templates {
		if strings.HasPrefix(uri, t[0]) && (*steps > maxSearched || matches(t, uri, steps)) {
			return true
		}
	}
	return false
}

// Bytes returns the approximate memory of the stock in bytes, without its catalog.
func (st *Stock) Bytes() int {
	n := 2000 + 700*st.places
	for p := range upstream.Parts {
		for i := range st.Catalog.Items(p) {
			n += len(st.Catalog.Item(p, i).Definition.Text())
		}
	}
	return n
}

// offers are the capabilities of an endpoint's upstreams, including those that an unlisted upstream
// may have.
type offers struct {
	Completions bool
	Subscribe   bool // to resources
	Logging     bool
	Tasks       bool // the extension; modern upstreams only
	Undeclared  bool // an upstream may have methods whose capability it does not declare
	Skills      bool // the extension
	NoDirectory bool // an upstream with skills has no resources/directory/read
}

// Takes reports whether a request of a client of an era is passed on whose capability is declared, or is
// not. The reference clients send such requests to legacy servers, and some of these carry them out. In
// the modern era, a method without its capability does not exist (2026-07-28, MethodNotFoundError).
func (o offers) Takes(declared bool, era client.Era) bool {
	return declared || o.Undeclared && era == client.EraLegacy
}

// or returns the capabilities of o or p.
func (o offers) or(p offers) offers {
	return offers{
		Completions: o.Completions || p.Completions,
		Subscribe:   o.Subscribe || p.Subscribe,
		Logging:     o.Logging || p.Logging,
		Tasks:       o.Tasks || p.Tasks,
		Undeclared:  o.Undeclared || p.Undeclared,
		Skills:      o.Skills || p.Skills,
		NoDirectory: o.NoDirectory || p.NoDirectory,
	}
}

// connectTool is the name of the connect tool.
const connectTool = "connect"
