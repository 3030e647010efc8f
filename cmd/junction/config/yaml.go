package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// A decoder reads one file into a Config. yaml.v3 parses the text, but the decoder walks the nodes
// itself: the decoder of yaml.v3 is not strict below an UnmarshalYAML, mentions Go types in errors,
// and loses the lines of values. The walk follows the types of Config, which limit its depth.
type decoder struct {
	file     string
	refs     expander
	problems Problems

	lines   yamlread.Lines         // the line of each key and list element of the file, by path
	wrong   map[string]bool        // true: a path with a mistake; false: a path that contains one
	secrets map[string][]reference // the values of references, by entry
	merging map[*yaml.Node]bool    // mappings whose << is being followed
	values  int                    // nodes visited so far
	example string                 // of the list at the current key; "" for none

	off        map[string]bool     // entries of disabled upstreams
	all        bool                // resolve the references of disabled upstreams, too
	unresolved map[string]bool     // paths with a reference that cannot be resolved
	variables  map[string][]string // the paths that refer to each variable of the environment
	packs      map[string]string   // the packs of the entries that have one
}

func newDecoder(file string, getenv func(string) (string, bool)) *decoder {
	return &decoder{
		file:    file,
		refs:    expander{dir: filepath.Dir(file), getenv: getenv, left: maxReferenced},
		lines:   yamlread.Lines{},
		wrong:   map[string]bool{},
		secrets: map[string][]reference{},
		merging: map[*yaml.Node]bool{},

		off:        map[string]bool{},
		unresolved: map[string]bool{},
		variables:  map[string][]string{},
		packs:      map[string]string{},
	}
}

// decode fills c. It reports whether the text is a YAML mapping of acceptable size, so that
// validating c makes sense.
func (d *decoder) decode(text []byte, c *Config) bool {
	if !utf8.Valid(text) {
		line := 0
		for l := range bytes.Lines(text) {
			if line++; !utf8.Valid(l) {
				break
			}
		}
		d.at(line, "", "is not UTF-8 text; save the file as UTF-8")
		return false
	}
	var doc, second yaml.Node
	r := yaml.NewDecoder(bytes.NewReader(text))
	switch err := r.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return true // only comments; validate reports missing keys
	case err != nil:
		d.syntax(text, err)
		return false
	}
	switch err := r.Decode(&second); {
	case err == nil:
		d.at(second.Line, "", "begins a second document; remove the --- and what follows, or merge it into the first")
	case !errors.Is(err, io.EOF):
		d.syntax(text, err)
		return false
	}
	isMapping := d.value("", doc.Content[0], reflect.ValueOf(c).Elem())
	if d.values > yamlread.MaxValues {
		d.problems = nil
		d.at(1, "", "has more than %d values when its aliases are followed; use fewer aliases", yamlread.MaxValues)
		return false
	}
	return isMapping
}

// value reads n into v. It reports whether n has the kind of node that v needs, even if there are
// mistakes inside n.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) bool {
	if d.values++; d.values > yamlread.MaxValues {
		return false
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if disabled(path, n) {
		d.off[path] = true
	}
	if v.Kind() == reflect.Pointer { // a scalar that may be absent
		p := reflect.New(v.Type().Elem())
		if !d.value(path, n, p.Elem()) {
			return false
		}
		v.Set(p)
		return true
	}
	if tag := n.ShortTag(); n.Style&yaml.TaggedStyle != 0 && !plainTag(tag) {
		d.bad(path, "the tag %s means nothing here; remove it (a secret is written ${VAR} or ${file:/path})",
			prose.Quote(tag))
		return false
	}
	switch v := v.Addr().Interface().(type) {
	case *upstream.Rules:
		return d.rules(path, n, v)
	case *upstream.Config:
		return d.upstream(path, n, v)
	}
	if s, ok := v.Addr().Interface().(shaped); ok {
		return d.shaped(path, n, s)
	}
	if isScalar(v) {
		return d.text(path, n, v)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.structure(path, n, v)
	case reflect.Map:
		return d.mapping(path, n, v)
	}
	return d.list(path, n, v)
}

// shaped is a value with more than one form in the file, such as a string or a list of strings.
// Shape returns a pointer to the value that n is read into, or nil and a description of the
// expected forms.
type shaped interface {
	Shape(n *yaml.Node) (into any, want string)
}

func (d *decoder) shaped(path string, n *yaml.Node, s shaped) bool {
	if yamlread.Empty(n) {
		d.bad(path, "has no value; give it one, or remove the key")
		return false
	}
	into, want := s.Shape(n)
	switch {
	case into != nil:
		return d.value(path, n, reflect.ValueOf(into).Elem())
	case len(n.Content) == 0 && n.Kind != yaml.ScalarNode:
		d.bad(path, "must be %s, not an empty one", want)
	default:
		d.bad(path, "must be %s, not %s", want, yamlread.Kind(n))
	}
	return false
}

