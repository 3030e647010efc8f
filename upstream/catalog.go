package upstream

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// Part is one of the lists that a catalog consists of.
type Part int

const (
	// PartTools is tools/list.
	PartTools Part = iota
	// PartPrompts is prompts/list.
	PartPrompts
	// PartResources is resources/list.
	PartResources
	// PartTemplates is resources/templates/list.
	PartTemplates
	// PartSkills is skills/list.
	PartSkills
	// Parts is how many there are.
	Parts
)

// partWords are the names of MCP for a part, and the rules for its definitions.
type partWords struct {
	method, member, key, item string
	capability                []string // path in the capabilities of the server that declares the part
	rules                     definition.Rules
	check                     func(raw.Object) string // why an item is left out that the rules accept; nil for none
}

// partTable has an element for each part: else it does not compile.
var partTable [Parts]partWords = [...]partWords{
	{"tools/list", "tools", "name", "tool", []string{"tools"}, definition.Tools, nil},
	{"prompts/list", "prompts", "name", "prompt", []string{"prompts"}, definition.Prompts, nil},
	{"resources/list", "resources", "uri", "resource", []string{"resources"}, definition.Resources, nil},
	{"resources/templates/list", "resourceTemplates", "uriTemplate", "resource template", []string{"resources"},
		definition.Templates, nil},
	{"skills/list", "skills", "uri", "skill", []string{"extensions", definition.ExtensionSkills}, definition.Skills,
		definition.CheckSkill},
}

// Method is the MCP method that lists the part.
func (p Part) Method() string { return partTable[p].method }

// Member is the member of that method's result which has the items.
func (p Part) Member() string { return partTable[p].member }

// Key is the member that identifies an item within its part.
func (p Part) Key() string { return partTable[p].key }

// String is the word for one item of the part.
func (p Part) String() string { return partTable[p].item }

// capability is the path in the server's capabilities that declares the part.
func (p Part) capability() []string { return partTable[p].capability }

// Catalog contains the tools, prompts, resources and skills of one upstream, as it lists them. It is never
// modified.
type Catalog struct {
	Era     client.Era // client.EraAuto before the upstream was listed for the first time
	Version string     // of the protocol, as negotiated
	// Capabilities and Instructions come from the last handshake; absent and "" before the first
	// handshake.
	Capabilities raw.Object
	Instructions string

	Tools     []Tool
	Prompts   []Item
	Resources []Item
	Templates []Item
	Skills    []Item
	Fresh     [Parts]Freshness
	// Left lists the definitions that were left out, and the lists that could not be read.
	Left []LeftOut
	// Mended lists the definitions that were changed so that typed clients accept the list.
	Mended []Mended
	Listed time.Time // zero before the first listing
	// Interval is the time after which the lists are read again; 0 if this process has not listed them.
	Interval time.Duration
	// Unchecked means that tools were left out because their definitions are not checked yet (checks.go).
	Unchecked bool
	SignIn    bool // the user has to sign in before the server can be listed
	Stored    bool // an earlier process of Junction has listed it; this process has not listed it yet

	since    time.Time             // when it was listed first, as it is
	leases   *leases               // for the definitions; nil if this process has not listed them
	checking *checking             // while it is read; nil for none
	index    [Parts]map[string]int // by name, into the lists
	mirrors  bool                  // call arguments are also sent in headers
	second   []string              // holders with a second process; only of a stored catalog
	proven   bool                  // see client.Info
}

// Item is one definition of a catalog.
type Item struct {
	Name       string     // or the URI of a resource, or the URI template
	Definition raw.Object // as the upstream wrote it, or as it was changed (Mended)
}

// Tool is one tool of a catalog.
type Tool struct {
	Item
	// Params are the arguments that are also sent in HTTP headers. HeaderProblem is the mistake in
	// their declaration; "" for none. A client of the modern era must not see a tool with such a
	// mistake (2026-07-28, streamable-http#schema-extension).
	Params        []definition.ParamHeader
	HeaderProblem string
	// Loose is why the inputSchema accepts more arguments than the server may have meant: a repair of
	// the schema; "" for none. Arguments cannot be checked by such a schema.
	Loose string
	// TaskOnly means that a legacy server answers a call of the tool only by a task.
	TaskOnly bool
	// Requires are the capabilities that the server wants Junction to require of callers.
	Requires []string
	// Older are the edits that clients of the legacy era need in the definition; nil if they need
	// none, which is nearly always the case.
	Older []raw.Edit
}

