package redact

import (
	"bytes"
	"unicode/utf8"

	"junction/upstream/raw"
)

// This file reads the escapes of JSON strings. Rules match the unescaped text, and the cuts are
// offsets in the escaped text.

// unescape appends the unescaped inside of a string. Half a surrogate pair becomes U+FFFD, as in
// most parsers.
func unescape(out, in []byte) []byte {
	for i := 0; i < len(in); {
		n := bytes.IndexByte(in[i:], '\\')
		if n < 0 {
			return append(out, in[i:]...)
		}
		out = append(out, in[i:i+n]...)
		r, size, _ := raw.Escape(in[i+n:])
		out = utf8.AppendRune(out, r)
		i += n + size
	}
	return out
}

// advance moves from one place in a string to another. at is the place in the escaped text; seen
// and to are places in the unescaped text.
func advance(in []byte, at, seen, to int) (int, int) {
	for seen < to && at < len(in) {
		// not beyond the place, so that the cuts of one string search each byte once
		if n := bytes.IndexByte(in[at:min(len(in), at+to-seen)], '\\'); n < 0 {
			return at + to - seen, to
		} else if at, seen = at+n, seen+n; seen < to {
			r, size, _ := raw.Escape(in[at:])
			at, seen = at+size, seen+utf8.RuneLen(r)
		}
	}
	return at, seen
}
