package raw

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"
)

// Object contains the members of a JSON object in their original order. The zero value is absent:
// Present is false. An Object aliases the text that it was parsed from; the text must not be
// modified while the Object is in use.
type Object struct {
	text    []byte
	members []member
}

// member contains the offsets of a member in the text. They are uint32, because members take a
// fifth of the memory of a call.
type member struct {
	start      uint32
	key        uint32 // length of the key with its quotes; may be combined with odd
	value, end uint32
	inside     *inside // nil if not kept
}

// odd marks a key with escapes or characters that are not ASCII, so that its name can differ from
// its bytes. All other keys, which are nearly all, are compared by their bytes.
const odd = 1 << 31

func (m *member) keyEnd() uint32 { return m.start + m.key&^odd }

// Member is one member of an object.
type Member struct {
	Key   []byte // with its quotes and escapes
	Value []byte
}

// Name returns the unescaped key.
func (m Member) Name() (string, error) { return String(m.Key) }

// Parse returns the members of the object in text. The error is ErrAbsent if text is another kind
// of value, a *SyntaxError if it is not JSON, ErrDepth if it is nested deeper than DefaultDepth,
// ErrMany if it has more than MaxMembers members, and ErrSize.
func Parse(text []byte) (Object, error) { return ParseDepth(text, DefaultDepth) }

// ParseDepth is Parse with another depth limit, for a text that was not scanned before. keep lists
// the names of members whose contents are kept from the same scan: the members of objects and the
// elements of arrays, in the object itself and in kept objects. Object and Elements return them
// without another scan. Contents that are not kept are scanned again when needed: names with
// escapes, and objects or arrays with too many entries.
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

// Forget returns the object without the contents that ParseDepth has kept, and without spare memory,
// for an object that stays in memory. The receiver loses the contents, too.
func (o Object) Forget() Object {
	for i := range o.members {
		o.members[i].inside = nil
	}
	if cap(o.members) > len(o.members) {
		members := make([]member, len(o.members))
		copy(members, o.members)
		o.members = members
	}
	return o
}

// Present reports whether there is an object.
func (o Object) Present() bool { return o.text != nil }

// Text returns the text that was parsed.
func (o Object) Text() []byte { return o.text }

// Len returns the number of members.
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

// Each returns the members of the object in text, without storing them. The text must have been
// scanned before. A text that is not an object has no members.
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

// Members returns the members in a new slice.
func (o Object) Members() []Member { return slices.Collect(o.All()) }

func (o Object) valueOf(m *member) []byte { return o.text[m.value:m.end:m.end] }

// Get returns the value of the member called name. The error is ErrAbsent if there is none. It is
// ErrAmbiguous if other JSON readers could choose another member: the name occurs twice, in another
// letter case, or in a form that some readers cut short or complete by dropping characters.
func (o Object) Get(name string) ([]byte, error) {
	i, err := o.index(name)
	if err != nil {
		return nil, err
	}
	return o.valueOf(&o.members[i]), nil
}

// String returns the text of the string member called name. For a member of another type the error
// is ErrAbsent.
func (o Object) String(name string) (string, error) {
	v, err := o.Get(name)
	if err != nil {
		return "", err
	}
	return String(v)
}

// Object returns the object member called name. For a member of another type the error is
// ErrAbsent.
func (o Object) Object(name string) (Object, error) {
	i, err := o.index(name)
	if err != nil {
		return Object{}, err
	}
	return o.objectOf(&o.members[i])
}

// objectOf returns the value of a member as an object.
func (o Object) objectOf(m *member) (Object, error) {
	v := o.valueOf(m)
	if m.inside != nil && !m.inside.over && v[0] == '{' {
		return Object{v, m.inside.members}, nil
	}
	return Parse(v)
}

// Elements returns the elements of the array member called name; the slice may belong to the
// object. For a member of another type the error is ErrAbsent.
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

// HasObject reports whether the value at the path is an object, such as a capability of MCP.
func (o Object) HasObject(path ...string) bool {
	v, err := Get(o.text, path...)
	return o.Present() && err == nil && v[0] == '{'
}

// IsTrue reports whether the value at the path is true.
func (o Object) IsTrue(path ...string) bool {
	v, err := Get(o.text, path...)
	return o.Present() && err == nil && string(v) == "true"
}

// Names are the names of members that are looked up together. Make them once, with NewNames.
type Names struct {
	names []string
	heads [MaxNames]uint16
}

// MaxNames is the most names of Names.
const MaxNames = 8