// Freshness is the caching information of one list. The zero value means that the upstream does not
// have the list.
type Freshness struct {
	Has    bool          // the upstream has the list, which may be empty
	TTL    time.Duration // how long the list is fresh; 0 if the upstream does not state it
	Public bool          // the list is the same for every user
}

// LeftOut is a definition that is not offered, or, without a name, a whole list that could not be
// read.
type LeftOut struct {
	Part         Part
	Name, Reason string
}

// Mended is a definition that was changed. Changes lists what clients would have rejected.
type Mended struct {
	Part          Part
	Name, Changes string
}

// Tool returns the tool of that name, or nil.
func (c *Catalog) Tool(name string) *Tool {
	if i, ok := c.index[PartTools][name]; ok {
		return &c.Tools[i]
	}
	return nil
}

// Skill returns the listed skill of that URI, or nil.
func (c *Catalog) Skill(uri string) *Item {
	if i, ok := c.index[PartSkills][uri]; ok {
		return &c.Skills[i]
	}
	return nil
}

// SkillsWith returns the URIs of the listed skills in whose folders a resource is. Skills may be
// nested.
func (c *Catalog) SkillsWith(uri string) (skills []string) {
	if len(c.Skills) == 0 {
		return nil
	}
	at := len(uri)
	if at > definition.MaxSkillURI { // no folder of a skill is longer
		at = strings.LastIndexByte(uri[:definition.MaxSkillURI], '/')
	}
	for ; at >= 0; at = strings.LastIndexByte(uri[:at], '/') {
		if i, ok := c.index[PartSkills][uri[:at]+"/SKILL.md"]; ok {
			skills = append(skills, c.Skills[i].Name)
		}
	}
	return skills
}

// Items returns how many items the part has.
func (c *Catalog) Items(p Part) int {
	if p == PartTools {
		return len(c.Tools)
	}
	return len(*c.list(p))
}

// Item returns an item of the part by its index in the list.
func (c *Catalog) Item(p Part, i int) *Item {
	if p == PartTools {
		return &c.Tools[i].Item
	}
	return &(*c.list(p))[i]
}

// list returns the items of a part other than the tools.
func (c *Catalog) list(p Part) *[]Item {
	return [Parts]*[]Item{nil, &c.Prompts, &c.Resources, &c.Templates, &c.Skills}[p]
}

// ParseItem returns an item with the text of its definition.
func ParseItem(name string, definition []byte) (Item, error) {
	d, err := raw.Parse(definition)
	return Item{Name: name, Definition: d}, err
}

// Offers reports whether the server has declared the capability at the path: an object, or true.
func (c *Catalog) Offers(path ...string) bool {
	return c.Capabilities.HasObject(path...) || c.Capabilities.IsTrue(path...)
}

// Same reports whether an upstream has listed nothing else from c to o, or from o to c.
func (c *Catalog) Same(o *Catalog) bool { return c == o || c.since.Equal(o.since) && !c.since.IsZero() }

// equal reports whether both offer the same.
func (c *Catalog) equal(o *Catalog) bool {
	if c.Era != o.Era || c.Version != o.Version || c.Fresh != o.Fresh || c.Instructions != o.Instructions ||
		c.SignIn != o.SignIn || !bytes.Equal(c.Capabilities.Text(), o.Capabilities.Text()) ||
		!slices.Equal(c.Left, o.Left) {
		return false
	}
	for p := range Parts {
		if c.Items(p) != o.Items(p) {
			return false
		}
		for i := range c.Items(p) {
			if !bytes.Equal(c.Item(p, i).Definition.Text(), o.Item(p, i).Definition.Text()) ||
				p == PartTools && c.Tools[i].Loose != o.Tools[i].Loose {
				return false
			}
		}
	}
	return true
}

