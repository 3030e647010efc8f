// Package visible escapes characters that a terminal or a form would hide, in texts of clients and
// upstreams that users read.
package visible

import (
	"fmt"
	"strings"

	"junction/upstream/shell"
)

// Text escapes characters of an untrusted text that are invisible or change how other text is
// displayed. The escapes are those of Go.
func Text(s string) string {
	if strings.IndexFunc(s, shell.Hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !shell.Hidden(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}
