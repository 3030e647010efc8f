package raw

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// This is where a message spends its time. A short string is looked at eight bytes at a time; of a
// long one all that needs no look is skipped in blocks.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// short is how many bytes of a string are looked at before it counts as long. Most strings have
// ended by then.
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

// skipRest skips the rest of a string, of which b[i] is not the second byte of an escape.
func skipRest(b []byte, i int) (int, error) {
	for {
		if i = skipSimple(b, skipBlocks(b, i)); i >= len(b) {
			return 0, &SyntaxError{len(b)}
		} else if b[i] == '"' {
			return i + 1, nil
		}
		for again := true; again; { // where there is one such escape there are others, too near for blocks
			var err error
			if i, err = skipUnit(b, i); err != nil {
				return 0, err
			}
			i = near(b, i)
			again = i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u'
		}
	}
}

// near returns the index of the first special byte from i on, if it is one of the next short ones,
// or one before that. In skipString it is written out: there are so many short strings that a call
// for each is felt.
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

// skipWords is what skipBlocks does, for processors of which we know nothing: it is skipSimple that
// may stop when less than a block of 64 bytes is left. It stops where the string ends, if that is
// in a block.
func skipWords(b []byte, i int) int {
	for i+64 <= len(b) {
		at, marks := specials(b, i)
		for i = at; marks != 0; marks &= ^uint64(0) << (i - at) { // an escape that reaches over the block leaves none
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

// escapes are the bytes that may follow a backslash and end the escape.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// skipUnit returns the index after the \uXXXX at b[i], or the error that there is none.
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
// Each of them is marked; a plain byte may be marked too, by the borrow of a marked byte below it,
// so only the lowest mark is sure.
func special(w uint64) uint64 { return marked(w) & highs }

// marked is special with other bits that mean nothing.
func marked(w uint64) uint64 {
	quote, slash, control := (w^ones*'"')-ones, (w^ones*'\\')-ones, w-ones*0x20
	return (quote | slash | control) &^ w
}

// specials returns where, of the blocks of 64 bytes that begin at b[i], the first begins that has
// quotes, backslashes or control characters, and which of its bytes they are, the first in the
// lowest bit. If there is none, marks is 0, and less than a block is left of b at at.
func specials(b []byte, i int) (at int, marks uint64) {
	for ; i+64 <= len(b); i += 64 {
		for half := 0; half < 64; half += 32 { // one branch for four words takes a fifth off the time
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

// exactly returns which bytes of w are special, the first in the lowest bit.
func exactly(w uint64) uint64 {
	const low = ^uint64(highs)
	quote, slash := w^ones*'"', w^ones*'\\'
	plain := ((quote&low + low) | quote) & ((slash&low + low) | slash) & ((w&low + ones*0x60) | w)
	return (^plain & highs) >> 7 * 0x0102040810204080 >> 56
}

// StringEnd returns the index after the string at text[i]. The text must be JSON; ok is false if no
// string begins there or none ends.
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
