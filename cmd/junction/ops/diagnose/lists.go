package diagnose

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// This file lets junction check compare a file with the lists of a running proxy.

// Lists is the answer of /lists: what the upstreams of a running proxy list. An upstream whose lists are not known,
// or that may list something else for other clients, is not in it.
type Lists []UpstreamList

// UpstreamList is what one upstream lists.
type UpstreamList struct {
	Name    string                `json:"name"`
	Command []string              `json:"command,omitempty"`
	URL     string                `json:"url,omitempty"`
	Items   map[string][]ListItem `json:"items"`           // by the word of the part, such as tool
	Left    []upstream.LeftOut    `json:"left,omitempty"`  // definitions that are not offered
	Lists   []upstream.Part       `json:"lists,omitempty"` // that it has, also empty ones
}

// ListItem is one definition of a list.
type ListItem struct {
	Name       string          `json:"name"`
	Definition json.RawMessage `json:"definition"`
	Loose      string          `json:"loose,omitempty"`    // as in upstream.Tool
	Requires   []string        `json:"requires,omitempty"` // as in upstream.Tool
}

// serveLists answers /lists.
func (p *Proxy) serveLists(w http.ResponseWriter, _ *http.Request) {
	p.Server.Settle()
	all := Lists{}
	for _, u := range p.Set.All() {
		c, catalog := u.Config(), u.Catalog()
		if !c.Questions.OfClients() && !catalog.Listed.IsZero() { // clients get the lists of one that fails, too
			all = append(all, listOf(u.Name(), &c, catalog))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(all)
}

func listOf(name string, c *upstream.Config, catalog *upstream.Catalog) UpstreamList {
	l := UpstreamList{Name: name, Command: c.Command, URL: c.URL,
		Items: map[string][]ListItem{}, Left: catalog.Left}
	for p := range upstream.Parts {
		if catalog.Fresh[p].Has {
			l.Lists = append(l.Lists, p)
		}
		for i := range catalog.Items(p) {
			item := ListItem{Name: catalog.Item(p, i).Name, Definition: catalog.Item(p, i).Definition.Text()}
			if p == upstream.PartTools {
				item.Loose, item.Requires = catalog.Tools[i].Loose, catalog.Tools[i].Requires
			}
			l.Items[p.String()] = append(l.Items[p.String()], item)
		}
	}
	return l
}

// catalog returns the list as a catalog. A definition that cannot be read is left out.
func (l *UpstreamList) catalog() *upstream.Catalog {
	c := &upstream.Catalog{Left: l.Left, Listed: time.Now()}
	for _, p := range l.Lists {
		if p < upstream.Parts {
			c.Fresh[p].Has = true
		}
	}
	lists := [...]*[]upstream.Item{nil, &c.Prompts, &c.Resources, &c.Templates, &c.Skills}
	for p := range upstream.Parts {
		for _, item := range l.Items[p.String()] {
			it, err := upstream.ParseItem(item.Name, item.Definition)
			switch {
			case err != nil:
			case p == upstream.PartTools:
				c.Tools = append(c.Tools, upstream.Tool{Item: it, Loose: item.Loose, Requires: item.Requires})
			default:
				*lists[p] = append(*lists[p], it)
			}
		}
	}
	return c
}

// of returns the list of an upstream of a configuration; nil if it is not known, also because the configuration
// starts another program under its name.
func (all Lists) of(c *config.Config, name string) *UpstreamList {
	i := slices.IndexFunc(all, func(l UpstreamList) bool { return l.Name == name })
	if u := c.Upstreams[name]; i < 0 || u.URL != all[i].URL || !slices.Equal(u.Command, all[i].Command) {
		return nil
	}
	return &all[i]
}

// Mistyped returns the patterns and arguments of the policies of a configuration that match nothing of the lists, and
// are most likely mistakes. The paths are below the section.
func (all Lists) Mistyped(c *config.Config) []yamlread.Problem {
	var listings []policy.Listing
	for _, known := range c.Known() {
		var catalogs []*upstream.Catalog
		if l := all.of(c, known.Name); l != nil {
			catalogs = append(catalogs, l.catalog())
		}
		listings = append(listings, listing(c, known, catalogs))
	}
	return c.Policies.Mistyped(listings)
}
