package raw

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"
)

// Object is the members of a JSON object in the order in which they were written. The zero value is
// an object without members that is not there: Present is false. It aliases the text that it was
// parsed from, which must not change while it is in use.
type Object struct {
	text    []byte
	members []member
}

// member is where a member is in the text. Its numbers take half of what an int takes: this is a
// fifth of the memory of a call.
type member struct {
	start      uint32
	key        uint32 // how long it is, with its quotes; and odd
	value, end uint32
	inside     *inside // nil when it was not kept
}

// odd marks a key that is not just ASCII as it stands, so that it may be another name than it
// looks. All others, which are nearly all, need only be compared.
const odd = 1 << 31

func (m *member) keyEnd() uint32 { return m.start + m.key&^odd }

// Member is one member of an object.
type Member struct {
	Key   []byte // with its quotes and escapes
	Value []byte
}

// Name returns the unescaped key.
func (m Member) Name() (string, error) { return String(m.Key) }

// Parse returns the members of the object in text. The error is ErrAbsent when text is another kind
// of value, a *SyntaxError when it is not JSON, ErrDepth when it is nested deeper than
// DefaultDepth, ErrMany when it has more than MaxMembers members, and ErrSize.
func Parse(text []byte) (Object, error) { return ParseDepth(text, DefaultDepth) }

// ParseDepth is Parse with another limit, for a text that nobody scanned before. The members of
// objects, and the elements of arrays, that are called as keep says, in the object itself or in one
// that is kept, are kept from the same scan: Object and Elements find them there, and read nothing
// again. It changes nothing else: they read again what was not kept because its name was written
// with escapes, or because there are too many.
func ParseDepth(text []byte, depth int, keep ...string) (Object, error) {
	start := SkipSpace(text, 0)
	if start >= len(text) {
		return Object{}, &SyntaxError{len(text)}
	}
	if text[start] != '{' {
		if _, err := Scan(text, depth); err != nil {
			return Object{}, err
		}
		return Object{}, ErrAbsent
	}
	if string(text) == "{}" { // needs no memory
		return Object{text, nil}, nil
	}
	if uint64(len(text)) > math.MaxInt32 {
		return Object{}, ErrSize
	}
	in := inside{keep: keep, most: MaxMembers}
	end, err := skipObject(text, start, depth, &in)
	if err != nil {
		return Object{}, err
	}
	if rest := SkipSpace(text, end); rest != len(text) {
		return Object{}, &SyntaxError{rest}
	}
	return Object{text, in.members}, nil
}

// Forget returns the object without what ParseDepth has kept of the insides of its members, for an
// object that stays in memory. The receiver loses them too.
func (o Object) Forget() Object {
	for i := range o.members {
		o.members[i].inside = nil
	}
	return o
}

// Present reports whether there is an object.
func (o Object) Present() bool { return o.text != nil }

// Text returns what was parsed.
func (o Object) Text() []byte { return o.text }

// Len returns how many members there are.
func (o Object) Len() int { return len(o.members) }

// All returns the members in their order.
func (o Object) All() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for i := range o.members {
			if m := &o.members[i]; !yield(Member{o.text[m.start:m.keyEnd():m.keyEnd()], o.valueOf(m)}) {
				return
			}
		}
	}
}

// Each returns the members of the object in text, which was scanned before, without keeping them
// anywhere. A text that is no object has none.
func Each(text []byte) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		i := SkipSpace(text, 0)
		if i >= len(text) || text[i] != '{' {
			return
		}
		for i = SkipSpace(text, i+1); i < len(text) && text[i] == '"'; i = SkipSpace(text, i+1) {
			key, err := skipString(text, i)
			if err != nil {
				return
			}
			colon := SkipSpace(text, key)
			if colon >= len(text) {
				return
			}
			value := SkipSpace(text, colon+1)
			end, err := skip(text, value, DefaultDepth)
			if err != nil || !yield(Member{text[i:key:key], text[value:end:end]}) {
				return
			}
			if i = SkipSpace(text, end); i >= len(text) || text[i] != ',' {
				return
			}
		}
	}
}

// Members is All in a slice, which is the caller's.
func (o Object) Members() []Member { return slices.Collect(o.All()) }

func (o Object) valueOf(m *member) []byte { return o.text[m.value:m.end:m.end] }

// Get returns the value of the member called name. The error is ErrAbsent when there is none, and
// ErrAmbiguous when another reader could take another member for it: the name occurs twice, or in
// another letter case, or cut short or filled up by characters that some readers drop.
func (o Object) Get(name string) ([]byte, error) {
	i, err := o.index(name)
	if err != nil {
		return nil, err
	}
	return o.valueOf(&o.members[i]), nil
}

// String returns the text of the string member called name. A member of another type is ErrAbsent.
func (o Object) String(name string) (string, error) {
	v, err := o.Get(name)
	if err != nil {
		return "", err
	}
	return String(v)
}

// Object returns the object member called name. A member of another type is ErrAbsent.
func (o Object) Object(name string) (Object, error) {
	i, err := o.index(name)
	if err != nil {
		return Object{}, err
	}
	m := &o.members[i]
	v := o.valueOf(m)
	if m.inside != nil && !m.inside.over && v[0] == '{' {
		return Object{v, m.inside.members}, nil
	}
	return Parse(v)
}

