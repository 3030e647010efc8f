package redact

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
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
		r, size := escape(in[i+n:])
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
			r, size := escape(in[at:])
			at, seen = at+size, seen+utf8.RuneLen(r)
		}
	}
	return at, seen
}

// escape returns the character of the escape at the start of b, and the escape's length.
func escape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return utf8.RuneError, len(b)
	}
	switch c := b[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(c), 2
	}
	r = codeUnit(b)
	if !utf16.IsSurrogate(r) {
		return r, min(6, len(b))
	}
	if r = utf16.DecodeRune(r, codeUnit(b[min(6, len(b)):])); r != utf8.RuneError {
		return r, 12
	}
	return r, 6
}

// codeUnit returns the \uXXXX at the start of b; U+FFFD if there is none.
func codeUnit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
