package proxy

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"junction/upstream"
)

// withDefaults fills in what the section leaves out.
func (n Names) withDefaults() Names {
	if n.MaxLength == 0 {
		n.MaxLength = 48
	}
	if n.Separator == "" {
		n.Separator = "__"
	}
	return n
}

// Expose returns the name under which clients of the merged endpoint see a tool or prompt of an upstream with that prefix, and its whole name, which is another
// when that is too long or has characters that clients would change.
func (n Names) Expose(prefix, name string) (exposed, full string) {
	n = n.withDefaults()
	full = n.full(prefix, name)
	return n.shorten(full), full
}

// Names returns what names are made by at present.
func (s *Server) Names() Names { return s.world.Load().config.Names }

// hashLength is how many characters of hash end a name that could not stay as it is.
const hashLength = 7

// full returns the whole name of an item on the merged endpoint.
func (n Names) full(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + n.Separator + name
}

// shorten returns the name under which clients see an item of that full name. It depends on nothing but its arguments, so it is the same after a restart and
// whatever other upstreams there are. A name that clients would fold or cut keeps its start and ends in a hash of the whole.
func (n Names) shorten(full string) string {
	legal := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, full)
	if legal == full && len(full) <= n.MaxLength {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:hashLength])
	return legal[:min(len(legal), n.MaxLength-hashLength-1)] + "_" + hash
}

// The merged endpoint shows URIs like this, so that they say whose they are (upstream is the name in the configuration, never the prefix):
//
//	upstream's own            as clients see it
//	file:///a/b?c      fs     mcp://fs/file:///a/b?c
//	note:{+name}       fs     mcp://fs/note:{+name}
//	ui://clock/face    apps   ui://apps/clock/face
//	https://x.org/a    web    https://x.org/a
//
// It is an algorithm in both directions, because most URIs are in no list: those of templates and of links in results. What is put in front is a literal for
// templates (RFC 6570). MCP Apps must stay ui:, and a web address must stay one, since a client may fetch it from the web; and so a web address does not say
// whose it is, and is looked up (table). The scheme of others is hidden on purpose: file:///a means a file of the upstream's machine, not of the client's.
//
// An endpoint of one upstream shows all URIs as they are.

// exposeURI returns the URI, or the template of URIs, as clients of the merged endpoint see it.
func exposeURI(upstream, own string) string {
	if isWeb(own) {
		return own
	}
	if rest, ok := strings.CutPrefix(own, "ui://"); ok {
		return "ui://" + upstream + "/" + rest
	}
	return "mcp://" + upstream + "/" + own
}

// splitURI is the way back from a URI that says whose it is.
func splitURI(exposed string) (upstream, own string, ok bool) {
	rest, app := strings.CutPrefix(exposed, "ui://")
	if !app {
		if rest, ok = strings.CutPrefix(exposed, "mcp://"); !ok {
			return "", "", false
		}
	}
	if upstream, own, ok = strings.Cut(rest, "/"); app {
		own = "ui://" + own
	}
	return upstream, own, ok
}

func isWeb(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}

// table finds the upstreams that a URI which does not say whose it is may belong to: web addresses, and URIs that clients found in a text of an upstream's.
type table struct {
	listed    map[string][]backend // by the upstreams' own URIs, and templates
	templates []template
}

// template is a URI template, as the literals between its expressions.
type template struct {
	literals []string
	backend  backend
}

func newTable(backends []backend, catalogs []*upstream.Catalog) table {
	t := table{listed: map[string][]backend{}}
	for i, b := range backends {
		for p := upstream.PartResources; p <= upstream.PartTemplates; p++ {
			for n := range catalogs[i].Items(p) {
				uri := catalogs[i].Item(p, n).Name
				if owners := t.listed[uri]; len(owners) == 0 || owners[len(owners)-1] != b {
					t.listed[uri] = append(owners[:len(owners):len(owners)], b)
				}
				if p == upstream.PartTemplates {
					t.templates = append(t.templates, template{literals(uri), b})
				}
			}
		}
	}
	return t
}

// literals returns what stands around the expressions of a URI template: one more than there are expressions.
func literals(text string) []string {
	var list []string
	for {
		before, after, found := strings.Cut(text, "{")
		_, rest, closed := strings.Cut(after, "}")
		if !found || !closed {
			return append(list, text)
		}
		list, text = append(list, before), rest
	}
}

// matches reports whether the URI can be an expansion of the template, where an expression may stand for anything: rather one owner too many than a wrong one.
// It adds to steps how many bytes it has searched.
func (t *template) matches(uri string, steps *int) bool {
	last := len(t.literals) - 1
	if last == 0 {
		return uri == t.literals[0]
	}
	rest, ok := strings.CutPrefix(uri, t.literals[0])
	for _, l := range t.literals[1:last] {
		if ok {
			*steps += len(rest)
			_, rest, ok = strings.Cut(rest, l)
		}
	}
	return ok && strings.HasSuffix(rest, t.literals[last])
}

// owners returns the upstreams that list the URI, or a template of it.
func (t *table) owners(uri string) []backend {
	owners := t.listed[uri]
	owners = owners[:len(owners):len(owners)]
	if len(uri) > maxLookedUp {
		return owners
	}
	steps := 0
	for i := range t.templates {
		one := &t.templates[i]
		if !strings.HasPrefix(uri, one.literals[0]) || slices.Contains(owners, one.backend) {
			continue
		}
		if steps > maxSearched || one.matches(uri, &steps) {
			owners = append(owners, one.backend)
		}
	}
	return owners
}

// maxSearched bounds the bytes that are searched to find the owners of one URI. Every upstream that has a template of the same beginning may be an owner then.
const maxSearched = 256 << 10

// maxLookedUp bounds the URIs that are compared with templates.
const maxLookedUp = 8 << 10
