package command

import (
	"strings"
	"unicode/utf8"
)

// tailShown is how much of the output is shown beside an error.
const tailShown = 1 << 10

// tail returns the last part of an output as text.
func tail(b []byte) string {
	if over := len(b) - tailShown; over > 0 {
		b = b[over:]
	}
	if !utf8.Valid(b) {
		return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
	}
	return strings.TrimSpace(string(b))
}
