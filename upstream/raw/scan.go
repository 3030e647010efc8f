package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	// ErrDepth means that arrays and objects are nested deeper than the caller allows.
	ErrDepth = errors.New("nested too deeply")
	// ErrSize means that a text has 2 GiB or more.
	ErrSize = errors.New("larger than 2 GiB")
	// ErrMany means that an object has more than MaxMembers members, or that an array has more
	// elements than the caller allows.
	ErrMany = errors.New("too many members in one object or array")
	// ErrAbsent means that an object has no member of that name, or that a value has another type.
	ErrAbsent = errors.New("absent")
	// ErrAmbiguous means that different readers may find different values: a name occurs twice or
	// in another spelling that some readers accept, or a string is not UTF-8.
	ErrAmbiguous = errors.New("ambiguous")
)

// SyntaxError is the position at which a text stops being JSON (RFC 8259).
type SyntaxError struct {
	Offset int // of the first invalid byte; the length of the text if it ends too early
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("not JSON at byte %d", e.Offset) }

// DefaultDepth is the nesting that Parse, Get and Set accept.
const DefaultDepth = 10000

// Scan checks that text is one JSON value whose arrays and objects are nested at most depth deep,
// and returns it without white space around it. The result aliases text. Scan does not check that
// strings are UTF-8; String does.
func Scan(text []byte, depth int) ([]byte, error) {
	start := SkipSpace(text, 0)
	end, err := skip(text, start, depth)
	if err != nil {
		return nil, err
	}
	if rest := SkipSpace(text, end); rest != len(text) {
		return nil, &SyntaxError{rest}
	}
	return text[start:end:end], nil
}

// SkipSpace returns the index of the first byte from i on that is not white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skip returns the index after the value that begins at b[i].
func skip(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, &SyntaxError{len(b)}
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipObject(b, i, depth, nil)
	case c == '[':
		return skipArray(b, i, depth, nil)
	case c == '-' || '0' <= c && c <= '9':
		return skipNumber(b, i)
	case c == 't':
		return skipWord(b, i, "true")
	case c == 'f':
		return skipWord(b, i, "false")
	case c == 'n':
		return skipWord(b, i, "null")
	}
	return 0, &SyntaxError{i}
}

// skipObject skips an object and stores its members in in, unless in is nil.
func skipObject(b []byte, i, depth int, in *inside) (int, error) {
	if depth--; depth < 0 {
		return 0, ErrDepth
	}
	i = SkipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return 0, &SyntaxError{i}
		}
		key := i
		keyEnd, err := skipString(b, i)
		if err != nil {
			return 0, err
		}
		if i = SkipSpace(b, keyEnd); i >= len(b) || b[i] != ':' {
			return 0, &SyntaxError{i}
		}
		value := SkipSpace(b, i+1)
		if in == nil {
			i, err = skip(b, value, depth)
		} else {
			i, err = in.member(b, key, keyEnd, value, depth)
		}
		if err != nil {
			return 0, err
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return 0, &SyntaxError{i}
		}
		switch b[i] {
		case '}':
			return i + 1, nil
		case ',':
			i = SkipSpace(b, i+1)
		default:
			return 0, &SyntaxError{i}
		}
	}
}

// skipArray skips an array and stores its elements in in, unless in is nil.
func skipArray(b []byte, i, depth int, in *inside) (int, error) {
	if depth--; depth < 0 {
		return 0, ErrDepth
	}
	i = SkipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		end, err := skip(b, i, depth)
		if err != nil {
			return 0, err
		}
		if in != nil {
			if err := in.element(b[i:end:end]); err != nil {
				return 0, err
			}
		}
		if i = SkipSpace(b, end); i >= len(b) {
			return 0, &SyntaxError{i}
		}
		switch b[i] {
		case ']':
			return i + 1, nil
		case ',':
			i = SkipSpace(b, i+1)
		default:
			return 0, &SyntaxError{i}
		}
	}
}