// free returns the memory of the definitions to the account of the upstream. It must be called when
// the catalog is replaced.
func (c *Catalog) free() {
	if c.leases == nil {
		return
	}
	c.leases.once.Do(func() {
		for _, lease := range c.leases.lists {
			lease.Release()
		}
	})
}

// leases hold the memory of the definitions of a catalog.
type leases struct {
	lists [Parts]*transport.Lease
	once  sync.Once // releases them
}

// ttl is the shortest time for which a list is fresh; 0 if the upstream states none.
func (c *Catalog) ttl() time.Duration {
	least := time.Duration(0)
	for _, f := range c.Fresh {
		if f.TTL > 0 && (least == 0 || f.TTL < least) {
			least = f.TTL
		}
	}
	return least
}

// add adds one definition, or leaves it out and stores the reason. A mistake in one item must not
// make a client reject the whole list. earlier is the number of items on earlier pages.
func (c *Catalog) add(p Part, text []byte, earlier int) {
	name, reason := "", ""
	o, err := definition.Parse(text)
	if err != nil {
		reason = "the definition is no object"
	} else if name, err = o.String(p.Key()); err != nil || name == "" {
		reason = "it has no " + p.Key() + " that all clients would read alike"
	} else if at, twice := c.index[p][name]; twice && at < earlier {
		return
	} else if twice {
		reason = "the upstream lists the " + p.Key() + " twice; the first counts"
	}
	var found *checked
	switch {
	case reason != "":
		found = &checked{reason: reason}
	case p == PartTools:
		found = c.checking.of(c.kind(), text, func(work *definition.Work) *checked { return c.checkTool(o, work) })
	default:
		found = checkItem(p, o)
	}
	if found.reason != "" {
		c.Left = append(c.Left, LeftOut{p, name, found.reason})
		return
	}
	if found.changes != "" {
		c.Mended = append(c.Mended, Mended{p, name, found.changes})
	}
	if o = o.Forget(); found.mended.Present() {
		o = found.mended
	}
	c.index[p][name] = c.Items(p)
	if p != PartTools {
		list := c.list(p)
		*list = append(*list, Item{name, o})
		return
	}
	t := found.tool
	t.Item = Item{name, o}
	c.Tools = append(c.Tools, t)
}

// checkItem checks a definition by the rules of its part.
func checkItem(p Part, o raw.Object) *checked {
	found := &checked{}
	mended, changes, reason := partTable[p].rules.Mend(o)
	if reason == "" && partTable[p].check != nil {
		reason = partTable[p].check(mended)
	}
	if found.changes, found.reason = changes, reason; changes != "" {
		found.mended = mended.Forget()
	}
	return found
}

// checkTool checks the definition of a tool. If work is over, the outcome means nothing.
func (c *Catalog) checkTool(o raw.Object, work *definition.Work) *checked {
	t := &checked{}
	mended, changes, reason := partTable[PartTools].rules.Mend(o)
	if reason != "" {
		t.reason = reason
		return t
	}
	var more string
	before := mended
	if mended, more, t.tool.Loose = definition.MendSchemas(before, work); more != "" {
		changes = strings.TrimPrefix(changes+"; "+more, "; ")
	}
	changed := changes != ""
	schema, _ := mended.Get("inputSchema")
	var err error
	if t.tool.Params, err = definition.Headers(schema, work); err != nil && c.mirrors {
		t.reason = err.Error() // Junction is the client that must leave it out
		return t
	} else if err != nil {
		// clients of the legacy era may call it, without headers
		t.tool.Params, t.tool.HeaderProblem = nil, err.Error()
	}
	t.tool.Requires = definition.Requires(mended)
	t.tool.TaskOnly = c.Era == client.EraLegacy && taskOnly(mended)
	t.tool.Older, t.changes = definition.Older(mended, changes, c.Era == client.EraLegacy, work)
	if changed {
		t.mended = mended.Forget()
	}
	return t
}

// taskOnly reports whether the definition of a tool requires calls as a task.
func taskOnly(definition raw.Object) bool {
	execution, err := definition.Object("execution")
	if err != nil {
		return false
	}
	support, _ := execution.String("taskSupport")
	return support == "required"
}
