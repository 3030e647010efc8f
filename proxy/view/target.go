package view

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// Target is an item as clients see it, with its upstream. Endpoints keep two for each item, so the
// order of the fields saves memory (TestSkillsInMemory).
type Target struct {
	Exposed    string // name or URI
	definition []byte // with the exposed name
	older      []byte // the definition for legacy clients; nil if it is the same
	print      uint64 // of the definition
	stock      *Stock // nil for resources in no list
	home       *Stock // of the upstream; nil only for targets of NewResource
	Backend    Backend
	Name       string // the upstream's own name or URI
	Part       upstream.Part
	Item       *upstream.Item
	Tool       *upstream.Tool // nil unless the target is a tool
	Names      []string       // names of a tool or a prompt for policy, the same on every endpoint
	requires   []string       // capabilities
	Withheld   string         // why pinned policies hide it; "" if they do not
	Reuse      time.Duration  // for which a result is reused (package answers); 0 if never
	place      int32          // in the stock
	Param      Param          // where a request has the name
	Bare       bool           // the endpoint uses the upstream's own names
	ForApps    bool           // only clients that show MCP Apps see it
	Connects   bool           // it is Junction's connect tool, not an item of the upstream
}

// Param is the place of a target's name in the params of a request.
type Param uint8

// The places of names.
const (
	ParamName Param = iota
	ParamURI
	ParamRefName // of a prompt whose argument is completed
	ParamRefURI
	ParamTask
)

// Path returns the members of params that lead to the name; nil is the member name.
func (p Param) Path() []string { return paramPaths[p] }

var paramPaths = [...][]string{ParamURI: {"uri"}, ParamRefName: {"ref", "name"}, ParamRefURI: {"ref", "uri"},
	ParamTask: {"taskId"}}

// PolicyItem returns the target for policy, with all names that a rule may use. They are the same
// on every endpoint.
func (t *Target) PolicyItem() policy.Item {
	it := policy.Item{Kind: policy.Resource, Upstream: t.Backend.Name(), Names: t.Names, Requires: t.requires}
	switch t.Part {
	case upstream.PartTools:
		if it.Kind = policy.Tool; t.Item != nil { // a task has none
			it.Hints = policy.HintsOf(t.Item.Definition)
		}
	case upstream.PartPrompts:
		it.Kind = policy.Prompt
	case upstream.PartSkills:
		it.Kind, it.Names = policy.Skill, []string{t.skillPath()}
		it.Requires = t.Backend.Config().Capabilities
	default:
		name := t.Backend.Name()
		it.Names, it.Requires = []string{t.Name, ExposeURI(name, t.Name)}, t.Backend.Config().Capabilities
		if strings.HasPrefix(t.Name, skillScheme) { // as earlier versions exposed it, for rules of then
			it.Names = append(it.Names, "mcp://"+name+"/"+t.Name)
			break
		}
		c := t.Backend.Catalog()
		if t.home != nil {
			c = t.home.Catalog
		}
		for _, uri := range c.SkillsWith(t.Name) {
			it.Within = append(it.Within, policy.SkillPath(name, uri))
		}
		offers := offersSkills(c)
		if len(c.Skills) == 0 && !offers {
			break
		}
		readings, ok := policy.Readings(t.Name)
		if !ok { // it may be in any skill
			it.Near = []string{policy.SkillPath(name, t.Name)}
			break
		}
		for _, reading := range readings {
			skills := c.SkillsWith(reading)
			if _, err := definition.SkillFolder(reading); err == nil && offers { // of a skill that may be in no list
				skills = append(skills, reading)
			}
			for _, uri := range skills {
				path := policy.SkillPath(name, uri)
				if !slices.Contains(it.Within, path) && !slices.Contains(it.Near, path) {
					it.Near = append(it.Near, path)
				}
			}
		}
	}
	return it
}

// named reports whether the target has a name instead of a URI.
func (t *Target) named() bool { return t.Part == upstream.PartTools || t.Part == upstream.PartPrompts }

// Listed returns the target's definition in a list of that kind; nil if the list omits it.
func (t *Target) Listed(k ListKind) []byte {
	switch {
	case t.ForApps && k&appsKind == 0, k&modernKind != 0 && t.Tool.HeaderProblem != "":
		return nil
	case k&modernKind == 0 && t.older != nil:
		return t.older
	}
	return t.definition
}

// olderDefinition returns a tool's definition for legacy clients, without modern features (such as
// SEP-2106): typed clients would reject the whole list.
func (t *Target) olderDefinition() []byte {
	o, _ := raw.Parse(t.definition) // cannot fail: the catalog has parsed it
	if text, err := o.Splice(t.Tool.Older...); err == nil {
		return text
	}
	return t.definition
}

// WithoutOutput reports whether legacy clients see the tool without its outputSchema.
func (t *Target) WithoutOutput() bool {
	return slices.ContainsFunc(t.Tool.Older,
		func(e raw.Edit) bool { return e.Name == "outputSchema" && len(e.Value) == 0 })
}

// rename sets the exposed name and the definition that clients see. In the definition, only the
// name and the URIs in _meta differ from the upstream's bytes.
func (t *Target) rename(names Names) error {
	definition := t.Item.Definition
	t.definition = definition.Text()
	if t.named() {
		if t.Names = names.policyNames(t.Backend, t.Exposed); !t.Bare {
			t.Exposed = t.Names[len(t.Names)-1]
		}
	} else if !t.Bare {
		t.Exposed = ExposeURI(t.Backend.Name(), t.Name)
	}
	var edits []raw.Edit
	if t.Exposed != t.Name { // the catalog has parsed it, so the member is there once
		edits = append(edits, raw.Edit{Name: t.Part.Key(), Value: raw.Quote(t.Exposed)})
	}
	if t.Tool != nil && !t.Bare {
		meta, err := t.renameMeta(definition)
		if err != nil {
			return err
		}
		edits = append(edits, meta...)
	}
	if t.Part == upstream.PartSkills && !t.Bare {
		more, err := t.renameSkill(definition)
		if err != nil {
			return err
		}
		edits = append(edits, more...)
	}
	if t.Tool != nil && t.Tool.TaskOnly {
		// Junction makes the task, so that clients can call the tool like any other. Clients that
		// see the member would have to make the task themselves.
		edits = append(edits, raw.Edit{Name: "execution"})
	}
	if len(edits) == 0 {
		return nil
	}
	renamed, err := definition.Splice(edits...)
	t.definition = renamed
	return err
}

// finish computes the print of the definition.
func (t *Target) finish() {
	h := fnv.New64a()
	h.Write(t.definition)
	t.print = h.Sum64()
}

// NewResource returns a resource that may be in no list.
func NewResource(b Backend, own, exposed string, bare bool) *Target {
	return &Target{Backend: b, Part: upstream.PartResources, Name: own, Exposed: exposed, Param: ParamURI,
		Bare: bare}
}

// union returns the elements of a and of b.
func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	return append(a[:len(a):len(a)], b...)
}

// PrefixOf returns the prefix of the names of an upstream's tools and prompts on the merged
// endpoint, without the separator; "" for none.
func PrefixOf(b Backend) string { return b.Config().PrefixOr(b.Name()) }

// appOnly reports whether a tool is only for the user interface of an MCP App
// (_meta.ui.visibility).
func appOnly(definition raw.Object) bool {
	v, err := raw.Get(definition.Text(), "_meta", "ui", "visibility")
	if err != nil {
		return false
	}
	list, err := raw.Elements(v)
	return err == nil && len(list) == 1 && string(list[0]) == `"app"`
}