// inside contains the members or elements that a scan keeps of an object or array.
type inside struct {
	members  []member
	elements [][]byte
	keep     []string // names of members whose contents are kept, too
	// maximum number of members or elements, above which the error is ErrMany; 0 for kept contents
	most  int
	over  bool      // there were more than mostInside members or elements, and none are kept
	first [4]member // storage for the members of most objects
}

// MaxMembers is the maximum number of members of an object that is parsed. The index of the members
// can be many times as large as the text, and normal messages have far fewer. Objects that are only
// relayed, such as arguments and structured content, are not parsed and have no limit.
const MaxMembers = 10000

// mostInside limits the kept members or elements of one value, because their index can be many
// times as large as the text. Normal messages have fewer.
const mostInside = 1000

// member skips a value and stores it with its key.
func (in *inside) member(b []byte, key, keyEnd, value, depth int) (end int, err error) {
	m := member{start: uint32(key), key: uint32(keyEnd - key), value: uint32(value)}
	if strange(b[key+1 : keyEnd-1]) {
		m.key |= odd
	}
	if in.keeps(b[key+1:keyEnd-1]) && value < len(b) && (b[value] == '{' || b[value] == '[') {
		m.inside = &inside{keep: in.keep}
		end, err = m.inside.skip(b, value, depth)
	} else {
		end, err = skip(b, value, depth)
	}
	if err != nil {
		return 0, err
	}
	m.end = uint32(end)
	switch {
	case in.most > 0 && len(in.members) == in.most:
		return 0, ErrMany
	case in.most == 0 && len(in.members) == mostInside:
		in.members, in.over = nil, true
	}
	switch {
	case in.over:
	case in.members == nil:
		in.members = append(in.first[:0], m)
	default:
		in.members = append(in.members, m)
	}
	return end, nil
}

// strange reports whether a key has escapes, or characters that are not ASCII.
func strange(key []byte) bool {
	for ; len(key) >= 8; key = key[8:] {
		w := binary.LittleEndian.Uint64(key)
		if slash := w ^ ones*'\\'; (w|(slash-ones)&^slash)&highs != 0 {
			return true
		}
	}
	for _, c := range key {
		if c >= 0x80 || c == '\\' {
			return true
		}
	}
	return false
}

// keeps reports whether the contents of a member are kept; name is in its written form.
func (in *inside) keeps(name []byte) bool {
	for _, k := range in.keep {
		if string(name) == k {
			return true
		}
	}
	return false
}

// skip skips the object or array at b[i] and keeps its contents. The offsets of members are
// relative to the start of the object.
func (in *inside) skip(b []byte, i, depth int) (end int, err error) {
	if b[i] == '[' {
		return skipArray(b, i, depth, in)
	}
	end, err = skipObject(b, i, depth, in)
	for k := range in.members {
		m, i := &in.members[k], uint32(i)
		m.start, m.value, m.end = m.start-i, m.value-i, m.end-i
	}
	return end, err
}

func (in *inside) element(e []byte) error {
	switch {
	case in.most > 0 && len(in.elements) == in.most:
		return ErrMany
	case in.most == 0 && len(in.elements) == mostInside:
		in.elements, in.over = nil, true
	}
	if !in.over {
		in.elements = append(in.elements, e)
	}
	return nil
}

func skipNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		var ok bool
		if i, ok = digits(b, i); !ok {
			return 0, &SyntaxError{i}
		}
	}
	if i < len(b) && b[i] == '.' {
		var ok bool
		if i, ok = digits(b, i+1); !ok {
			return 0, &SyntaxError{i}
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		var ok bool
		if i, ok = digits(b, i); !ok {
			return 0, &SyntaxError{i}
		}
	}
	return i, nil
}

// digits skips at least one digit.
func digits(b []byte, i int) (int, bool) {
	start := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i, i > start
}

func skipWord(b []byte, i int, word string) (int, error) {
	for n := range len(word) {
		if i+n >= len(b) || b[i+n] != word[n] {
			return 0, &SyntaxError{i + n}
		}
	}
	return i + len(word), nil
}
