package format

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"junction/cmd/junction/base/yamledit"
)

// YAML is YAML with one document. The servers are in a section: a mapping that a key of the root has.
type YAML struct{}

// maxYAML bounds the texts of YAML: the parser needs a multiple of their size.
const maxYAML = 1 << 20

// Decode implements Format.
func (YAML) Decode(body []byte) (any, error) {
	root, _, err := decodeYAML(body)
	return root, err
}

// decodeYAML returns what a text means, and its root node; nil for a text without a value.
func decodeYAML(body []byte) (map[string]any, *yaml.Node, error) {
	if len(body) > maxYAML {
		return nil, nil, &SyntaxError{Err: fmt.Errorf("is larger than %d MiB", maxYAML>>20)}
	}
	if !utf8.Valid(body) {
		return nil, nil, &SyntaxError{Line: lineOfBadUTF8(body),
			Err: errors.New("is not UTF-8 text; save the file as UTF-8")}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return nil, nil, yamlError(err)
	}
	var tree any
	if err := doc.Decode(&tree); err != nil { // it limits what aliases stand for
		return nil, nil, yamlError(err)
	}
	if tree == nil {
		return map[string]any{}, nil, nil
	}
	root, ok := withTextKeys(tree).(map[string]any)
	if !ok {
		return nil, nil, &SyntaxError{Err: errors.New("has no mapping at the root")}
	}
	return root, doc.Content[0], nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?line (\d+): `)

// yamlError takes the line out of an error of the parser.
func yamlError(err error) error {
	reason, _, _ := strings.Cut(err.Error(), "\n  line ")
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		reason, _, _ = strings.Cut(strings.TrimPrefix(err.Error(), m[0]), "\n")
		return &SyntaxError{Line: line, Err: errors.New("is not YAML: " + reason)}
	}
	return &SyntaxError{Err: errors.New("is not YAML: " + strings.TrimPrefix(reason, "yaml: "))}
}

// withTextKeys returns a decoded value whose mappings have texts as keys, as those of JSON.
func withTextKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = withTextKeys(value)
		}
	case map[any]any:
		m := map[string]any{}
		for key, value := range v {
			m[fmt.Sprint(key)] = withTextKeys(value)
		}
		return m
	case []any:
		for i, value := range v {
			v[i] = withTextKeys(value)
		}
	}
	return v
}

// Servers implements Format.
func (YAML) Servers(text []byte, keys []string) ([]Server, error) {
	section, err := sectionOf(keys)
	if err != nil {
		return nil, err
	}
	_, body := split(text)
	root, node, err := decodeYAML(body)
	if err != nil || root[section] == nil {
		return nil, err
	}
	servers, ok := root[section].(map[string]any)
	if !ok {
		return nil, &SyntaxError{Err: fmt.Errorf("has no mapping at %s", section)}
	}
	list, seen := []Server{}, map[string]bool{}
	for _, key := range keysOf(node, section) {
		fields, is := servers[key.Value]
		if !is || seen[key.Value] {
			continue
		}
		seen[key.Value] = true
		s := Server{Name: key.Value, Line: key.Line}
		s.Fields, _ = fields.(map[string]any)
		list = append(list, s)
	}
	return list, nil
}

// keysOf returns the keys of the mapping that a key of the root has.
func keysOf(root *yaml.Node, section string) (keys []*yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		value := root.Content[i+1]
		if root.Content[i].Value != section || value.Kind != yaml.MappingNode {
			continue
		}
		for j := 0; j+1 < len(value.Content); j += 2 {
			keys = append(keys, value.Content[j])
		}
	}
	return keys
}

// sectionOf returns the only one of keys.
func sectionOf(keys []string) (string, error) {
	if len(keys) != 1 {
		return "", fmt.Errorf("the servers are below %s, and not in a section", strings.Join(keys, "."))
	}
	return keys[0], nil
}

// Add implements Format.
func (f YAML) Add(text []byte, keys []string, name string, entry Object) ([]byte, error) {
	var b strings.Builder
	writeMapping(&b, "", Object{{name, entry}})
	return f.insert(text, keys, name, strings.TrimSuffix(b.String(), "\n"), entry.Tree())
}

// insert adds the lines of a server, which mean want.
func (f YAML) insert(text []byte, keys []string, name, block string, want map[string]any) ([]byte, error) {
	section, err := sectionOf(keys)
	if err != nil {
		return nil, err
	}
	return edit(f, text, keys, name, want, func(body []byte) ([]byte, error) {
		entry := yamledit.Entry{Block: block, Flow: Literal(name) + ": " + Literal(want)}
		return yamledit.Add(body, section, []yamledit.Entry{entry})
	})
}

// writeMapping writes a mapping in lines of their own.
func writeMapping(b *strings.Builder, indent string, o Object) {
	for _, m := range o {
		key := m.Key
		if !bareKey.MatchString(key) {
			key = Literal(key)
		}
		if inner, ok := m.Value.(Object); ok {
			b.WriteString(indent + key + ":\n")
			writeMapping(b, indent+"  ", inner)
		} else {
			b.WriteString(indent + key + ": " + Literal(m.Value) + "\n")
		}
	}
}

// Remove implements Format.
func (f YAML) Remove(text []byte, keys []string, name string) ([]byte, error) {
	section, err := sectionOf(keys)
	if err != nil {
		return nil, err
	}
	return edit(f, text, keys, name, nil, func(body []byte) ([]byte, error) {
		return yamledit.Remove(body, section, name)
	})
}

// Block is the lines of the server without the indentation of its name. A server in another form
// than lines of its own is written anew.
func (f YAML) Block(text []byte, keys []string, s Server) string {
	section, err := sectionOf(keys)
	if err != nil {
		return ""
	}
	_, body := split(text)
	if block, err := yamledit.Lines(body, section, s.Name); err == nil &&
		reflect.DeepEqual(f.serverIn(block, s.Name), s.Fields) {
		return block
	}
	anew, err := yaml.Marshal(map[string]any{s.Name: s.Fields})
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(anew))
}

// Restore implements Format.
func (f YAML) Restore(text []byte, keys []string, name, block string) ([]byte, error) {
	want := f.serverIn(block, name)
	if want == nil {
		return nil, errNoBlock
	}
	return f.insert(text, keys, name, block, want)
}

// serverIn returns the server of a block; nil if it is not there.
func (YAML) serverIn(block, name string) map[string]any {
	root, _, err := decodeYAML([]byte(block))
	if err != nil {
		return nil
	}
	fields, _ := root[name].(map[string]any)
	return fields
}
