package shell

import (
	"fmt"
	"strings"
)

// Visible escapes characters of an untrusted text that are invisible or change how other text is
// displayed. It uses the escapes of Go.
func Visible(s string) string {
	if strings.IndexFunc(s, Hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !Hidden(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}
