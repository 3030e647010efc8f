package view

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// WithDefaults fills in what the section leaves out.
func (n Names) WithDefaults() Names {
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
	n = n.WithDefaults()
	full = n.Full(prefix, name)
	return n.shorten(full), full
}

// hashLength is how many characters of hash end a name that could not stay as it is.
const hashLength = 7

// Full returns the whole name of an item on the merged endpoint.
func (n Names) Full(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + n.Separator + name
}

// of returns the names by which policy knows an item of an upstream: the whole one, and last the
// one that clients of the merged endpoint see.
func (n Names) of(b Backend, name string) []string {
	full := n.Full(PrefixOf(b), name)
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

// ExposeURI returns the URI, or the template of URIs, as clients of the merged endpoint see it.
func ExposeURI(upstream, own string) string {
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

// Names is the file's names section: what clients see instead of the upstreams' own names.
type Names struct {
	// MaxLength bounds an exposed name; a longer one keeps its start and ends in 7 characters of
	// hash. Default 48, at least 16, at most 128: Claude Code puts mcp__<server>__ in front and the
	// model API stops at 64.
	MaxLength int `yaml:"max_length"`
	// Separator stands between an upstream's prefix and the item's own name; 1 to 4 of A-Z, a-z,
	// 0-9, _ and -. Default "__".
	Separator string `yaml:"separator"`
	// AppTools says who sees, on the merged endpoint, the tools that are for the user interface of
	// an MCP App alone (_meta.ui.visibility is ["app"]). By default clients that declare the
	// extension io.modelcontextprotocol/ui do. true shows them to all clients, false to none.
	// /mcp/<upstream> always has them.
	AppTools *bool `yaml:"app_tools"`
}
