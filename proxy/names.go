package proxy

import (
	"crypto/sha256"
	"encoding/base32"
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

// hashLength is how many characters of hash end a name that could not stay as it is.
const hashLength = 7

// expose returns the name under which clients see an item. It depends on nothing but its arguments, so it is the same after a restart and whatever other
// upstreams there are. A name that clients would fold or cut keeps its start and ends in a hash of the whole.
func (n Names) expose(prefix, name string) string {
	full := name
	if prefix != "" {
		full = prefix + n.Separator + name
	}
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