// Elements returns the elements of the array member called name; the slice may be the object's own.
// A member of another type is ErrAbsent.
func (o Object) Elements(name string) ([][]byte, error) {
	i, err := o.index(name)
	if err != nil {
		return nil, err
	}
	m := &o.members[i]
	v := o.valueOf(m)
	if m.inside != nil && !m.inside.over && v[0] == '[' {
		return m.inside.elements, nil
	}
	return Elements(v)
}

func (o Object) index(name string) (int, error) {
	found, near := -1, false
	usual := ascii(name)
	for i := range o.members {
		m := &o.members[i]
		var is likeness
		if usual && m.key&odd == 0 {
			if int(m.key) != len(name)+len(`""`) {
				continue
			}
			is = compare(o.text[m.start+1:m.start+m.key-1], name)
		} else {
			is = match(o.text[m.start:m.keyEnd()], name)
		}
		switch is {
		case exact:
			if found >= 0 {
				return 0, ErrAmbiguous
			}
			found = i
		case twisted:
			near = true
		}
	}
	switch {
	case near:
		return 0, ErrAmbiguous
	case found < 0:
		return 0, ErrAbsent
	}
	return found, nil
}

// ascii reports whether all characters of a name are.
func ascii(name string) bool {
	for ; len(name) >= 8; name = name[8:] {
		if binary.LittleEndian.Uint64([]byte(name[:8]))&highs != 0 {
			return false
		}
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return true
}

type likeness int

const (
	different likeness = iota
	twisted            // equal to some readers: see matchUnescaped
	exact
)

// compare compares a key that is not odd with an ASCII name as long as it is.
func compare(key []byte, name string) likeness {
	if string(key) == name {
		return exact
	}
	for i, c := range key {
		if d := name[i]; c != d && (c|0x20 != d|0x20 || c|0x20 < 'a' || c|0x20 > 'z') {
			return different
		}
	}
	return twisted
}

// match compares a key, as it was written, with a name. It knows the ways in which readers take a
// key for a name that it is not: encoding/json and others ignore letter case, some drop bytes that
// are no UTF-8 and half surrogate pairs, and in C a string ends at its first NUL.
func match(key []byte, name string) likeness {
	s, whole, err := unquote(key)
	if err != nil {
		return different
	}
	if whole && s == name {
		return exact
	}
	if strings.EqualFold(s, name) {
		return twisted
	}
	if s, _, cut := strings.Cut(s, "\x00"); cut && strings.EqualFold(s, name) {
		return twisted
	}
	return different
}

// Edit replaces the value of one member, adds the member at the end, or, when Value is empty, takes
// it out.
type Edit struct {
	Name  string
	Value []byte
}

// Splice returns a copy of the object's text with the edits made, of which each has another name;
// the other members keep their bytes and their order. The values are not checked to be JSON. The
// error is ErrAmbiguous when a name is ambiguous in the object, and ErrAbsent when there is no
// object; taking out a member that is not there is no error.
func (o Object) Splice(edits ...Edit) ([]byte, error) { return o.AppendSplice(nil, edits...) }

// AppendSplice is Splice that appends the text to b.
func (o Object) AppendSplice(b []byte, edits ...Edit) ([]byte, error) {
	if !o.Present() {
		return nil, ErrAbsent
	}
	var few [8]int
	at := few[:0]
	size := len(o.text)
	for _, e := range edits {
		i, err := o.index(e.Name)
		if err == ErrAbsent {
			i = -1
		} else if err != nil {
			return nil, err
		}
		at = append(at, i)
		size += len(e.Value) + len(e.Name) + 6
	}
	out := b
	if cap(b)-len(b) < size {
		// slices.Grow would do it in two pieces where the race detector looks on
		out = append(make([]byte, 0, len(b)+size), b...)
	}
	from := 0 // what of the text is not copied yet
	kept := 0 // members written
	for i := range o.members {
		m := &o.members[i]
		e := -1
		for k, member := range at {
			if member == i {
				e = k
			}
		}
		switch {
		case e < 0:
			kept++
		case len(edits[e].Value) > 0:
			out = append(out, o.text[from:m.value]...)
			out = append(out, edits[e].Value...)
			from = int(m.end)
			kept++
		case i+1 < len(o.members): // take it out up to the next member, comma included
			out = append(out, o.text[from:m.start]...)
			from = int(o.members[i+1].start)
		default: // the last one: take it out with the comma before it
			out = append(out, o.text[from:m.start]...)
			if kept > 0 {
				for out[len(out)-1] != ',' {
					out = out[:len(out)-1]
				}
				out = out[:len(out)-1]
			}
			from = int(m.end)
		}
	}
	tail := len(o.text)
	for tail--; o.text[tail] != '}'; tail-- {
	}
	out = append(out, o.text[from:tail]...)
	for k, e := range edits {
		if at[k] >= 0 || len(e.Value) == 0 {
			continue
		}
		if kept > 0 {
			out = append(out, ',')
		}
		out = append(AppendQuote(out, e.Name), ':')
		out = append(out, e.Value...)
		kept++
	}
	return append(out, o.text[tail:]...), nil
}