// NewNames returns the names, in an order that Found has, too. It panics unless they are at most MaxNames, in ASCII,
// of one to 255 bytes.
func NewNames(names ...string) *Names {
	n := &Names{names: names}
	for i, name := range names {
		if i == MaxNames || name == "" || len(name) > 255 || !ascii(name) {
			panic("raw: more names than Names has, or another name than it takes")
		}
		n.heads[i] = head(len(name), name[0])
	}
	return n
}

// head is equal for names of one length that are equal but for letter case.
func head(length int, first byte) uint16 { return uint16(length)<<8 | uint16(first|0x20) }

// Found has the members of an object that have some names.
type Found struct {
	object    Object
	at        [MaxNames]uint32 // one more than the index of the member; 0 if there is none
	ambiguous uint8            // by name
}

// Find looks up all names in one pass over the members.
func (o Object) Find(names *Names) (f Found) {
	f.object = o
	for i := range o.members {
		m := &o.members[i]
		if m.key&odd != 0 {
			for n, name := range names.names {
				f.note(n, i, match(o.text[m.start:m.keyEnd()], name))
			}
			continue
		}
		length := int(m.key) - len(`""`)
		if length == 0 || length > 255 {
			continue
		}
		for n, is := range names.heads[:len(names.names)] {
			if is == head(length, o.text[m.start+1]) {
				f.note(n, i, compare(o.text[m.start+1:m.start+m.key-1], names.names[n]))
			}
		}
	}
	return f
}

// note notes how a member and a name compare.
func (f *Found) note(n, i int, is likeness) {
	switch {
	case is == twisted || is == exact && f.at[n] > 0:
		f.ambiguous |= 1 << n
	case is == exact:
		f.at[n] = uint32(i) + 1
	}
}

// Get is (Object).Get for the n-th name.
func (f *Found) Get(n int) ([]byte, error) {
	switch {
	case f.ambiguous&(1<<n) != 0:
		return nil, ErrAmbiguous
	case f.at[n] == 0:
		return nil, ErrAbsent
	}
	return f.object.valueOf(&f.object.members[f.at[n]-1]), nil
}

// Object is (Object).Object for the n-th name.
func (f *Found) Object(n int) (Object, error) {
	if _, err := f.Get(n); err != nil {
		return Object{}, err
	}
	return f.object.objectOf(&f.object.members[f.at[n]-1])
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

// ascii reports whether the name is ASCII.
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
	twisted            // equal for some readers: see match
	exact
)

// compare compares a key that is not odd with an ASCII name of the same length.
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

// match compares a key in its written form with a name. Some readers take a key for another name:
// encoding/json and others ignore letter case, some drop invalid UTF-8 and half surrogate pairs,
// and C strings end at the first NUL.
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

// Edit replaces the value of a member, adds the member at the end, or removes it if Value is empty.
type Edit struct {
	Name  string
	Value []byte
}

// Splice returns a copy of the object's text with the edits, whose names must differ. The other
// members keep their bytes and their order. The values are not checked to be JSON. The error is
// ErrAmbiguous if a name is ambiguous in the object, and ErrAbsent if there is no object. Removing
// a member that does not exist is no error.
func (o Object) Splice(edits ...Edit) ([]byte, error) { return o.AppendSplice(nil, edits...) }

// With returns the object with the edits. The error comes from Splice or Parse.
func (o Object) With(edits ...Edit) (Object, error) {
	text, err := o.Splice(edits...)
	if err != nil {
		return Object{}, err
	}
	return Parse(text)
}

// AppendSplice is Splice, but appends the text to b.
func (o Object) AppendSplice(b []byte, edits ...Edit) ([]byte, error) {
	if !o.Present() {
		return nil, ErrAbsent
	}
	var few [8]int
	at := few[:0]
	size := len(o.text)
	for _, e := range edits {
		i, err := o.index(e.Name)
		switch {
		case err == ErrAbsent:
			i = -1
			size += len(e.Name) + 6
		case err != nil:
			return nil, err
		case len(e.Value) > 0:
			size -= int(o.members[i].end - o.members[i].value)
		}
		at = append(at, i)
		size += len(e.Value)
	}
	out := b
	if cap(b)-len(b) < size {
		// under the race detector, slices.Grow needs two allocations
		out = append(make([]byte, 0, len(b)+size), b...)
	}
	from := 0 // beginning of the text that is not copied yet
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
		case i+1 < len(o.members): // remove the member up to the next one, including the comma
			out = append(out, o.text[from:m.start]...)
			from = int(o.members[i+1].start)
		default: // the last member: remove it with the comma before it
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
