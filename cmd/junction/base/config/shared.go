package config

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"junction/auth/store"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// This file reads from the fields of the file which values members over one database compare: the tag
// members (package yamlread).

// A part is a value that members compare.
type part struct {
	path  string // of its key; an entry has its name in place of its number
	among yamlread.Among
	entry bool // of an entry: hard only if both members have the entry
	value any
}

// parts returns the values of a configuration that members compare, without most of those that are defaults, and
// without keys of which each member has a value of its own. A reload that was refused in part does not
// change what is hard, and the policies of both files count.
func (c *Config) parts() []part {
	whole := c.whole()
	var all []part
	for n, of := range []*Config{whole, c} {
		w := walker{keep: func(among yamlread.Among) bool { return (among == yamlread.AmongHard) == (n == 0) }}
		w.section("", "", false, reflect.ValueOf(*of), reflect.ValueOf(*defaultConfig()))
		all = append(all, w.found...)
	}
	if whole.Auth.Needed() { // also by a key that may differ otherwise
		all = append(all, part{path: "auth", among: yamlread.AmongHard, value: true})
	}
	slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(a.path, b.path) })
	return all
}

// A walker finds the parts of a configuration.
type walker struct {
	keep  func(yamlread.Among) bool
	found []part
}

func (w *walker) add(p part) {
	if p.among != yamlread.AmongHot && w.keep(p.among) {
		w.found = append(w.found, p)
	}
}

// section adds the keys of a section, which differ from those of another one. around is the tag of the
// section, and entry is set in an entry of a list.
func (w *walker) section(path string, around yamlread.Among, entry bool, v, plain reflect.Value) {
	v, plain = reflect.ValueOf(withDefaults(v)), reflect.ValueOf(withDefaults(plain))
	for _, field := range reflect.VisibleFields(v.Type()) {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		among, _ := yamlread.AmongOf(field) // a test has found mistakes
		p := part{path: yamlread.Join(path, key), among: cmp.Or(among, around), entry: entry}
		w.key(p, v.FieldByIndex(field.Index), plain.FieldByIndex(field.Index))
	}
}

// key adds a key, or the keys below it.
func (w *walker) key(p part, v, plain reflect.Value) {
	p.value = v.Interface()
	_, policies := p.value.(policy.Config)
	optional := v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct
	switch {
	case !policies && v.Kind() == reflect.Struct && len(yamlread.Keys(v.Type())) > 0:
		w.section(p.path, p.among, p.entry, v, plain)
	case optional && v.IsNil():
	case optional:
		w.entry(p, v.Elem())
	case v.Kind() == reflect.Slice && p.among == yamlread.AmongSteps:
		id := yamlread.Keys(v.Type().Elem())[identities[p.path]]
		for i := range v.Len() {
			one := p
			one.path = yamlread.Join(p.path, fmt.Sprint(v.Index(i).FieldByIndex(id)))
			w.entry(one, v.Index(i))
		}
	case v.Kind() == reflect.Map && p.among == yamlread.AmongSteps:
		for _, name := range v.MapKeys() {
			w.add(part{path: yamlread.Join(p.path, name.String()), among: p.among, value: v.MapIndex(name).Interface()})
		}
	// A hard key of an entry is there also with its default: without it, another member takes the entry for
	// one that this member lacks.
	case !reflect.DeepEqual(p.value, plain.Interface()), p.entry && p.among == yamlread.AmongHard:
		w.add(p)
	}
}

// entry adds an entry that another member may lack, and its keys.
func (w *walker) entry(p part, v reflect.Value) {
	around := p.among
	if around == yamlread.AmongSteps {
		around = yamlread.AmongHard
	}
	p.value = true
	w.add(p)
	w.section(p.path, around, true, v, reflect.Zero(v.Type()))
}

