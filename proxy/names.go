package proxy

import (
	"crypto/sha256"
	"encoding/base32"
	"iter"
	"strings"
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

// Expose returns the name under which clients of the merged endpoint see a tool or prompt of an
// upstream with that prefix, and its whole name, which is another when that is too long or has
// characters that clients would change.
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

// of returns the names by which policy knows an item of an upstream: the whole one, and last the
// one that clients of the merged endpoint see.
func (n Names) of(b backend, name string) []string {
	full := n.full(prefixOf(b), name)
	if merged := n.shorten(full); merged != full {
		return []string{full, merged}
	}
	return []string{full}
}

// shorten returns the name under which clients see an item of that full name. It depends on nothing
// but its arguments, so it is the same after a restart and whatever other upstreams there are. A
// name that clients would fold or cut keeps its start and ends in a hash of the whole.
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

// The merged endpoint shows URIs like this, so that they say whose they are (upstream is the name
// in the configuration, never the prefix):
//
//	upstream's own            as clients see it
//	file:///a/b?c      fs     mcp://fs/file:///a/b?c
//	note:{+name}       fs     mcp://fs/note:{+name}
//	ui://clock/face    apps   ui://apps/clock/face
//	https://x.org/a    web    https://x.org/a
//
// It is an algorithm in both directions, because most URIs are in no list: those of templates and
// of links in results. What is put in front is a literal for templates (RFC 6570). MCP Apps must
// stay ui:, and a web address must stay one, since a client may fetch it from the web; and so a web
// address does not say whose it is, and is looked up (table). The scheme of others is hidden on
// purpose: file:///a means a file of the upstream's machine, not of the client's.
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

// literals returns what stands around the expressions of a URI template: one more than there are
// expressions.
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

// matches reports whether the URI can be an expansion of the template with these literals, where an
// expression may stand for anything: rather one owner too many than a wrong one. It adds to steps
// how many bytes it has searched.
func matches(literals []string, uri string, steps *int) bool {
	last := len(literals) - 1
	if last == 0 {
		return uri == literals[0]
	}
	rest, ok := strings.CutPrefix(uri, literals[0])
	for _, l := range literals[1:last] {
		if ok {
			*steps += len(rest)
			_, rest, ok = strings.Cut(rest, l)
		}
	}
	return ok && strings.HasSuffix(rest, literals[last])
}

// owners returns those of the upstreams that list the URI, and then those that have a template of
// it. It is for URIs that do not say whose they are: web addresses, and URIs that clients found in
// a text of an upstream's.
func owners(stocks iter.Seq[*stock], uri string) (all []backend) {
	for st := range stocks {
		if st.uris[uri] {
			all = append(all, st.backend)
		}
	}
	if len(uri) > maxLookedUp {
		return all
	}
	steps := 0
	for st := range stocks {
		if !st.uris[uri] && st.mayHave(uri, &steps) {
			all = append(all, st.backend)
		}
	}
	return all
}

// maxSearched bounds the bytes that are searched to find the owners of one URI. Every upstream that
// has a template of the same beginning may be an owner then.
const maxSearched = 256 << 10

// maxLookedUp bounds the URIs that are compared with templates.
const maxLookedUp = 8 << 10