// plainTag reports whether an explicit tag has no effect on the value.
func plainTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!":
		return true
	}
	return false
}

func (d *decoder) structure(path string, n *yaml.Node, v reflect.Value) bool {
	want := "must be a mapping (key: value)"
	if example, ok := exampleOf(v.Type()); ok {
		want = "must be a mapping, such as " + example
	}
	pairs, ok := d.pairs(path, n, want)
	fields := yamlread.Keys(v.Type())
	for _, p := range pairs {
		at := yamlread.Join(path, p.key)
		if i, known := fields[p.key]; known {
			d.example = v.Type().FieldByIndex(i).Tag.Get("example")
			d.value(at, p.value, v.FieldByIndex(i))
			continue
		}
		d.unknown(path, p, v.Type())
	}
	return ok
}

func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) bool {
	want := "must be a mapping (name: value)"
	if v.Type().Elem().Kind() == reflect.Struct {
		want = "must be a mapping (name: { … })"
	}
	pairs, ok := d.pairs(path, n, want)
	if len(pairs) == 0 {
		return ok
	}
	m := reflect.MakeMap(v.Type())
	for _, p := range pairs {
		elem := reflect.New(v.Type().Elem()).Elem()
		if d.value(yamlread.Join(path, p.key), p.value, elem) {
			m.SetMapIndex(reflect.ValueOf(p.key), elem)
		}
	}
	v.Set(m)
	return ok
}

func (d *decoder) rules(path string, n *yaml.Node, rules *upstream.Rules) bool {
	pairs, ok := d.pairs(path, n, "must be a mapping (glob: { … })")
	for _, p := range pairs {
		g := upstream.GlobRule{Glob: p.key}
		if d.value(yamlread.Join(path, p.key), p.value, reflect.ValueOf(&g.Rule).Elem()) {
			*rules = append(*rules, g)
		}
	}
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

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) bool {
	if yamlread.Empty(n) {
		return true
	}
	if n.Kind != yaml.SequenceNode {
		example := d.example
		if element, ok := exampleOf(v.Type().Elem()); ok && example == "" {
			example = "[" + element + "]"
		}
		d.bad(path, "must be a list, such as %s, not %s", cmp.Or(example, "[one, two]"), yamlread.Kind(n))
		return false
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = e.Line
		d.value(at, e, s.Index(i)) // a wrong element stays in place, so that the others keep their indexes
	}
	v.Set(s)
	return true
}

// A pair is one entry of a mapping. Aliases of the key are resolved.
type pair struct {
	key   string
	line  int
	value *yaml.Node
}

// pairs returns the entries of a mapping in their order and records their lines. It reports keys
// that occur twice or are not strings. It follows the merge key <<: the merged entries come last,
// and the mapping's own entries override them. A null node, such as a mapping whose content is
// commented out, is an empty mapping.
func (d *decoder) pairs(path string, n *yaml.Node, want string) (ps []pair, ok bool) {
	if yamlread.Empty(n) {
		return nil, true
	}
	if n.Kind != yaml.MappingNode {
		d.bad(path, "%s, not %s", want, yamlread.Kind(n))
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
		case k.Kind == yaml.ScalarNode && auth.HoldsKey(k.Value):
			d.mark(path) // the key that it replaces must not be reported as missing
			d.at(line, path, "has a key that is %s", plaintextKey)
		case k.Kind != yaml.ScalarNode:
			d.at(line, path, "has a key that is %s; write plain text before the colon", yamlread.Kind(k))
		case twice:
			d.at(line, yamlread.Join(path, k.Value), "is given a second time, first on line %d; keep one", first)
		default:
			seen[k.Value] = line
			ps = append(ps, pair{k.Value, line, v})
		}
	}
	for _, m := range merges {
		for _, p := range d.merged(path, m) {
			if _, own := seen[p.key]; !own {
				seen[p.key] = p.line
				ps = append(ps, p)
			}
		}
	}
	for _, p := range ps {
		d.lines[yamlread.Join(path, p.key)] = p.line
	}
	return ps, true
}

// merged returns the entries of the value of <<: a mapping, or a list of mappings.
func (d *decoder) merged(path string, n *yaml.Node) (ps []pair) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.values++; d.values > yamlread.MaxValues || d.merging[n] {
		return nil // a mapping that merges itself adds nothing
	}
	d.merging[n] = true
	defer delete(d.merging, n)
	if n.Kind == yaml.SequenceNode {
		for _, e := range n.Content {
			ps = append(ps, d.merged(path, e)...)
		}
		d.values += len(ps)
		return ps
	}
	ps, _ = d.pairs(path, n, "must be a mapping after <<")
	d.values += len(ps)
	return ps
}
