package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

func TestURIs(t *testing.T) {
	for _, row := range []struct{ own, exposed string }{
		{"file:///a/b?c#d", "mcp://fs/file:///a/b?c#d"},
		{"note:{+name}", "mcp://fs/note:{+name}"},
		{"{+any}", "mcp://fs/{+any}"},
		{"ui://clock/face", "ui://fs/clock/face"},
		{"ui://{x}", "ui://fs/{x}"},
		{"ui://", "ui://fs/"},
		{"UI://clock/face", "mcp://fs/UI://clock/face"},
		{"mcp://other/file:///a", "mcp://fs/mcp://other/file:///a"},
		{"https://x.org/a", "https://x.org/a"},
		{"HTTP://x.org/a", "HTTP://x.org/a"},
		{"http", "mcp://fs/http"},
		{"relative/a", "mcp://fs/relative/a"},
		{"/", "mcp://fs//"},
	} {
		if got := ExposeURI("fs", row.own); got != row.exposed {
			t.Errorf("exposeURI(%q) = %q, want %q", row.own, got, row.exposed)
		}
	}
	for _, exposed := range []string{"mcp://fs", "ui://fs", "mcp:fs/a", "file:///a", "https://fs/a", "", "mcp:///"} {
		if name, own, ok := splitURI(exposed); ok && name != "" {
			t.Errorf("splitURI(%q) = %q, %q; want that it is of no upstream", exposed, name, own)
		}
	}
}

func TestTemplateMatches(t *testing.T) {
	for _, row := range []struct {
		template, uri string
		want          bool
	}{
		{"file:///{path}", "file:///a", true},
		{"file:///{path}", "file:///a/b?c", true},
		{"file:///{path}", "file://a", false},
		{"note://{a}/by/{b}.md", "note://x/by/y.md", true},
		{"note://{a}/by/{b}.md", "note://x/y.md", false},
		{"note://{a}/by/{b}.md", "note://x/by/by/y.txt.md", true},
		{"{+any}", "whatever", true},
		{"plain:1", "plain:1", true},
		{"plain:1", "plain:12", false},
		{"open{x", "open{x", true},
		{"open{x", "open", false},
	} {
		if got := matches(literals(row.template), row.uri, new(int)); got != row.want {
			t.Errorf("%q matches %q = %t, want %t", row.template, row.uri, got, row.want)
		}
	}
}

// offering is a backend with these items: of each part "own name" or "own name=definition".
func offering(tb testing.TB, name string, parts map[upstream.Part][]string) *canned {
	tb.Helper()
	catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
	for p, list := range parts {
		catalog.Fresh[p].Has = true
		for _, text := range list {
			own, definition, ok := strings.Cut(text, "=")
			if !ok {
				definition = fmt.Sprintf(`{"%s":%s}`, p.Key(), raw.Quote(own))
			}
			o, err := raw.Parse([]byte(definition))
			if err != nil {
				tb.Fatal(err)
			}
			item := upstream.Item{Name: own, Definition: o}
			switch p {
			case upstream.PartTools:
				catalog.Tools = append(catalog.Tools, upstream.Tool{Item: item})
			case upstream.PartPrompts:
				catalog.Prompts = append(catalog.Prompts, item)
			case upstream.PartResources:
				catalog.Resources = append(catalog.Resources, item)
			case upstream.PartTemplates:
				catalog.Templates = append(catalog.Templates, item)
			}
		}
	}
	return &canned{name: name, catalog: catalog}
}

// compiled is the view of an endpoint of these upstreams.
func compiled(endpoint string, names Names, bare bool, backends ...Backend) *View {
	var stocks []*Stock
	for _, b := range backends {
		stocks = append(stocks, NewStock(b, b.Catalog(), StockSettings{Names: names.WithDefaults()}))
	}
	return Compile(endpoint, stocks, bare, nil)
}

