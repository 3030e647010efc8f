package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/upstream/raw"
)

// node is one value of the arguments. The values are kept as places in the text, because the decoded
// values may need a hundred times the memory of the text. The values within a value follow it.
type node struct {
	start, end       uint32 // of the value in the text
	name, nameEnd    uint32 // of the member's name, with its quotes; both 0 for other values
	parent, next     int32  // next is the next value of the same parent; 0 for none
	position         int32  // in the parent
	children         int32
	kind             kindOf
	escaped, unclear bool // the string, or the name, has escapes or is not ASCII
}

// nodeBytes is the memory of a node. The index of a large object needs 4 bytes more, and a search for
// equal items 16.
const nodeBytes = 36 + 4 + 16

type kindOf byte

const (
	nullKind kindOf = iota
	boolKind
	numberKind
	stringKind
	arrayKind
	objectKind
	kinds
)

func (k kindOf) String() string {
	// All: else it does not compile.
	var words [kinds]string = [...]string{"null", "boolean", "number", "string", "array", "object"}
	return words[k]
}

// values are the arguments of a call: nodes[0] is the object.
type values struct {
	text  []byte
	nodes []node
	// the members of objects with more than fewMembers, ordered by name
	sorted map[int32][]int32
}

const fewMembers = 16

// mostValues bounds the values in a JSON text from above: a comma or a bracket stands before each.
func mostValues(text []byte) int {
	n := 1
	for _, before := range []string{",", "[", "{"} {
		n += bytes.Count(text, []byte(before))
	}
	return min(n, maxValues)
}

// parse reads a JSON text that was scanned before. Its error says which limit the text exceeds, or
// which member occurs twice: the tool might read another value than the checked one.
func parse(text []byte) (*values, error) {
	v := &values{text: text, nodes: make([]node, 0, mostValues(text))}
	end, err := v.read(raw.SkipSpace(text, 0), -1, 0)
	if err == nil && raw.SkipSpace(text, end) != len(text) {
		err = fmt.Errorf("there is more than one value")
	}
	return v, err
}

// read adds the value at text[i], and returns the index after the value.
func (v *values) read(i int, parent int32, depth int) (end int, err error) {
	if depth > maxArgumentDepth {
		return 0, &LimitError{"levels of arrays and objects", maxArgumentDepth}
	}
	if len(v.nodes) == maxValues {
		return 0, &LimitError{"values", maxValues}
	}
	if i >= len(v.text) {
		return 0, &raw.SyntaxError{Offset: i}
	}
	at := int32(len(v.nodes))
	v.nodes = append(v.nodes, node{start: uint32(i), parent: parent})
	switch c := v.text[i]; c {
	case '{', '[':
		end, err = v.inside(i, at, depth)
	case '"':
		var ok bool
		if end, ok = raw.StringEnd(v.text, i); !ok {
			return 0, &raw.SyntaxError{Offset: i}
		}
		v.nodes[at].kind, v.nodes[at].escaped = stringKind, strange(v.text[i:end])
	case 't', 'f', 'n':
		end = i + len("true")
		v.nodes[at].kind = boolKind
		switch c {
		case 'f':
			end++
		case 'n':
			v.nodes[at].kind = nullKind
		}
	default:
		for end = i; end < len(v.text) && strings.IndexByte("+-.0123456789eE", v.text[end]) >= 0; end++ {
		}
		v.nodes[at].kind = numberKind
		if n := v.text[i:end]; !moderate(string(n)) {
			err = fmt.Errorf("%s: the number is too large, too small or too long to be compared", v.place(at))
		}
	}
	if err == nil && (end == i || end > len(v.text)) {
		err = &raw.SyntaxError{Offset: i}
	}
	v.nodes[at].end = uint32(end)
	return end, err
}

