package view

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// WithDefaults returns n with defaults for its zero fields.
func (n Names) WithDefaults() Names {
	if n.MaxLength == 0 {
		n.MaxLength = 48
	}
	if n.Separator == "" {
		n.Separator = "__"
	}
	return n
}

// Expose returns the exposed name of a tool or prompt on the merged endpoint, and its full name.
// The two differ if the full name is too long or has characters that clients would change.
func (n Names) Expose(prefix, name string) (exposed, full string) {
	n = n.WithDefaults()
	full = n.Full(prefix, name)
	return n.shorten(full), full
}

// hashLength is the number of hash characters at the end of a shortened name.
const hashLength = 7

// Full returns the full name of an item on the merged endpoint.
func (n Names) Full(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + n.Separator + name
}

// policyNames returns the names of an item for policy: the full name and, if different, the exposed
// name.
func (n Names) policyNames(b Backend, name string) []string {
	full := n.Full(PrefixOf(b), name)
	if merged := n.shorten(full); merged != full {
		return []string{full, merged}
	}
	return []string{full}
}

// agree reports whether the other file in force, if there is one, gives an item the same names.
func (n Names) agree(b Backend, name string) bool {
	config := b.Config()
	if n.Also == nil && config.Also == nil {
		return true
	}
	other, prefix := n, PrefixOf(b)
	if n.Also != nil {
		other = *n.Also
	}
	if config.Also != nil {
		prefix = config.Also.PrefixOr(b.Name())
	}
	exposed, full := n.Expose(PrefixOf(b), name)
	also, alsoFull := other.Expose(prefix, name)
	return exposed == also && full == alsoFull
}

// shorten returns the exposed name for a full name. The result depends only on the arguments, so
// restarts and other upstreams do not change it. A name that is too long or has illegal characters
// keeps its start and ends in a hash of the full name.
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

// URIs on the merged endpoint contain the name of their upstream, from the configuration (never the
// prefix):
//
//	upstream's own            as clients see it
//	file:///a/b?c      fs     mcp://fs/file:///a/b?c
//	note:{+name}       fs     mcp://fs/note:{+name}
//	ui://clock/face    apps   ui://apps/clock/face
//	skill://a/SKILL.md dev    skill://dev/a/SKILL.md
//	https://x.org/a    web    https://x.org/a
//
// The mapping is an algorithm in both directions, because most URIs are in no list: URIs of
// templates and of links in results. The added start is a literal in templates (RFC 6570). MCP Apps
// must keep the scheme ui:. Skills keep skill:, and the end of their path, which is
// the name of the skill. A web address stays unchanged, since a client may fetch it from the
// web; its upstream is looked up in a table. Other schemes are hidden on purpose: file:///a means a
// file on the upstream's machine, not on the client's.
//
// An endpoint of one upstream shows all URIs unchanged.

// ExposeURI returns a URI, or a template of URIs, as clients of the merged endpoint see it.
func ExposeURI(upstream, own string) string {
	if isWeb(own) {
		return own
	}
	for _, scheme := range keptSchemes {
		if rest, ok := strings.CutPrefix(own, scheme); ok {
			return scheme + upstream + "/" + rest
		}
	}
	return "mcp://" + upstream + "/" + own
}

// splitURI splits an exposed URI into the upstream and its own URI. ok is false if the URI names no
// upstream.
func splitURI(exposed string) (upstream, own string, ok bool) {
	for _, scheme := range keptSchemes {
		if rest, kept := strings.CutPrefix(exposed, scheme); kept {
			upstream, own, ok = strings.Cut(rest, "/")
			return upstream, scheme + own, ok
		}
	}
	rest, ok := strings.CutPrefix(exposed, "mcp://")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// keptSchemes are the schemes that exposed URIs keep.
var keptSchemes = [...]string{"ui://", skillScheme}

func isWeb(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}

// Names is the names section of the configuration file: how clients see the names of items.
type Names struct {
	// 16 to 128; longer names end in a hash. Some clients stop at 64, with their own prefix in
	// front. Default 48.
	MaxLength int `yaml:"max_length" change:"list,both"`
	// Between prefix and name. Default "__".
	//
	// 1 to 4 of A-Z, a-z, 0-9, _ and -.
	Separator string `yaml:"separator" change:"list,both"`
	// Tools for the user interface of an MCP App on /mcp: true for all clients, false for none; by
	// default for clients that declare MCP Apps.
	//
	// These are tools whose _meta.ui.visibility is ["app"]. /mcp/NAME always has them.
	AppTools *bool `yaml:"app_tools" change:"list,both"`
	// Also is the section of another file that must give a tool or prompt the same names, too, so that the
	// rules of both files mean the same item; nil is the ordinary case. The reader of the file sets it.
	Also *Names `yaml:"-"`
}
