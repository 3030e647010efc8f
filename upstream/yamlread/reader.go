package yamlread

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Reader walks the nodes of one file. yaml.v3 parses the text, but the Reader walks the nodes itself:
// the decoder of yaml.v3 is not strict below an UnmarshalYAML, mentions Go types in errors, and loses
// the lines of values. The decoder of a kind of file embeds a Reader, and is called for each value.
type Reader struct {
	File     string
	Problems Problems
	Lines    Lines // the line of each key and list element of the file, by path

	// Value reads n into v. It reports whether n has the kind of node that v needs, even if there
	// are mistakes inside n. It must begin with Enter, and may end with Walk.
	Value func(path string, n *yaml.Node, v reflect.Value) bool
	// Unknown reports a key that the struct type t does not have.
	Unknown func(path string, p Pair, t reflect.Type)
	// Mark is called for each path with a mistake. It may be nil.
	Mark func(path string)
	// Conceal removes secrets from a path and from a text about it. It may be nil.
	Conceal func(path, text string) (string, string)
	// Key reports whether a key of a mapping is acceptable; otherwise it has reported the mistake.
	// It may be nil.
	Key func(path string, line int, key string) bool

	merging map[*yaml.Node]bool // mappings whose << is being followed
	values  int                 // nodes visited so far
	size    int                 // bytes of their texts, and of the paths in Lines
	example string              // of the list at the current key; "" for none
}

// maxTexts limits the texts of a file when its aliases are followed, and the paths of its keys.
const maxTexts = 16 << 20

// At adds a mistake on a line.
func (r *Reader) At(line int, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if r.Conceal != nil {
		path, text = r.Conceal(path, text)
	}
	r.Problems = append(r.Problems, Problem{File: r.File, Line: line, Path: path, Text: text})
}

// Bad adds a mistake at path, and marks the path.
func (r *Reader) Bad(path, format string, args ...any) {
	if r.Mark != nil {
		r.Mark(path)
	}
	r.At(r.Lines.At(path), path, format, args...)
}

// Parse returns the value of a file that has one YAML document. It returns nil after a mistake, and
// also, with ok, for a file without a value.
func (r *Reader) Parse(text []byte) (n *yaml.Node, ok bool) {
	if !utf8.Valid(text) {
		line := 0
		for l := range bytes.Lines(text) {
			if line++; !utf8.Valid(l) {
				break
			}
		}
		r.At(line, "", "is not UTF-8 text; save the file as UTF-8")
		return nil, false
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, true
	case err != nil:
		r.syntax(text, err)
		return nil, false
	}
	switch err := d.Decode(&second); {
	case err == nil:
		r.At(second.Line, "", "begins a second document; remove the --- and what follows, or merge it into the first")
	case !errors.Is(err, io.EOF):
		r.syntax(text, err)
		return nil, false
	}
	return doc.Content[0], true
}

// Enter counts a node and follows aliases. It returns nil if there are too many.
func (r *Reader) Enter(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.values++
	if r.size += len(n.Value); r.values > MaxValues || r.size > maxTexts {
		return nil
	}
	return n
}

// TooLarge reports whether the file has too many values or texts. This mistake then replaces the
// others.
func (r *Reader) TooLarge() bool {
	switch {
	case r.values > MaxValues:
		r.Problems = nil
		r.At(1, "", "has more than %d values when its aliases are followed; use fewer aliases", MaxValues)
	case r.size > maxTexts:
		r.Problems = nil
		r.At(1, "", "has more than %d MiB of keys and texts when its aliases are followed; use fewer aliases",
			maxTexts>>20)
	default:
		return false
	}
	return true
}

// Line keeps the line of a list element that a decoder reads itself.
func (r *Reader) Line(path string, n *yaml.Node) { r.record(path, n.Line) }

// record keeps the line of a key or a list element.
func (r *Reader) record(path string, line int) {
	if r.Lines == nil {
		r.Lines = Lines{}
	}
	if r.size += len(path); r.size <= maxTexts { // a long key is a part of many paths
		r.Lines[path] = line
	}
}

// Shaped is a value with more than one form in the file, such as a string or a list of strings.
// Shape returns a pointer to the value that n is read into, or nil and a description of the
// expected forms.
type Shaped interface {
	Shape(n *yaml.Node) (into any, want string)
}

// Shaped reads a value into the form that it has.
func (r *Reader) Shaped(path string, n *yaml.Node, s Shaped) bool {
	if Empty(n) {
		r.Bad(path, "has no value; give it one, or remove the key")
		return false
	}
	into, want := s.Shape(n)
	switch {
	case into != nil:
		return r.Value(path, n, reflect.ValueOf(into).Elem())
	case len(n.Content) == 0 && n.Kind != yaml.ScalarNode:
		r.Bad(path, "must be %s, not an empty one", want)
	default:
		r.Bad(path, "must be %s, not %s", want, Kind(n))
	}
	return false
}