// hardDiffering returns the paths of the values in which two configurations differ that members need equal,
// of an entry only if both have it. auth comes first.
func hardDiffering(a, b *Config) (paths []string) {
	has := func(list []part, path string) (part, bool) {
		i := slices.IndexFunc(list, func(p part) bool { return p.path == path && p.among == yamlread.AmongHard })
		if i < 0 {
			return part{}, false
		}
		return list[i], true
	}
	one, other := a.parts(), b.parts()
	for _, p := range slices.Concat(one, other) {
		first, in := has(one, p.path)
		second, too := has(other, p.path)
		differ := in != too && !p.entry || in && too && !reflect.DeepEqual(first.value, second.value)
		if p.among == yamlread.AmongHard && differ && !slices.Contains(paths, p.path) {
			paths = append(paths, p.path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Shared describes what members compare of the configuration: a name and a keyed digest for each key
// whose value is not the default, in the form "auth.none=#1f2e3d4c ~policies=#5a6b7c8d …". Processes over one
// database must have equal values, except those whose name begins with ~, which may differ while a change is
// rolled out, and those with ?, which both processes must have to be compared. A character that the form
// needs is escaped as in a URL. A reload that was refused in part does not change the hard ones.
func (c *Config) Shared(key []byte) (string, error) {
	text := fmt.Sprintf("~schema=%d", store.Latest())
	for _, p := range c.parts() {
		name := strings.ReplaceAll(url.QueryEscape(p.path), "%2F", "/")
		switch {
		case p.among != yamlread.AmongHard:
			name = "~" + name
		case p.entry:
			name = "?" + name
		}
		value := p.value
		switch of := value.(type) {
		case policy.Config:
			value = c.rules()
		case map[string]upstream.Config: // without what other keys of the file, and programs, decide
			entries := maps.Clone(of)
			for name, u := range entries {
				u.Separate = false
				entries[name] = c.withoutPrinted(name, u)
			}
			value = entries
		}
		plain, err := json.Marshal(used(reflect.ValueOf(value)))
		if err != nil {
			return "", fmt.Errorf("compare %s with that of other processes: %w", p.path, err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(plain)
		text += " " + name + "=#" + hex.EncodeToString(mac.Sum(nil)[:8])
	}
	return text, nil
}

// rules returns the policies of each file in force.
func (c *Config) rules() any {
	if c.Both != nil {
		return []policy.Config{c.Both.Old.Policies, c.Both.Next.Policies}
	}
	return c.Policies
}

// Carried returns the policies of each file in force, for other processes.
func (c *Config) Carried() ([]byte, error) {
	files := []*Config{c}
	if c.Both != nil {
		files = []*Config{c.Both.Old, c.Both.Next}
	}
	var all []policy.Carried
	for _, of := range files {
		all = append(all, policy.Carried{Policies: of.Policies, Scopes: of.Auth.ScopeCapabilities})
	}
	return policy.Carry(all)
}

// used returns a value as JSON has it, without the fields that have the zero value of their type, and without what
// is empty. So a key of the file that a later version adds changes no digest until it is used. A pointer that is set
// stays: reuse_interval: 0 and enabled: false are not the defaults.
func used(v reflect.Value) any {
	switch _, plain := v.Interface().(json.Marshaler); {
	case plain, v.Type().Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return v.Interface()
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return used(v.Elem())
	case v.Kind() == reflect.Struct:
		fields := map[string]any{}
		addUsed(fields, v)
		return fields
	case v.Kind() == reflect.Map && !v.IsNil():
		members := map[string]any{}
		for _, name := range v.MapKeys() {
			if member := used(v.MapIndex(name)); !unused(v.MapIndex(name), member) {
				members[name.String()] = member
			}
		}
		return members
	case v.Kind() == reflect.Slice && !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8:
		elements := make([]any, v.Len()) // elements have a place, so all of them stay
		for i := range elements {
			elements[i] = used(v.Index(i))
		}
		return elements
	}
	return v.Interface()
}

// addUsed adds the fields of a struct, under the names that JSON gives them.
func addUsed(fields map[string]any, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch value := v.Field(i); {
		case name == "-" || !field.IsExported():
		case field.Anonymous && name == "" && value.Kind() == reflect.Struct:
			addUsed(fields, value)
		default:
			if of := used(value); !unused(value, of) {
				fields[cmp.Or(name, field.Name)] = of
			}
		}
	}
}

// unused reports whether a value, and what JSON has of it, are as if the file did not have the key. A type with
// a text of its own, such as a time, always has one.
func unused(v reflect.Value, of any) bool {
	switch of := of.(type) {
	case json.Marshaler, encoding.TextMarshaler:
		text, err := json.Marshal(of)
		return err == nil && (string(text) == "null" || string(text) == `""`)
	case map[string]any:
		return len(of) == 0 && v.Kind() != reflect.Pointer
	case []any:
		return len(of) == 0 && v.Kind() != reflect.Pointer
	}
	return v.IsZero()
}
