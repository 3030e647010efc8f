package manifest

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// A decoder reads one file. It walks the nodes of yaml.v3 itself, so that unknown keys are
// mistakes and every mistake has a line. The types of Manifest limit the depth of the walk.
type decoder struct {
	file     string
	refs     expander
	problems Problems
	warnings Problems
	lines    yamlread.Lines // of keys and list elements, by path
	values   int            // nodes visited so far
	size     int            // bytes of their texts, and of the paths in lines
}

// maxTexts limits the texts of a manifest when its aliases are followed, and the paths of its keys.
const maxTexts = 16 * maxFile

// maxDepth limits the values in values whose depth no type limits.
const maxDepth = 64

func newDecoder(file string, o Options) *decoder {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil { // the working directory is gone
		dir = filepath.Dir(file)
	}
	return &decoder{file: file, refs: expander{dir: dir, Options: o}, lines: yamlread.Lines{}}
}

// custom is a value that reads its own YAML. It reports its mistakes to d.
type custom interface {
	decode(d *decoder, path string, n *yaml.Node)
}

// shaped is a value of package command with more than one form. Shape returns a pointer to what n
// is read into, or nil and a description of the expected forms.
type shaped interface {
	Shape(n *yaml.Node) (into any, want string)
}

// decode fills m. It reports whether validating m makes sense.
func (d *decoder) decode(text []byte, m *Manifest) bool {
	var doc, second yaml.Node
	r := yaml.NewDecoder(bytes.NewReader(text))
	switch err := r.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.at(1, "", "is empty; junction-pack init makes an example")
		return false
	case err != nil:
		d.syntax(err)
		return false
	}
	if err := r.Decode(&second); !errors.Is(err, io.EOF) {
		d.at(max(second.Line, 1), "", "has a second document after ---; keep one document in a file")
	}
	d.read("", doc.Content[0], m)
	if d.values > yamlread.MaxValues || d.size > maxTexts {
		d.problems = nil
		d.at(1, "", "has more than %d values, or %d MiB of keys and texts, when its aliases are followed; "+
			"use fewer aliases", yamlread.MaxValues, maxTexts>>20)
		return false
	}
	return true
}

// syntax reports text that is not YAML.
func (d *decoder) syntax(err error) {
	said, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if n, scanErr := fmt.Sscanf(said, "line %d:", &line); n == 1 && scanErr == nil {
		_, said, _ = strings.Cut(said, ": ")
	}
	d.at(line, "", "cannot be read as YAML near this line (%s); "+
		"put quotes around values with {{, :, # or @, and indent with spaces", said)
}

// enter counts a node and follows aliases. It returns nil if there are too many.
func (d *decoder) enter(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.values++; d.values > yamlread.MaxValues {
		return nil
	}
	if d.size += len(n.Value); d.size > maxTexts {
		return nil
	}
	return n
}

// line records the line of a key or a list element.
func (d *decoder) line(path string, n *yaml.Node) {
	if d.size += len(path); d.size <= maxTexts { // a long key is a part of many paths
		d.lines[path] = n.Line
	}
}

// read reads a value into what into points to.
func (d *decoder) read(path string, n *yaml.Node, into any) {
	d.value(path, n, reflect.ValueOf(into).Elem())
}

func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) {
	if n = d.enter(n); n == nil {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem())
		return
	}
	switch x := v.Addr().Interface().(type) {
	case custom:
		x.decode(d, path, n)
		return
	case shaped:
		if into, want := x.Shape(n); into != nil {
			d.read(path, n, into)
		} else {
			d.bad(path, "must be %s, not %s", want, kind(n))
		}
		return
	case *time.Duration:
		var err error
		if *x, err = time.ParseDuration(n.Value); n.Kind != yaml.ScalarNode || err != nil || *x <= 0 {
			d.bad(path, "must be a duration above 0, such as 500ms, 30s or 5m, not %s", prose.Quote(n.Value))
		}
		return
	case encoding.TextUnmarshaler:
		if err := x.UnmarshalText([]byte(n.Value)); n.Kind != yaml.ScalarNode || err != nil {
			d.bad(path, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(path, n, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Pointer {
			d.named(path, n, v)
		} else {
			d.list(path, n, v)
		}
	case reflect.Map:
		d.mapping(path, n, v)
	default:
		d.scalar(path, n, v)
	}
}

func (d *decoder) structure(path string, n *yaml.Node, v reflect.Value) {
	fields := yamlread.Keys(v.Type())
	for _, p := range d.pairs(path, n) {
		at := yamlread.Join(path, p.key)
		if i, known := fields[p.key]; known {
			d.value(at, p.value, v.FieldByIndex(i))
			continue
		}
		d.unknown(at, p.key, slices.Sorted(maps.Keys(fields)))
	}
}

func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	m := reflect.MakeMap(v.Type())
	for _, p := range d.pairs(path, n) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(yamlread.Join(path, p.key), p.value, elem)
		m.SetMapIndex(reflect.ValueOf(p.key), elem)
	}
	v.Set(m)
}

