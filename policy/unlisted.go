package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file finds the rules that match nothing in the catalogs of the upstreams. unmatched.go finds
// those that match nothing in the file.

// Listing is what is known of the items of one upstream.
type Listing struct {
	Known
	Unknown [kinds]bool // by kind: items that are not in Items may exist
	Items   []Listed
	// Places reports whether the upstream may have resources: it has a list of them or of templates.
	Places    bool
	Templates bool // it has templates of resources
}

// Listed is one item of a catalog.
type Listed struct {
	Item
	Former    string           // the name of a renamed tool if it had not been renamed; "" for others
	Arguments func() Arguments // of a tool or a prompt; nil if they are not known
}

// Bounds of Unlisted, so that the rules of a large file and the items of large catalogs cost less
// than a second.
const (
	maxUnlisted    = 100       // problems
	maxSuggestions = 20        // searches for the nearest name
	maxCompared    = 5_000_000 // names, or items, that are compared with a glob or a rule
)

// Unlisted returns the patterns and arguments of rules that match nothing of the listings, which
// have all upstreams of the file. These are most likely typos: a deny with a typo denies nothing.
// It says nothing about a pattern that may match an item of an upstream whose items are not known.
// The paths are below the section.
func (c Config) Unlisted(listings []Listing) []yamlread.Problem {
	return c.unlisted(newCatalogs(listings))
}

// Mistyped is Unlisted without the denies that are most likely meant for items of later: with a wildcard, and near no
// name.
func (c Config) Mistyped(listings []Listing) []yamlread.Problem {
	x := newCatalogs(listings)
	x.mistyped = true
	return c.unlisted(x)
}

func (c Config) unlisted(x *catalogs) []yamlread.Problem {
	if len(c.Validate()) > 0 {
		return nil
	}
	for i := range c {
		for k, r := range c[i].Rules {
			for _, s := range r.selectors() {
				x.rule(fmt.Sprintf("[%d].rules[%d].%s", i, k, s.verdict), s, r)
			}
		}
		x.patterns(fmt.Sprintf("[%d].always", i), Tool, c[i].Always, x.all)
		at := fmt.Sprintf("[%d]", i)
		switch {
		case len(x.problems) > maxUnlisted:
			x.problems = x.problems[:maxUnlisted]
			x.bad(at, "has more rules that match nothing; correct the others first")
			return x.problems
		case x.compared > maxCompared:
			x.bad(at, "was compared with the catalogs in part only, as were later policies: there are too many rules "+
				"and tools")
			return x.problems
		}
	}
	return x.problems
}

// Always are the globs of a key always outside of policies.
type Always struct {
	Path      string   // of the key, for the problems
	Upstreams []string // whose tools it is about; nil means all
	Tools     List
}

// UnlistedAlways is Unlisted for globs outside of policies: it returns those that match no tool.
func UnlistedAlways(listings []Listing, lists []Always) []yamlread.Problem {
	x := newCatalogs(listings)
	for _, l := range lists {
		in := x.all
		if l.Upstreams != nil {
			in = slices.DeleteFunc(slices.Clone(x.all),
				func(i int) bool { return !slices.Contains(l.Upstreams, x.listings[i].Name) })
		}
		x.patterns(l.Path, Tool, l.Tools, in)
		if x.compared > maxCompared || len(x.problems) > maxUnlisted {
			break
		}
	}
	return x.problems[:min(len(x.problems), maxUnlisted)]
}

// catalogs are the items of all upstreams during Unlisted.
type catalogs struct {
	listings []Listing
	all      []int            // listings
	names    [kinds][]entryOf // sorted by name
	known    map[*Listed]*Arguments
	matched  map[string]bool // by kind and glob: whether some item of all upstreams matches
	problems []yamlread.Problem
	hints    int // searches for the nearest name
	compared int
	mistyped bool // only what is most likely mistyped
	deny     bool // the rule that is compared is a deny
}

