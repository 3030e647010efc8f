package raw

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// This file scans strings, which takes most of the time of a message. Short strings are checked
// eight bytes at a time. In long strings, blocks without special bytes are skipped.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// short is the number of bytes after which a string counts as long. Most strings are shorter.
const short = 32

// skipString returns the index after the string that begins at b[i].
func skipString(b []byte, i int) (int, error) {
	i++
	for end := min(i+short, len(b)-7); i < end; i += 8 {
		if marks := special(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			if i += bits.TrailingZeros64(marks) / 8; b[i] == '"' {
				return i + 1, nil
			}
			break
		}
	}
	return skipRest(b, i)
}

// skipRest skips the rest of a string; b[i] must not be the second byte of an escape.
func skipRest(b []byte, i int) (int, error) {
	for {
		if i = skipSimple(b, skipBlocks(b, i)); i >= len(b) {
			return 0, &SyntaxError{len(b)}
		} else if b[i] == '"' {
			return i + 1, nil
		}
		for again := true; again; { // such escapes are often close together, too close for blocks
			var err error
			if i, err = skipUnit(b, i); err != nil {
				return 0, err
			}
			i = near(b, i)
			again = i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u'
		}
	}
}

// near returns the index of the first special byte among the next short bytes, or an index before
// it. skipString contains the same loop inline, because short strings are so frequent that a call
// for each would cost noticeable time.
func near(b []byte, i int) int {
	for end := min(i+short, len(b)-7); i < end; i += 8 {
		if marks := special(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	return i
}

// skipSimple skips the bytes of a string, and the escapes of two bytes, from i on.
func skipSimple(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c == '\\' && i+1 < len(b) && escapes[b[i+1]]:
			i += 2
		case c == '"' || c == '\\' || c < 0x20:
			return i
		default:
			i++
		}
	}
	return i
}

// skipWords is skipBlocks in Go, for processors without an assembly version. It works like
// skipSimple, but may stop when less than a block of 64 bytes is left. It stops at the end of the
// string, if that is in a block.
func skipWords(b []byte, i int) int {
	for i+64 <= len(b) {
		at, marks := specials(b, i)
		// an escape across the end of the block leaves no marks
		for i = at; marks != 0; marks &= ^uint64(0) << (i - at) {
			i = at + bits.TrailingZeros64(marks)
			if b[i] != '\\' || i+1 == len(b) || !escapes[b[i+1]] {
				return i
			}
			i += 2
		}
		if at+64 <= len(b) {
			i = max(i, at+64)
		}
	}
	return i
}

// escapes contains the bytes that complete an escape of two bytes after a backslash.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// skipUnit returns the index after the \uXXXX at b[i], or an error if there is none.
func skipUnit(b []byte, i int) (int, error) {
	if b[i] != '\\' {
		return 0, &SyntaxError{i}
	}
	if i++; i >= len(b) || b[i] != 'u' {
		return 0, &SyntaxError{i}
	}
	for range 4 {
		if i++; i >= len(b) || hex(b[i]) < 0 {
			return 0, &SyntaxError{i}
		}
	}
	return i + 1, nil
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// special marks quotes, backslashes and control characters in the highest bit of their bytes of w.
// All of them are marked. A borrow from a marked byte can also mark a plain byte above it, so only
// the lowest mark is reliable.
func special(w uint64) uint64 { return marked(w) & highs }

// marked is special without the final mask: other bits have no meaning.
func marked(w uint64) uint64 {
	quote, slash, control := (w^ones*'"')-ones, (w^ones*'\\')-ones, w-ones*0x20
	return (quote | slash | control) &^ w
}

// specials finds the first of the 64-byte blocks from b[i] on that contains quotes, backslashes or
// control characters. It returns the start of the block and a bit for each of these bytes, the
// first byte in the lowest bit. If there is none, marks is 0, and less than a block is left of b at
// at.
func specials(b []byte, i int) (at int, marks uint64) {
	for ; i+64 <= len(b); i += 64 {
		// one branch for four words takes a fifth off the time
		for half := 0; half < 64; half += 32 {
			four := b[i+half : i+half+32]
			v, w := binary.LittleEndian.Uint64(four), binary.LittleEndian.Uint64(four[8:])
			x, y := binary.LittleEndian.Uint64(four[16:]), binary.LittleEndian.Uint64(four[24:])
			if (marked(v)|marked(w)|marked(x)|marked(y))&highs != 0 {
				marks |= (exactly(v) | exactly(w)<<8 | exactly(x)<<16 | exactly(y)<<24) << half
			}
		}
		if marks != 0 {
			break
		}
	}
	return i, marks
}

// exactly returns a bit for each special byte of w, the first byte in the lowest bit.
func exactly(w uint64) uint64 {
	const low = ^uint64(highs)
	quote, slash := w^ones*'"', w^ones*'\\'
	plain := ((quote&low + low) | quote) & ((slash&low + low) | slash) & ((w&low + ones*0x60) | w)
	return (^plain & highs) >> 7 * 0x0102040810204080 >> 56
}

// StringEnd returns the index after the string at text[i]. The text must be JSON. ok is false if no
// complete string begins there.
func StringEnd(text []byte, i int) (end int, ok bool) {
	if i >= len(text) || text[i] != '"' {
		return 0, false
	}
	for end = i + 1; ; end++ {
		n := bytes.IndexByte(text[end:], '"')
		if n < 0 {
			return 0, false
		}
		end += n
		slashes := 0
		for text[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1, true
		}
	}
}
