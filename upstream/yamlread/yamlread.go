// Package yamlread reads YAML strictly: a file of the configuration, or the manifest of a pack. Every
// mistake has its line, the path of its value, and a remedy.
//
// reader.go walks the nodes of yaml.v3 into the types of a decoder, which reads the single values:
// the configuration resolves references, keeps their values out of messages, and reads disabled
// upstreams leniently; manifests have several forms for one value. syntax.go finds the reason why a
// text is not YAML.
package yamlread

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/prose"
)

// MaxValues limits the nodes of one file, because aliases can make a small file expand to a large
// one.
const MaxValues = 100_000

// Problem is one mistake in a file, or one warning: its place, and in Text the mistake and the
// remedy. Text may quote the file, but never the value of a reference. The validators of a section,
// such as policies, leave File and Line empty: their Path is below the section.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`           // 1 is the first
	Path string `json:"path,omitempty"` // such as upstreams.github.url; empty for the whole file
	Text string `json:"text"`
}

// String returns FILE:LINE: PATH: TEXT in one line.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, prose.OneLine(p.Text))
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, prose.OneLine(p.Path), prose.OneLine(p.Text))
}

// Problems are all mistakes in a file, in the order of their lines. Problems that are returned as
// an error are never empty.
type Problems []Problem

// Error returns one mistake per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sort sorts by line and removes adjacent duplicates. Mistakes of one line keep their order.
func (ps *Problems) Sort() {
	slices.SortStableFunc(*ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	*ps = slices.Compact(*ps)
}

// Lines has the line of each key and list element of a file, by its path.
type Lines map[string]int

// At returns the line of path, or of its nearest parent.
func (l Lines) At(path string) int {
	for path != "" {
		if n := l[path]; n > 0 {
			return n
		}
		path = Above(path)
	}
	return 1
}

// Above returns the parent of path; "" is the whole file.
func Above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// Join appends a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Expand returns s with each ${body} replaced by the result of resolve; $${ stands for the text ${.
// closed is false if a ${ has no }: the result then ends before it.
func Expand(s string, resolve func(body string) string) (out string, closed bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String(), true
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(literal + "${")
			s = after
			continue
		}
		b.WriteString(before)
		body, rest, ok := cutBody(after)
		if !ok {
			return b.String(), false
		}
		b.WriteString(resolve(body))
		s = rest
	}
}

// Exec begins the body of a reference to a program, whose words follow as a list of YAML.
const Exec = "exec:"

// cutBody cuts the body of a reference at its }. The words of a program may have one in quotes.
func cutBody(s string) (body, rest string, ok bool) {
	if !strings.HasPrefix(s, Exec) {
		return strings.Cut(s, "}")
	}
	var quote byte // 0 outside of quotes
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '}':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// IsVariable reports whether s is a valid name of an environment variable.
func IsVariable(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && strings.IndexFunc(s, func(r rune) bool {
		return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0
}

// Empty reports whether n is null: a key without a value, or with null.
func Empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" && (n.Value == "" || n.Style == 0)
}

// Kind returns a description of n for messages.
func Kind(n *yaml.Node) string {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "text"
}

// Keys returns the index of each field of the struct type t by its key in the file. It includes the
// fields of embedded structs, which are inline.
func Keys(t reflect.Type) map[string][]int {
	keys := map[string][]int{}
	for _, field := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "" && key != "-" {
			keys[key] = field.Index
		}
	}
	return keys
}