// entryOf is one name of an item.
type entryOf struct {
	name    string
	listing int
}

func newCatalogs(listings []Listing) *catalogs {
	x := &catalogs{listings: listings, known: map[*Listed]*Arguments{}, matched: map[string]bool{}}
	for i, l := range listings {
		x.all = append(x.all, i)
		for k := range l.Items {
			it := &l.Items[k]
			names := it.Names
			if it.Kind == Skill { // a rule for a folder applies to the files of all skills in it
				names = foldersOf(it.Names)
			}
			for _, name := range names {
				x.names[it.Kind] = append(x.names[it.Kind], entryOf{name, i})
			}
		}
	}
	for k := range x.names {
		slices.SortFunc(x.names[k], func(a, b entryOf) int { return strings.Compare(a.name, b.name) })
	}
	return x
}

// foldersOf returns paths and the folders that contain them.
func foldersOf(paths []string) (all []string) {
	for _, path := range paths {
		for path != "" {
			all = append(all, path)
			path = path[:max(0, strings.LastIndexByte(path, '/'))]
		}
	}
	return all
}

func (x *catalogs) bad(path, format string, args ...any) {
	x.problems = append(x.problems, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

// rule compares one rule with the items of its upstreams.
func (x *catalogs) rule(at string, s given, r Rule) {
	in := x.all
	if s.Upstreams != nil {
		globs := CompileGlobs(s.Upstreams)
		in = slices.DeleteFunc(slices.Clone(x.all), func(i int) bool { return !globs.matches(x.listings[i].Name) })
	}
	if len(in) == 0 {
		return // Unmatched reports it
	}
	n := len(x.problems)
	x.deny = s.verdict.Denies()
	x.patterns(at+".tools", Tool, s.Tools, in)
	x.patterns(at+".prompts", Prompt, s.Prompts, in)
	x.patterns(at+".skills", Skill, s.Skills, in)
	x.resources(at+".resources", s.Resources, in)
	if s.Where != nil && n == len(x.problems) {
		x.where(at+".where", compileRule("", r), in)
	}
}

// patterns reports the globs that match no item of a kind.
func (x *catalogs) patterns(at string, k Kind, globs List, in []int) {
	for i, text := range globs {
		g := compileGlob(text)
		if x.mayMatch(k, &g, in) || x.matches(k, text, &g, in) {
			continue
		}
		listed := ""
		if k == Skill { // a skill may be in no list
			listed = " that is listed"
		}
		near := cmp.Or(x.nearest(k, &g, in), x.nearestGlob(k, text, &g, in))
		if _, one := g.literal(); x.mistyped && x.deny && !one && near == "" {
			continue
		}
		x.bad(element(at, i, len(globs)), "%s matches no %v%s%s", prose.Quote(text), k, listed, near)
	}
}

// nearestGlob returns the end of a problem about a glob with wildcards: the glob with another word at its beginning
// or its end, which matches; "" if there is none.
func (x *catalogs) nearestGlob(k Kind, text string, g *glob, in []int) string {
	head, last := g.segments[0][0], g.segments[len(g.segments)-1]
	tail := last[len(last)-1]
	if _, one := g.literal(); one || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
		return "" // with a backslash, the text is not that of the glob
	}
	if x.hints++; x.hints > maxSuggestions {
		return ""
	}
	for _, i := range in {
		begin := x.listings[i].Begin
		if k >= Resource {
			begin = ""
		}
		rest, fits := strings.CutPrefix(head, begin)
		if !fits && head != "" {
			continue
		}
		var near string
		if names := x.listings[i].namesOf(k, begin); len(rest) >= minWord {
			word := strings.TrimRight(rest, separators)
			if near = prose.Nearest(word, words(names, false)); near != "" {
				near = begin + near + rest[len(word):] + text[len(head):]
			}
		} else if word := strings.TrimLeft(tail, separators); len(word) >= minWord {
			if near = prose.Nearest(word, words(names, true)); near != "" {
				near = text[:len(text)-len(word)] + near
			}
		}
		if better := compileGlob(near); near != "" && x.matches(k, near, &better, in) {
			return "; did you mean " + near + "?"
		}
	}
	return ""
}

// words returns the beginnings of names that end before a separator, or their ends that begin after one, and the
// names.
func words(names []string, ends bool) (all []string) {
	for _, name := range names {
		all = append(all, name)
		for i := 1; i < len(name)-1; i++ {
			if !strings.ContainsRune(separators, rune(name[i])) {
				continue
			}
			if ends {
				all = append(all, name[i+1:])
			} else {
				all = append(all, name[:i])
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// namesOf returns the names of the items of a kind, without the prefix begin.
func (l *Listing) namesOf(k Kind, begin string) (names []string) {
	for n := range l.Items {
		for _, name := range l.Items[n].Names {
			if name, ok := strings.CutPrefix(name, begin); ok && l.Items[n].Kind == k {
				names = append(names, name)
			}
		}
	}
	return names
}

// mayMatch reports whether a glob may match an unknown item.
func (x *catalogs) mayMatch(k Kind, g *glob, in []int) bool {
	return slices.ContainsFunc(in, func(i int) bool {
		l := &x.listings[i]
		begin := l.Begin
		if k == Skill {
			begin = l.Name + "/"
		}
		return l.Unknown[k] && (begin == "" || g.mayBegin(begin))
	})
}

// matches reports whether a glob matches an item.
func (x *catalogs) matches(k Kind, text string, g *glob, in []int) bool {
	all := len(in) == len(x.all)
	key := k.String() + " " + text
	if is, known := x.matched[key]; known && all {
		return is
	}
	head, names := g.segments[0][0], x.names[k]
	from := sort.Search(len(names), func(i int) bool { return names[i].name >= head })
	found := false
	for _, e := range names[from:] {
		if x.compared++; !strings.HasPrefix(e.name, head) || x.compared > maxCompared {
			found = x.compared > maxCompared
			break
		}
		if g.match(e.name) && (all || slices.Contains(in, e.listing)) {
			found = true
			break
		}
	}
	if all {
		x.matched[key] = found
	}
	return found
}

// nearest returns the end of a problem about a glob without wildcards: the name that was most
// likely meant; "" if there is none.
func (x *catalogs) nearest(k Kind, g *glob, in []int) string {
	want, one := g.literal()
	if !one {
		return ""
	}
	for other, key := range [...]string{Tool: "tools", Prompt: "prompts"} {
		_, found := slices.BinarySearchFunc(x.names[other], want,
			func(e entryOf, name string) int { return strings.Compare(e.name, name) })
		if found && Kind(other) != k {
			return fmt.Sprintf("; a %v has the name: write %s", Kind(other), key)
		}
	}
	if x.hints++; x.hints > maxSuggestions {
		return ""
	}
	for _, whole := range [...]bool{true, false} { // the whole name, and one without the prefix
		for _, i := range in {
			begin := x.listings[i].Begin
			if k >= Resource {
				begin = ""
			}
			rest, fits := strings.CutPrefix(want, begin)
			if fits != whole {
				continue
			}
			if hint := x.listings[i].nearest(k, want, begin, rest); hint != "" {
				return hint
			}
		}
	}
	return ""
}

// nearest is nearest of the catalogs, for one upstream whose names begin with begin. rest is the
// wanted name behind that.
func (l *Listing) nearest(k Kind, want, begin, rest string) string {
	for n := range l.Items {
		if it := &l.Items[n]; it.Kind == k && it.Former == want {
			return "; tools.NAME.as renames it: write " + it.Names[len(it.Names)-1]
		}
	}
	if near := prose.Nearest(rest, l.namesOf(k, begin)); near != "" {
		return "; did you mean " + begin + near + "?"
	}
	return ""
}

// resources reports the patterns of resources that no upstream can have. A resource may be in no
// list, so a pattern without wildcards counts only beside a resource with nearly the same URI.
func (x *catalogs) resources(at string, patterns List, in []int) {
	has := func(of func(*Listing) bool) bool {
		return slices.ContainsFunc(in, func(i int) bool {
			l := &x.listings[i]
			return l.Unknown[Resource] || of(l)
		})
	}
	if has(func(l *Listing) bool { return l.Templates }) {
		return
	}
	lists := has(func(l *Listing) bool { return l.Places })
	for i, text := range patterns {
		g := compileGlob(text)
		if g.everything() || strings.HasPrefix(text, skillScheme) {
			continue
		}
		if !lists {
			x.bad(element(at, i, len(patterns)), "%s matches nothing: no upstream of this rule has resources",
				prose.Quote(text))
			continue
		}
		if _, one := g.literal(); !one || has(func(*Listing) bool { return false }) ||
			x.matches(Resource, text, &g, in) {
			continue
		}
		if near := x.nearest(Resource, &g, in); near != "" {
			x.bad(element(at, i, len(patterns)), "%s matches no resource that is listed%s", prose.Quote(text), near)
		}
	}
}

// where reports the arguments that no tool and no prompt of the rule has. A missing argument
// matches no condition.
func (x *catalogs) where(at string, r rule, in []int) {
	var of []*Arguments // of the items of the rule
	missing := slices.Clone(r.where)
	r.where = nil
	for _, i := range in {
		l := &x.listings[i]
		for _, k := range [...]Kind{Tool, Prompt} {
			if l.Unknown[k] && r.mayName(k, l.Begin) {
				return
			}
		}
		if !r.mayName(Tool, l.Begin) && !r.mayName(Prompt, l.Begin) {
			continue
		}
		for n := range l.Items {
			it := &l.Items[n]
			if it.Kind != Tool && it.Kind != Prompt {
				continue
			}
			if x.compared++; x.compared > maxCompared {
				return
			}
			named := newNamed(&it.Item)
			if _, selected := r.selects(&named); !selected {
				continue
			}
			a := x.arguments(it)
			missing = slices.DeleteFunc(missing, func(c condition) bool { return slices.Contains(a.Names, c.path[0]) })
			if a.Unknown || len(missing) == 0 {
				return
			}
			of = append(of, a)
		}
	}
	if len(of) == 0 {
		return
	}
	for i := range missing {
		name, verb := missing[i].path[0], "has"
		if slices.ContainsFunc(of, func(a *Arguments) bool { return a.Open }) {
			verb = "describes" // a call may have the argument nevertheless
		}
		x.bad(at+"."+missing[i].name, "nothing that this rule selects %s an argument %s%s", verb, prose.Quote(name),
			x.nearestArgument(name, of))
	}
}

// mayName reports whether a rule may apply to a tool or a prompt whose name begins like this.
func (r *rule) mayName(k Kind, begin string) bool {
	globs := r.tools
	if k == Prompt {
		globs = r.prompts
	}
	return r.every || slices.ContainsFunc(globs, func(g glob) bool { return begin == "" || g.mayBegin(begin) })
}

// nearestArgument is nearest for an argument.
func (x *catalogs) nearestArgument(name string, of []*Arguments) string {
	if x.hints++; x.hints > maxSuggestions {
		return ""
	}
	for _, a := range of {
		if near := prose.Nearest(name, a.Names); near != "" {
			return "; did you mean " + near + "?"
		}
	}
	return ""
}

// arguments returns the arguments of an item.
func (x *catalogs) arguments(it *Listed) *Arguments {
	if it.Arguments == nil {
		return &Arguments{Unknown: true}
	}
	a, known := x.known[it]
	if !known {
		read := it.Arguments()
		a = &read
		x.known[it] = a
	}
	return a
}
