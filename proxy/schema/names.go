package schema

import (
	"bytes"
	"cmp"
	"strings"
	"unicode/utf8"

	"junction/upstream/raw"
)

// This file compares the names of members without a copy, and only up to the first difference: an
// object may have a name of megabytes.

// nameOf returns the name of a member.
func (v *values) nameOf(at int32) string {
	n := &v.nodes[at]
	return unquote(v.text[n.name:n.nameEnd], n.unclear)
}

// quotedName returns the inside of a name as it is written.
func (v *values) quotedName(at int32) []byte {
	n := &v.nodes[at]
	return v.text[n.name+1 : n.nameEnd-1]
}

// named reports whether a member has a name.
func (v *values) named(at int32, name string) bool {
	if !v.nodes[at].unclear {
		return string(v.quotedName(at)) == name
	}
	return v.compareName(at, name) == 0
}

// compareName compares the name of a member with a text.
func (v *values) compareName(at int32, name string) int {
	quoted := v.quotedName(at)
	if !v.nodes[at].unclear {
		return strings.Compare(string(quoted), name) // without a copy
	}
	for len(quoted) > 0 && name != "" {
		r, size := character(quoted)
		other, otherSize := utf8.DecodeRuneInString(name)
		if r != other {
			return cmp.Compare(r, other)
		}
		quoted, name = quoted[size:], name[otherSize:]
	}
	return cmp.Compare(len(quoted), len(name))
}

func (v *values) sameName(a, b int32) bool { return v.compareNames(a, b) == 0 }

func (v *values) compareNames(a, b int32) int {
	x, y := v.quotedName(a), v.quotedName(b)
	if !v.nodes[a].unclear && !v.nodes[b].unclear {
		return bytes.Compare(x, y)
	}
	for len(x) > 0 && len(y) > 0 {
		r, size := character(x)
		other, otherSize := character(y)
		if r != other {
			return cmp.Compare(r, other)
		}
		x, y = x[size:], y[otherSize:]
	}
	return cmp.Compare(len(x), len(y))
}

// shownName returns the name of a member for a problem.
func (v *values) shownName(at int32) string {
	quoted := v.quotedName(at)
	if !v.nodes[at].unclear {
		return short(string(quoted[:min(len(quoted), maxShownName+1)]), maxShownName)
	}
	var head []byte
	for len(quoted) > 0 && len(head) <= maxShownName {
		r, size := character(quoted)
		head, quoted = utf8.AppendRune(head, r), quoted[size:]
	}
	return short(string(head), maxShownName)
}

// character returns the first character of the inside of a string, and its length there. As in most
// readers, U+FFFD is what is not Unicode. The string was scanned, and its inside is not empty.
func character(quoted []byte) (r rune, size int) {
	if quoted[0] != '\\' {
		return utf8.DecodeRune(quoted)
	}
	r, size, _ = raw.Escape(quoted)
	return r, size
}