// inside adds the values of the array or object at text[i].
func (v *values) inside(i int, at int32, depth int) (end int, err error) {
	object := v.text[i] == '{'
	v.nodes[at].kind = arrayKind
	if object {
		v.nodes[at].kind = objectKind
	}
	last := int32(0)
	for i = raw.SkipSpace(v.text, i+1); i < len(v.text) && v.text[i] != ']' && v.text[i] != '}'; {
		name, nameEnd := i, i
		if object {
			var ok bool
			if nameEnd, ok = raw.StringEnd(v.text, i); !ok {
				return 0, &raw.SyntaxError{Offset: i}
			}
			i = raw.SkipSpace(v.text, raw.SkipSpace(v.text, nameEnd)+1) // after the colon
		}
		child := int32(len(v.nodes))
		if i, err = v.read(i, at, depth+1); err != nil {
			return 0, err
		}
		if object {
			n := &v.nodes[child]
			n.name, n.nameEnd, n.unclear = uint32(name), uint32(nameEnd), strange(v.text[name:nameEnd])
		}
		if last != 0 {
			v.nodes[last].next = child
		}
		last = child
		v.nodes[child].position = v.nodes[at].children
		v.nodes[at].children++
		if i = raw.SkipSpace(v.text, i); i < len(v.text) && v.text[i] == ',' {
			i = raw.SkipSpace(v.text, i+1)
		}
	}
	if i >= len(v.text) {
		return 0, &raw.SyntaxError{Offset: i}
	}
	if object {
		err = v.unique(at)
	}
	return i + 1, err
}

// unique finds a name that occurs twice in an object.
func (v *values) unique(object int32) error {
	if v.nodes[object].children > fewMembers {
		list := slices.Collect(v.each(object))
		slices.SortFunc(list, v.compareNames)
		for i := 1; i < len(list); i++ {
			if v.sameName(list[i], list[i-1]) {
				return v.twice(list[i])
			}
		}
		if v.sorted == nil {
			v.sorted = map[int32][]int32{}
		}
		v.sorted[object] = list
		return nil
	}
	for a := range v.each(object) {
		for b := range v.each(object) {
			if b >= a {
				break
			}
			if v.sameName(a, b) {
				return v.twice(a)
			}
		}
	}
	return nil
}

func (v *values) twice(member int32) error {
	return fmt.Errorf("%s occurs twice", v.shownName(member))
}

// each returns the values of an array or an object, in their order.
func (v *values) each(at int32) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		if v.nodes[at].children == 0 {
			return
		}
		for i := at + 1; i != 0; i = v.nodes[i].next {
			if !yield(i) {
				return
			}
		}
	}
}

// member returns the member of an object; 0 if there is none.
func (v *values) member(object int32, name string) int32 {
	if list, ok := v.sorted[object]; ok {
		i, found := slices.BinarySearchFunc(list, name, v.compareName)
		if !found {
			return 0
		}
		return list[i]
	}
	for m := range v.each(object) {
		if v.named(m, name) {
			return m
		}
	}
	return 0
}

// bytes returns the text of a value.
func (v *values) bytes(at int32) []byte { return v.text[v.nodes[at].start:v.nodes[at].end] }

// string returns a string.
func (v *values) string(at int32) string { return unquote(v.bytes(at), v.nodes[at].escaped) }

// length returns the characters of a string.
func (v *values) length(at int32) int {
	if !v.nodes[at].escaped {
		return int(v.nodes[at].end-v.nodes[at].start) - 2
	}
	return utf8.RuneCountInString(v.string(at))
}

// strange reports whether a string in its written form has escapes, or bytes that are not ASCII.
func strange(quoted []byte) bool {
	for _, c := range quoted {
		if c == '\\' || c >= utf8.RuneSelf {
			return true
		}
	}
	return false
}

// unquote returns the text of a string. As in most readers, U+FFFD replaces what is not Unicode.
func unquote(quoted []byte, strange bool) string {
	if !strange {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(quoted) // impossible: the text was scanned
	}
	return s
}

// place returns the way to a value, such as options.list[3].name.
func (v *values) place(at int32) string {
	if at == 0 {
		return "the arguments"
	}
	return short(v.path(at), 3*maxShownName)
}

// under is place for a member that an object does not have.
func (v *values) under(object int32, name string) string {
	path := short(name, maxShownName)
	if object != 0 {
		path = v.path(object) + "." + path
	}
	return short(path, 3*maxShownName)
}

func (v *values) path(at int32) string {
	var b strings.Builder
	for i, step := range v.way(at) {
		n := &v.nodes[step]
		if n.nameEnd == 0 {
			b.WriteString("[" + strconv.Itoa(int(n.position)) + "]")
			continue
		}
		if b.Len() > 3*maxShownName {
			break
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(v.shownName(step))
	}
	return b.String()
}

// way returns the values that lead to a value, without the arguments themselves.
func (v *values) way(at int32) []int32 {
	var way []int32
	for ; at > 0; at = v.nodes[at].parent {
		way = append(way, at)
	}
	slices.Reverse(way)
	return way
}
