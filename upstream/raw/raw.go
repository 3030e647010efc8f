// Package raw finds and replaces values in JSON text, and rejects ambiguous objects.
//
// Decoding and encoding a message would lose everything that the Go types do not name: unknown
// members, the spelling of numbers, the order of keys. Package raw therefore decodes nothing. It
// scans a text once (scan.go), represents the members of an object as slices of the text
// (object.go), and changes a value by a splice that leaves every other byte as the sender wrote it.
//
// The package has its own scanner, because every byte of every message passes through it.
// BenchmarkScan compares it with others on messages of 100 B to 1 MB. json.Valid takes 2.7 to 3.6
// times the CPU time on lists of tools, and 3 to 16 times on results that are one long string.
// Value.IsValid of jsontext takes 2.0 to 2.3 and 1.8 to 3.5 times; without its checks of duplicate
// names and UTF-8, which the scanner omits too, 1.4 to 1.6 and 1.7 to 3.5 times. These numbers are
// for the scanner in Go; on amd64, blocks_amd64.s scans a long string without escapes in a sixth of
// its time.
//
// {"name":"harmless","name":"rm"}, {"n\u0061me":"rm"} and {"Name":"rm"} mean different things to
// different readers. A member that is read by name must therefore occur only once, compared after
// unescaping and as leniently as other parsers do (object.go); otherwise the error is ErrAmbiguous.
package raw

import (
	"bytes"
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// Get returns the value at the path of member names; it aliases obj. The error is ErrAbsent if a
// name is missing or a value on the path is not an object, ErrAmbiguous if a name on the path is
// ambiguous, and a *SyntaxError if obj is not JSON.
func Get(obj []byte, path ...string) ([]byte, error) {
	for _, name := range path {
		o, err := Parse(obj)
		if err != nil {
			return nil, err
		}
		if obj, err = o.Get(name); err != nil {
			return nil, err
		}
	}
	return obj, nil
}

// Set returns a copy of obj with another value at the path. If only the last name is missing, Set
// adds the member at the end; if value is empty, Set removes it. All other bytes stay. The value is
// not checked to be JSON. Errors come from Get.
func Set(obj, value []byte, path ...string) ([]byte, error) {
	if len(path) == 0 {
		return value, nil
	}
	o, err := Parse(obj)
	if err != nil {
		return nil, err
	}
	if len(path) > 1 {
		inner, err := o.Get(path[0])
		if err != nil {
			return nil, err
		}
		if value, err = Set(inner, value, path[1:]...); err != nil {
			return nil, err
		}
	}
	return o.Splice(Edit{path[0], value})
}

// Elements returns the elements of a JSON array; they alias arr. The error is ErrAbsent if arr is
// another kind of value, and a *SyntaxError if it is not JSON.
func Elements(arr []byte) ([][]byte, error) { return ElementsWithin(arr, math.MaxInt) }

// ElementsWithin is Elements for an array of at most most elements. If there are more, the error is
// ErrMany and the rest is not read.
func ElementsWithin(arr []byte, most int) ([][]byte, error) {
	start := SkipSpace(arr, 0)
	if start >= len(arr) || arr[start] != '[' {
		if _, err := Scan(arr, DefaultDepth); err != nil {
			return nil, err
		}
		return nil, ErrAbsent
	}
	in := inside{most: most}
	end, err := skipArray(arr, start, DefaultDepth, &in)
	if err != nil {
		return nil, err
	}
	if rest := SkipSpace(arr, end); rest != len(arr) {
		return nil, &SyntaxError{rest}
	}
	return in.elements, nil
}

// String returns the text of v, a JSON string without white space around it. The error is ErrAbsent
// if v is another kind of value, a *SyntaxError if it is not JSON, and ErrAmbiguous if it is not
// UTF-8 or has half a surrogate pair.
func String(v []byte) (string, error) {
	s, whole, err := unquote(v)
	if err == nil && !whole {
		return "", ErrAmbiguous
	}
	return s, err
}

// unquote returns the text of a JSON string. whole is false if invalid UTF-8 or half surrogate
// pairs were left out.
func unquote(v []byte) (s string, whole bool, err error) {
	if len(v) == 0 || v[0] != '"' {
		return "", false, ErrAbsent
	}
	end, err := skipString(v, 0)
	if err != nil {
		return "", false, err
	}
	if end != len(v) {
		return "", false, &SyntaxError{end}
	}
	in, whole := v[1:end-1], true
	i := backslash(in, 0)
	out := in[:i:i]
	for i < len(in) { // in[i] is a backslash
		if in[i+1] == 'u' {
			r, size, ok := Escape(in[i:])
			if ok {
				out = utf8.AppendRune(out, r)
			}
			i, whole = i+size, whole && ok
		} else {
			out = append(out, unescaped(in[i+1]))
			i += 2
		}
		next := backslash(in, i)
		out = append(out, in[i:next]...)
		i = next
	}
	if !utf8.Valid(out) {
		out, whole = bytes.ToValidUTF8(out, nil), false
	}
	return string(out), whole, nil
}

// backslash returns the index of the first backslash from i on, or len(b).
func backslash(b []byte, i int) int {
	if n := bytes.IndexByte(b[i:], '\\'); n >= 0 {
		return i + n
	}
	return len(b)
}

// Escape returns the character of the escape at the start of b, and the length of the escape. b is a
// part of the inside of a string that was scanned. Half a surrogate pair is U+FFFD, as in most
// parsers, and ok is then false.
func Escape(b []byte) (r rune, size int, ok bool) {
	const long = len(`\u0000`)
	if len(b) < 2 {
		return utf8.RuneError, len(b), false
	}
	if b[1] != 'u' {
		return rune(unescaped(b[1])), 2, true
	}
	r = unit(b)
	if r >= 0 && !utf16.IsSurrogate(r) {
		return r, long, true
	}
	if r = utf16.DecodeRune(r, unit(b[min(long, len(b)):])); r != utf8.RuneError {
		return r, 2 * long, true
	}
	return utf8.RuneError, min(long, len(b)), false
}

// unit reads the \uXXXX at the start of b; it returns -1 if there is none.
func unit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	r := rune(0)
	for _, c := range b[2:6] {
		r = r<<4 | rune(hex(c))
	}
	return r
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // a quote, a slash, a backslash
}

// Quote returns s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func Quote(s string) []byte { return AppendQuote(make([]byte, 0, len(s)+2), s) }

// AppendQuote appends s as a JSON string.
func AppendQuote(b []byte, s string) []byte {
	const digit = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', digit[r>>4], digit[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// AppendLine appends a JSON text and replaces its line breaks by spaces. The value is the same,
// because line breaks occur only between tokens.
func AppendLine(b, text []byte) []byte {
	start := len(b)
	b = append(b, text...)
	for _, end := range []byte{'\n', '\r'} {
		for rest := b[start:]; ; {
			i := bytes.IndexByte(rest, end)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
	return b
}