// owner is the upstream and own URI that a URI leads to, as text; for a refusal it is the upstreams
// that it could be of, or "not found".
func owner(tb testing.TB, v *View, uri string) string {
	tb.Helper()
	target, err := Everything(v).Resource(uri)
	if err == nil {
		return target.Backend.Name() + " " + target.Name
	}
	if err == ErrUnknown {
		return "not found"
	}
	ambiguous, ok := errors.AsType[*AmbiguousError](err)
	if !ok {
		tb.Fatalf("resource(%q): %v", uri, err)
	}
	return "either " + strings.Join(ambiguous.Upstreams, ", ")
}

func TestWayBackOfURIs(t *testing.T) {
	const resources, templates = upstream.PartResources, upstream.PartTemplates
	a := offering(t, "a", map[upstream.Part][]string{resources: {"file:///x", "https://x.org/both", "https://x.org/a"}, templates: {"note:{n}", "https://a.org/{p}"}})
	b := offering(t, "b", map[upstream.Part][]string{resources: {"file:///x", "https://x.org/both", "mcp://nobody/1"}, templates: {"note:b{n}"}})
	tools := offering(t, "tools", map[upstream.Part][]string{upstream.PartTools: {"echo"}})
	merged := compiled("", Names{}, false, a, b, tools)
	one := compiled("", Names{}, false, a, tools)
	bare := compiled("a", Names{}, true, a)
	without := compiled("tools", Names{}, true, tools)
	for _, row := range []struct {
		name string
		v    *View
		uri  string
		want string
	}{
		{"by its name", merged, "mcp://b/file:///x", "b file:///x"},
		{"by its name, unlisted", merged, "mcp://a/whatever:1", "a whatever:1"},
		{"by its name, an app", merged, "ui://b/clock/face", "b ui://clock/face"},
		{"by its name, without resources", merged, "mcp://tools/file:///x", "not found"},
		{"of nobody's name, listed by one", merged, "mcp://nobody/1", "b mcp://nobody/1"},
		{"of a prefix in other case", merged, "mcp://A/file:///x", "not found"},
		{"listed by two", merged, "file:///x", "either a, b"},
		{"web, listed by two", merged, "https://x.org/both", "either a, b"},
		{"web, listed by one", merged, "https://x.org/a", "a https://x.org/a"},
		{"web, a template of one", merged, "https://a.org/p/q", "a https://a.org/p/q"},
		{"a template of one", merged, "note:a", "a note:a"},
		{"templates of two", merged, "note:b1", "either a, b"},
		{"a template itself", merged, "https://a.org/{p}", "a https://a.org/{p}"},
		{"of none, two could have it", merged, "other:1", "either a, b"},
		{"of none, one could have it", one, "other:1", "a other:1"},
		{"bare", bare, "mcp://b/file:///x", "a mcp://b/file:///x"},
		{"bare, without resources", without, "file:///x", "not found"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := owner(t, row.v, row.uri); got != row.want {
				t.Errorf("%s is of %s, want %s", row.uri, got, row.want)
			}
		})
	}
}

func TestWayBackOfNames(t *testing.T) {
	const tools, prompts = upstream.PartTools, upstream.PartPrompts
	app := `app={"name":"app","_meta":{"ui":{"visibility":["app"]}}}`
	a := offering(t, "a", map[upstream.Part][]string{tools: {"one", "both", app, "b__two"}, prompts: {"one", "both"}})
	b := offering(t, "b", map[upstream.Part][]string{tools: {"two", "both", "app", "off"}, prompts: {"both", "both__", "one__"}})
	b.config.Tools = upstream.Rules{{Glob: "off", Rule: upstream.Rule{Enabled: new(bool)}}}
	c := offering(t, "c", map[upstream.Part][]string{tools: {"off"}})
	none := ""
	c.config.Prefix = &none
	view := compiled("", Names{}, false, a, b, c)
	for _, row := range []struct {
		part upstream.Part
		name string
		want string
	}{
		{tools, "a__one", "a one"}, {tools, "one", "a one"}, {tools, "two", "b two"}, {tools, "both", "nothing"}, {tools, "b__both", "b both"},
		{tools, "b__two", "b two"}, // an exposed name, whoever has it as its own
		{tools, "a__app", "a app"}, {tools, "app", "nothing"}, {tools, "b__app", "b app"},
		{tools, "off", "c off"}, {tools, "b__off", "nothing"},
		{prompts, "one", "a one"}, {prompts, "both", "nothing"}, {prompts, "a__both", "a both"}, {prompts, "two", "nothing"},
	} {
		got := "nothing"
		if t := view.Named(row.part, row.name); t != nil {
			got = t.Backend.Name() + " " + t.Name
		}
		if got != row.want {
			t.Errorf("the %s %s is %s, want %s", row.part, row.name, got, row.want)
		}
	}
	if got := view.Named(tools, "a__app"); got == nil || !got.ForApps {
		t.Errorf("a__app is %v, want it for clients that show apps", got)
	}
	for _, shown := range []bool{true, false} {
		offered := compiled("", Names{AppTools: &shown}, false, a, b, c)
		if got := offered.Named(tools, "a__app"); shown != (got != nil && got.Backend == Backend(a) && !got.ForApps) {
			t.Errorf("with app_tools: %t, a__app is %v", shown, got)
		}
	}
}

