package policy

import (
	"fmt"
	"slices"
	"strings"

	"junction/upstream/yamlread"
)

// Catalog is how tools are listed: full, which is the zero value, or search.
type Catalog string

// The kinds of catalogs.
const (
	CatalogFull   Catalog = ""
	CatalogSearch Catalog = "search"
)

// Words returns the words of the file; the first one is CatalogFull.
func (Catalog) Words() []string { return []string{"full", string(CatalogSearch)} }

// UnmarshalText rejects unknown words.
func (c *Catalog) UnmarshalText(text []byte) error {
	switch i := slices.Index(c.Words(), string(text)); {
	case i < 0:
		return fmt.Errorf("%s is none of %s", show(string(text)), strings.Join(c.Words(), ", "))
	case i == 0:
		*c = CatalogFull
	default:
		*c = Catalog(text)
	}
	return nil
}

// Searches reports whether a policy has catalog: search.
func (p *Policy) Searches() bool {
	return p.some(func(e *entry) bool { return e.safeguards.Search })
}

// Globs are compiled globs for the names of tools.
type Globs []glob

// CompileGlobs compiles globs that ValidateAlways accepts.
func CompileGlobs(l List) Globs { return compileAll(l, compileGlob) }

// Match reports whether a glob matches one of the names.
func (g Globs) Match(names []string) bool { return slices.ContainsFunc(names, g.matches) }

func (g Globs) matches(name string) bool {
	for i := range g {
		if g[i].match(name) {
			return true
		}
	}
	return false
}

// ValidateAlways returns the mistakes in the keys catalog and always of a mapping.
func ValidateAlways(c Catalog, always List) []yamlread.Problem {
	v := &validator{}
	v.always("", c, always)
	return v.problems
}

func (v *validator) always(at string, c Catalog, always List) {
	if always != nil && c != CatalogSearch {
		v.bad(at+".always", "has no effect without catalog: search; add that key, or remove this one")
		return
	}
	v.list(at+".always", always, v.toolGlob)
}
