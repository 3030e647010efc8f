package manifest

import (
	"encoding"
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

// A decoder reads one file. The types of Manifest limit the depth of the walk.
type decoder struct {
	yamlread.Reader
	refs     expander
	reading  *Tool // whose keys are read
	warnings Problems
}

// maxDepth limits the values in values whose depth no type limits.
const maxDepth = 64

func newDecoder(file string, o Options) *decoder {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil { // the working directory is gone
		dir = filepath.Dir(file)
	}
	d := &decoder{refs: expander{dir: dir, Options: o}}
	d.Reader = yamlread.Reader{File: file, Value: d.value,
		Unknown: func(path string, p yamlread.Pair, t reflect.Type) {
			known := slices.Collect(maps.Keys(yamlread.Keys(t)))
			if t == reflect.TypeFor[Tool]() {
				if d.action(path, p) {
					return
				}
				known = append(known, o.kinds.keys()...)
			}
			slices.Sort(known)
			d.unknown(yamlread.Join(path, p.Key), p.Key, known)
		}}
	return d
}

// custom is a value that reads its own YAML. It reports its mistakes to d.
type custom interface {
	decode(d *decoder, path string, n *yaml.Node)
}

// decode fills m. It reports whether validating m makes sense.
func (d *decoder) decode(text []byte, m *Manifest) bool {
	n, empty := d.Parse(text)
	if n == nil {
		if empty {
			d.At(1, "", "is empty; junction-pack init makes an example")
		}
		return false
	}
	d.read("", n, m)
	return !d.TooLarge()
}

// read reads a value into what into points to.
func (d *decoder) read(path string, n *yaml.Node, into any) {
	d.value(path, n, reflect.ValueOf(into).Elem())
}

// value reads n into v. The result says that a mistake inside n does not remove it from a mapping.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value) bool {
	if n = d.Enter(n); n == nil {
		return false
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(path, n, v.Elem())
	}
	switch x := v.Addr().Interface().(type) {
	case custom:
		x.decode(d, path, n)
		return true
	case yamlread.Shaped:
		return d.Shaped(path, n, x)
	case *time.Duration:
		var err error
		if *x, err = time.ParseDuration(n.Value); n.Kind != yaml.ScalarNode || err != nil || *x <= 0 {
			d.bad(path, "must be a duration above 0, such as 500ms, 30s or 5m, not %s", prose.Quote(n.Value))
		}
		return true
	case encoding.TextUnmarshaler:
		if err := x.UnmarshalText([]byte(n.Value)); n.Kind != yaml.ScalarNode || err != nil {
			d.bad(path, "%v", err)
		}
		return true
	}
	switch kind := v.Kind(); {
	case kind == reflect.Slice && v.Type().Elem().Kind() == reflect.Pointer:
		d.named(path, n, v)
	case kind == reflect.Struct, kind == reflect.Slice, kind == reflect.Map:
		return d.Walk(path, n, v)
	default:
		d.scalar(path, n, v)
	}
	return true
}

// named reads a mapping into a slice of pointers to structs, in the order of the file. The key goes
// into the field Name.
func (d *decoder) named(path string, n *yaml.Node, v reflect.Value) {
	for _, p := range d.pairs(path, n) {
		item := reflect.New(v.Type().Elem().Elem())
		item.Elem().FieldByName("Name").SetString(p.Key)
		d.value(yamlread.Join(path, p.Key), p.Value, item.Elem())
		v.Set(reflect.Append(v, item))
	}
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

// pairs returns the entries of a mapping in their order.
func (d *decoder) pairs(path string, n *yaml.Node) []yamlread.Pair {
	ps, _ := d.Pairs(path, n, "must be a mapping (key: value)")
	return ps
}

// unknown reports an unknown key, with the most similar known key, or all known keys.
func (d *decoder) unknown(at, key string, known []string) {
	if other := foreign[key]; key == "type" && len(d.refs.kinds) > 0 {
		d.bad(at, "unknown key; remove it: the key %s is the type", d.refs.kinds.Words("or"))
	} else if other != "" {
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
	"mcpServers":    "did you mean servers?",
	"upstreams":     "did you mean servers?",
	"script":        "write shell: true and command: ['text', \"{{value}}\"]",
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
	}
	return yamlread.Kind(n)
}
