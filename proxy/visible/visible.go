// Package visible escapes characters that a terminal or a form would hide, in texts of clients and
// upstreams that users read.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text escapes characters of an untrusted text that are invisible or change how other text is
// displayed. The escapes are those of Go.
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

// hidden reports whether a character is invisible or ambiguous: a control or formatting character
// (also for text direction), an unusual space, a variation selector, a filler, a tag or private
// use.
func hidden(r rune) bool {
	switch {
	case r == ' ' || '!' <= r && r <= '~':
		return false
	case !unicode.IsPrint(r), unicode.Is(unicode.Variation_Selector, r),
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true
	}
	return r == 0x2800 || r == utf8.RuneError // a braille pattern without dots; invalid UTF-8
}