// named reads a mapping into a slice of pointers to structs, in the order of the file. The key goes
// into the field Name.
func (d *decoder) named(path string, n *yaml.Node, v reflect.Value) {
	for _, p := range d.pairs(path, n) {
		item := reflect.New(v.Type().Elem().Elem())
		item.Elem().FieldByName("Name").SetString(p.key)
		d.value(yamlread.Join(path, p.key), p.value, item.Elem())
		v.Set(reflect.Append(v, item))
	}
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.bad(path, "must be a list, such as [one, two], not %s", kind(n))
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.line(at, e)
		d.value(at, e, s.Index(i))
	}
	v.Set(s)
}

func (d *decoder) scalar(path string, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.ScalarNode || yamlread.Empty(n) {
		d.bad(path, "must be %s, not %s", map[reflect.Kind]string{reflect.String: "text",
			reflect.Bool: "true or false", reflect.Int: "a whole number"}[v.Kind()], kind(n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil || len(n.Value) < 4 {
			d.bad(path, "must be true or false, not %s", prose.Quote(n.Value))
		}
		v.SetBool(b)
	default: // an int
		i, err := strconv.Atoi(n.Value)
		if err != nil || i <= 0 {
			d.bad(path, "must be a whole number above 0, not %s", prose.Quote(n.Value))
		}
		v.SetInt(int64(i))
	}
}

// A pair is one entry of a mapping.
type pair struct {
	key   string
	value *yaml.Node
}

// pairs returns the entries of a mapping in their order, and records their lines. An empty value
// counts as an empty mapping. Entries of << come last, and do not replace others.
func (d *decoder) pairs(path string, n *yaml.Node) (ps []pair) {
	if yamlread.Empty(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.bad(path, "must be a mapping (key: value), not %s", kind(n))
		return nil
	}
	seen := map[string]bool{}
	take := func(k, v *yaml.Node) {
		seen[k.Value] = true
		d.line(yamlread.Join(path, k.Value), k)
		ps = append(ps, pair{k.Value, v})
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Tag == "!!merge":
			merged = append(merged, v)
		case k.Kind != yaml.ScalarNode:
			d.at(k.Line, path, "has a key that is %s; write plain text before the colon", kind(k))
		case seen[k.Value]:
			d.at(k.Line, yamlread.Join(path, k.Value), "is given a second time; keep one")
		default:
			take(k, v)
		}
	}
	for _, m := range merged {
		if m = d.enter(m); m == nil || m.Kind != yaml.MappingNode || m == n {
			d.bad(path, "must be one mapping after <<")
			continue
		}
		for i := 0; i+1 < len(m.Content); i += 2 {
			if k := m.Content[i]; k.Kind == yaml.ScalarNode && k.Tag != "!!merge" && !seen[k.Value] {
				take(k, m.Content[i+1])
			}
		}
	}
	return ps
}

// unknown reports an unknown key, with the most similar known key, or all known keys.
func (d *decoder) unknown(at, key string, known []string) {
	if other := foreign[key]; other != "" {
		d.bad(at, "unknown key; %s", other)
	} else if near := prose.Nearest(key, known); near != "" {
		d.bad(at, "unknown key; did you mean %s?", near)
	} else {
		d.bad(at, "unknown key; the keys here are %s", strings.Join(known, ", "))
	}
}

// foreign has the remedies for keys of other programs' files.
var foreign = map[string]string{
	"args":          "put the arguments into command: [program, arg1]",
	"cwd":           "did you mean dir?",
	"working_dir":   "did you mean dir?",
	"environment":   "did you mean env?",
	"inputSchema":   "did you mean parameters?",
	"input_schema":  "did you mean parameters?",
	"outputSchema":  "did you mean output_schema?",
	"input":         "did you mean stdin, or parameters?",
	"readOnlyHint":  "did you mean read_only?",
	"max_bytes":     "did you mean max_output?",
	"mcpServers":    "an MCP server is an upstream of Junction, not of a pack",
	"upstreams":     "an MCP server is an upstream of Junction, not of a pack",
	"script":        "write shell: true and command: ['text', \"{{value}}\"]",
	"type":          "remove it: the key command, http or prompt is the type",
	"arguments":     "did you mean parameters?",
	"exit_code":     "did you mean exit_codes?",
	"outputs":       "did you mean output?",
	"output_format": "did you mean output?",
}

// kind returns a description of n for messages.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping; put quotes around a value that begins with {"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return "nothing"
	}
	return yamlread.Kind(n)
}