// Walk reads a struct, a map or a list, and calls Value for each value in it.
func (r *Reader) Walk(path string, n *yaml.Node, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return r.structure(path, n, v)
	case reflect.Map:
		return r.mapping(path, n, v)
	}
	return r.list(path, n, v)
}

func (r *Reader) structure(path string, n *yaml.Node, v reflect.Value) bool {
	want := "must be a mapping (key: value)"
	if example, ok := exampleOf(v.Type()); ok {
		want = "must be a mapping, such as " + example
	}
	pairs, ok := r.Pairs(path, n, want)
	fields := Keys(v.Type())
	for _, p := range pairs {
		at := Join(path, p.Key)
		if i, known := fields[p.Key]; known {
			r.example = v.Type().FieldByIndex(i).Tag.Get("example")
			r.Value(at, p.Value, v.FieldByIndex(i))
			continue
		}
		r.Unknown(path, p, v.Type())
	}
	return ok
}

func (r *Reader) mapping(path string, n *yaml.Node, v reflect.Value) bool {
	want := "must be a mapping (name: value)"
	if v.Type().Elem().Kind() == reflect.Struct {
		want = "must be a mapping (name: { … })"
	}
	pairs, ok := r.Pairs(path, n, want)
	if len(pairs) == 0 {
		return ok
	}
	m := reflect.MakeMap(v.Type())
	for _, p := range pairs {
		elem := reflect.New(v.Type().Elem()).Elem()
		if r.Value(Join(path, p.Key), p.Value, elem) {
			m.SetMapIndex(reflect.ValueOf(p.Key), elem)
		}
	}
	v.Set(m)
	return ok
}

// exampleOf returns how a value of the type is written, if the type says so.
func exampleOf(t reflect.Type) (string, bool) {
	e, ok := reflect.Zero(t).Interface().(interface{ Example() string })
	if !ok {
		return "", false
	}
	return e.Example(), true
}

func (r *Reader) list(path string, n *yaml.Node, v reflect.Value) bool {
	if Empty(n) {
		return true
	}
	if n.Kind != yaml.SequenceNode {
		example := r.example
		if element, ok := exampleOf(v.Type().Elem()); ok && example == "" {
			example = "[" + element + "]"
		}
		r.Bad(path, "must be a list, such as %s, not %s", cmp.Or(example, "[one, two]"), Kind(n))
		return false
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.record(at, e.Line)
		r.Value(at, e, s.Index(i)) // a wrong element stays in place, so that the others keep their indexes
	}
	v.Set(s)
	return true
}

// Pair is one entry of a mapping. Aliases of the key are resolved.
type Pair struct {
	Key   string
	Line  int
	Value *yaml.Node
}

// Pairs returns the entries of a mapping in their order and records their lines. It reports keys
// that occur twice or are not strings. It follows the merge key <<: the merged entries come last,
// and the mapping's own entries override them. A null node, such as a mapping whose content is
// commented out, is an empty mapping.
func (r *Reader) Pairs(path string, n *yaml.Node, want string) (ps []Pair, ok bool) {
	if Empty(n) {
		return nil, true
	}
	if n.Kind != yaml.MappingNode {
		r.Bad(path, "%s, not %s", want, Kind(n))
		return nil, false
	}
	seen := map[string]int{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		line := k.Line
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		switch first, twice := seen[k.Value]; {
		case k.Kind == yaml.ScalarNode && k.Tag == "!!merge":
			merges = append(merges, v)
		case k.Kind != yaml.ScalarNode:
			r.At(line, path, "has a key that is %s; write plain text before the colon", Kind(k))
		case r.Key != nil && !r.Key(path, line, k.Value):
		case twice:
			r.At(line, Join(path, k.Value), "is given a second time, first on line %d; keep one", first)
		default:
			seen[k.Value] = line
			ps = append(ps, Pair{k.Value, line, v})
		}
	}
	for _, m := range merges {
		for _, p := range r.merged(path, m) {
			if _, own := seen[p.Key]; !own {
				seen[p.Key] = p.Line
				ps = append(ps, p)
			}
		}
	}
	for _, p := range ps {
		r.record(Join(path, p.Key), p.Line)
	}
	return ps, true
}

// merged returns the entries of the value of <<: a mapping, or a list of mappings.
func (r *Reader) merged(path string, n *yaml.Node) (ps []Pair) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r.values++; r.values > MaxValues || r.merging[n] {
		return nil // a mapping that merges itself adds nothing
	}
	if r.merging == nil {
		r.merging = map[*yaml.Node]bool{}
	}
	r.merging[n] = true
	defer delete(r.merging, n)
	if n.Kind == yaml.SequenceNode {
		for _, e := range n.Content {
			ps = append(ps, r.merged(path, e)...)
		}
		r.values += len(ps)
		return ps
	}
	ps, _ = r.Pairs(path, n, "must be a mapping after <<")
	r.values += len(ps)
	return ps
}
