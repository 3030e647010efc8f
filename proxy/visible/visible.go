// Package visible shows texts from clients and upstreams to people: it escapes the characters that
// a terminal or a form would hide.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows a text that others wrote to a person: what cannot be seen, or changes how the rest
// is seen, is escaped as in Go.
func Text(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// hidden reports whether a character is a control or formatting character (which turn the direction
// of what follows, too), a space other than the usual one, or one of those that look like nothing:
// variation selectors, fillers, tags, private use.
func hidden(r rune) bool {
	switch {
	case r == ' ' || '!' <= r && r <= '~':
		return false
	case !unicode.IsPrint(r), unicode.Is(unicode.Variation_Selector, r),
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true
	}
	return r == 0x2800 || r == utf8.RuneError // a braille pattern without dots; what is no UTF-8
}
