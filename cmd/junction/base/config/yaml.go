package config

import (
	"path/filepath"
	"reflect"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// A decoder reads one file into a Config. Its walk follows the types of Config, which limit its
// depth.
type decoder struct {
	yamlread.Reader
	refs expander

	printed Printed             // what programs have printed; nil if it is not needed
	from    map[string][]Origin // by upstream

	wrong   map[string]bool        // true: a path with a mistake; false: a path that contains one
	secrets map[string][]reference // the values of references, by entry

	off        map[string]bool     // entries of disabled upstreams
	unresolved map[string]bool     // paths with a reference that cannot be resolved
	unset      map[string]string   // the variable of such a path; "" if the reference is of another kind
	variables  map[string][]string // the paths that refer to each variable of the environment
	packs      map[string]string   // the packs of the entries that have one
	servers    map[string][]string // the servers of packs that entries name

	manifests map[string]*manifest.Pack // the packs of entries; nil for those that cannot be read
	unsure    map[string]string         // paths of write, and programs, that cannot be resolved, and why
	confined  []change                  // what confined commands may change and should not
}

func newDecoder(file string, getenv func(string) (string, bool), printed Printed) *decoder {
	d := &decoder{
		refs: expander{dir: filepath.Dir(file), file: file, getenv: getenv, left: maxReferenced,
			named: Inputs{}},
		printed: printed,
		from:    map[string][]Origin{},

		wrong:   map[string]bool{},
		secrets: map[string][]reference{},

		off:        map[string]bool{},
		unresolved: map[string]bool{},
		unset:      map[string]string{},
		variables:  map[string][]string{},
		packs:      map[string]string{},
		servers:    map[string][]string{},

		manifests: map[string]*manifest.Pack{},
		unsure:    map[string]string{},
	}
	d.Reader = yamlread.Reader{File: file, Value: d.value, Unknown: d.unknown, Mark: d.mark, Conceal: d.conceal,
		Key: d.key}
	return d
}

// decode fills c. It reports whether the text is a YAML mapping of acceptable size, so that
// validating c makes sense.
func (d *decoder) decode(text []byte, c *Config) bool {
	n, ok := d.Parse(text)
	if n == nil {
		return ok // only comments; validate reports missing keys
	}
	isMapping := d.value("", n, reflect.ValueOf(c).Elem())
	return !d.TooLarge() && isMapping
}

// value reads n into v. It reports whether n has the kind of node that v needs, even if there are
// mistakes inside n.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) bool {
	if n = d.Enter(n); n == nil {
		return false
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
	if s, ok := v.Addr().Interface().(yamlread.Shaped); ok {
		return d.Shaped(path, n, s)
	}
	if isScalar(v) {
		return d.text(path, n, v)
	}
	if path == "upstreams" && n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		v.Set(reflect.MakeMap(v.Type())) // {} is no upstreams; a section without a value may be a mistake
		return true
	}
	return d.Walk(path, n, v)
}

// plainTag reports whether an explicit tag has no effect on the value.
func plainTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!":
		return true
	}
	return false
}

// key reports a key of a mapping that is an API key.
func (d *decoder) key(path string, line int, key string) bool {
	if !auth.HoldsKey(key) {
		return true
	}
	d.mark(path) // the key that it replaces must not be reported as missing
	d.At(line, path, "has a key that is %s", plaintextKey)
	return false
}

func (d *decoder) rules(path string, n *yaml.Node, rules *upstream.Rules) bool {
	pairs, ok := d.Pairs(path, n, "must be a mapping (glob: { … })")
	for _, p := range pairs {
		g := upstream.GlobRule{Glob: p.Key}
		if d.value(yamlread.Join(path, p.Key), p.Value, reflect.ValueOf(&g.Rule).Elem()) {
			*rules = append(*rules, g)
		}
	}
	return ok
}