// FuzzURIs checks that a URI which clients see leads back to the one upstream whose it is, by the
// same algorithm for any URI; and that one that does not say whose it is leads to nobody where two
// could have it.
func FuzzURIs(f *testing.F) {
	for _, uri := range []string{"file:///x", "ui://a/b", "mcp://a/b", "mcp://b/ui://a", "https://x.org/a", "{+any}", "ui://", "a/b", "mcp://", "HTTPS:", "http:a", "\x00", "ui://b"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if uri == "" || !utf8.ValidString(uri) {
			t.Skip("a catalog has no such name")
		}
		a := offering(t, "a", map[upstream.Part][]string{upstream.PartResources: {"x:"}})
		a.catalog.Resources[0].Name = uri
		b := offering(t, "b", map[upstream.Part][]string{upstream.PartResources: {"other:"}})
		v := compiled("", Names{}, false, a, b)
		exposed := v.Stocks[0].naming(false).targets[0].Exposed
		if got, want := owner(t, v, exposed), "a "+uri; got != want {
			t.Errorf("%q is shown as %q, which leads to %q", uri, exposed, got)
		}
		if name, own, ok := splitURI(exposed); !isWeb(uri) && (!ok || name != "a" || own != uri) {
			t.Errorf("%q is shown as %q, which says that it is %q of %q", uri, exposed, own, name)
		}
		b.catalog.Resources = append(b.catalog.Resources, a.catalog.Resources[0])
		v = compiled("", Names{}, false, a, b)
		if got := owner(t, v, uri); !slices.Contains([]string{"either a, b"}, got) {
			if name, _, ok := splitURI(uri); !ok || name != "a" && name != "b" {
				t.Errorf("%q, which both have, leads to %q", uri, got)
			}
		}
	})
}

// TestOwnersTakeFewSteps looks a long URI up among very many templates. When the search has
// cost enough, every template of the same beginning counts as an owner.
func TestOwnersTakeFewSteps(t *testing.T) {
	var all []*Stock
	for i := range 1000 {
		all = append(all, &Stock{Backend: &canned{name: fmt.Sprint(i)}, Catalog: &upstream.Catalog{}, templates: [][]string{literals(fmt.Sprintf("x://{a}q%d{b}q{c}", i))}})
	}
	all = append(all, &Stock{Backend: &canned{name: "other"}, Catalog: &upstream.Catalog{}, templates: [][]string{literals("y://{a}")}})
	uri := "x://" + strings.Repeat("a", MaxLookedUp-4)
	if got, searched := len(owners(slices.Values(all), uri)), maxSearched/len(uri)+2; got < 1000-searched || got >= 1000 {
		t.Errorf("%d upstreams may own a URI of %d bytes, want all but the %d that were searched", got, len(uri), searched)
	}
	if got := owners(slices.Values(all), uri[:60]); len(got) != 0 {
		t.Errorf("%d upstreams may own a short URI that no template matches, want none", len(got))
	}
}
