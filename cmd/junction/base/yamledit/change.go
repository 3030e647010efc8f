package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Remove removes a key of a section with its value and with the comment directly above it. A section
// without other keys becomes {}. The error is ErrNoKey if there is no such key.
func Remove(text []byte, section, name string) ([]byte, error) {
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := e.find(root, section)
	if err != nil {
		return nil, err
	}
	if entries := p.value(); len(entries.Content) != 2 || entries.Style&yaml.FlowStyle != 0 {
		return remove(text, true, section, name)
	}
	at, err := e.offset(p.key())
	if err != nil {
		return nil, err
	}
	at += bytes.IndexByte(text[at:], ':') + 1 // the name of a section has none
	line, _, _ := strings.Cut(string(text[at:]), "\n")
	if line = strings.TrimSpace(line); line != "" && line[0] != '#' { // an anchor or a tag
		return nil, fmt.Errorf("line %d: %s is the only key there; edit the file by hand", p.key().Line, name)
	}
	out, err := remove(text, true, section, name)
	if err != nil {
		return nil, err
	}
	return slices.Concat(out[:at], []byte(" {}"), out[at:]), nil
}

// Empty reports whether a section is {}.
func Empty(text []byte, section string) bool {
	e, root, err := parse(text)
	if err != nil {
		return false
	}
	p, err := e.find(root, section)
	return err == nil && p.value().Kind == yaml.MappingNode && len(p.value().Content) == 0
}

// RemoveSection removes a section with its value. The comments above it stay.
func RemoveSection(text []byte, section string) ([]byte, error) {
	return remove(text, false, section)
}

// Unset removes a key of an entry of a section. All comments stay. The key must not be the only one
// of the entry.
func Unset(text []byte, section, name, key string) ([]byte, error) {
	return remove(text, false, section, name, key)
}

// Set gives a key of an entry of a section a value, which is a plain scalar. A key that the entry
// does not have is added.
func Set(text []byte, section, name, key, value string) ([]byte, error) {
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	entry, err := e.find(root, section, name)
	if err != nil {
		return nil, err
	}
	at, err := e.find(root, section, name, key)
	if errors.Is(err, ErrNoKey) {
		k := key + ": " + value
		return e.addTo(entry, []Entry{{Block: k, Flow: k}})
	}
	if err != nil {
		return nil, err
	}
	old := at.value()
	begin, err := e.offset(old)
	if err != nil {
		return nil, err
	}
	raw := old.Value
	if old.Style&yaml.DoubleQuotedStyle != 0 {
		raw = `"` + raw + `"`
	} else if old.Style&yaml.SingleQuotedStyle != 0 {
		raw = "'" + raw + "'"
	}
	if old.Kind != yaml.ScalarNode || raw == "" || !bytes.HasPrefix(e.text[begin:], []byte(raw)) {
		return nil, fmt.Errorf("line %d: the value of %s cannot be replaced; edit it by hand", old.Line, key)
	}
	return slices.Concat(e.text[:begin], []byte(value), e.text[begin+len(raw):]), nil
}

var (
	ErrNoKey   = errors.New("there is no such key")
	ErrOnlyKey = errors.New("the only key there")
)

// place is a key in a mapping. Its value ends before the line next.
type place struct {
	parent *yaml.Node
	index  int // of the key in parent.Content
	next   int
}

func (p place) key() *yaml.Node   { return p.parent.Content[p.index] }
func (p place) value() *yaml.Node { return p.parent.Content[p.index+1] }

// flow reports whether the key is in { … }.
func (p place) flow() bool { return p.parent.Style&yaml.FlowStyle != 0 }

// parse returns the editor of a text and its root mapping, which is empty for a text without values.
func parse(text []byte) (*editor, *yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, nil, err
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	if len(doc.Content) > 0 && !isNull(doc.Content[0]) {
		root = doc.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, nil, errors.New("the file is not a mapping")
	}
	return newEditor(text), root, nil
}

// find returns the last of keys, each of which is in the mapping of the one before.
func (e *editor) find(root *yaml.Node, keys ...string) (p place, err error) {
	p = place{next: e.end()}
	node := root
	for _, key := range keys {
		if node.Kind != yaml.MappingNode {
			return p, fmt.Errorf("line %d: the value is not a mapping of its own; edit it by hand", node.Line)
		}
		p.parent, p.index = node, -1
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				p.index = i
				break
			}
		}
		if p.index < 0 {
			return p, fmt.Errorf("%s: %w", key, ErrNoKey)
		}
		if !p.flow() && p.index+2 < len(node.Content) {
			p.next = node.Content[p.index+2].Line
		}
		node = p.value()
	}
	return p, nil
}

// end returns the number of the line after the document.
func (e *editor) end() int {
	for i := range e.lines {
		if strings.HasPrefix(e.line(i), "...") {
			return i + 1
		}
	}
	return len(e.lines) + 1
}

// remove removes the last of keys. comment says whether the comment directly above it goes, too; only then
// it may be the only key there.
func remove(text []byte, comment bool, keys ...string) ([]byte, error) {
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := e.find(root, keys...)
	switch {
	case err != nil:
		return nil, err
	case len(p.parent.Content) == 2 && !comment && (len(keys) > 1 || p.flow()): // else {} or an empty file is left
		return nil, fmt.Errorf("line %d: %s is %w; edit the file by hand", p.key().Line, keys[len(keys)-1],
			ErrOnlyKey)
	case p.flow():
		return e.cutFlow(p.key(), p.key().Value)
	}
	return e.cutLines(p, comment)
}

// cutLines removes the lines of a key of a block mapping, with the comment directly above if comment
// is set.
func (e *editor) cutLines(p place, comment bool) ([]byte, error) {
	first, last, err := e.linesOf(p)
	if err != nil {
		return nil, err
	}
	if comment {
		first = e.aboveComment(first, p.key().Column-1)
	}
	blank := func(i int) bool { return i >= 0 && i < len(e.lines) && strings.TrimSpace(e.line(i)) == "" }
	if blank(first-1) && blank(last) { // one blank line is enough
		last++
	}
	return slices.Concat(e.text[:e.start(first)], e.text[e.start(last):]), nil
}

// linesOf returns the first line of a key of a block mapping, and the line after its value. Both count
// from 0. Comments after the value that are not indented deeper than the key belong to what follows.
func (e *editor) linesOf(p place) (first, next int, err error) {
	key := p.key()
	indent := key.Column - 1
	first = key.Line - 1
	if p.flow() || strings.TrimLeft(e.line(first)[:min(indent, len(e.line(first)))], " ") != "" {
		return 0, 0, fmt.Errorf("line %d: %s does not begin its line; edit the file by hand", key.Line, key.Value)
	}
	return first, e.endOf(first+1, p.next-1, indent), nil
}

// cutFlow removes a key of { … }, with one comma.
func (e *editor) cutFlow(element *yaml.Node, name string) ([]byte, error) {
	begin, err := e.offset(element)
	if err != nil {
		return nil, err
	}
	end := e.endOfFlow(begin)
	if end < 0 {
		return nil, fmt.Errorf("line %d: the end of %s was not found; edit the file by hand", element.Line, name)
	}
	if e.text[end] == ',' {
		for end++; end < len(e.text) && e.text[end] == ' '; end++ {
		}
		return slices.Concat(e.text[:begin], e.text[end:]), nil
	}
	end = begin + len(bytes.TrimRight(e.text[begin:end], " \t\r\n"))
	if before := bytes.TrimRight(e.text[:begin], " \t\r\n"); bytes.HasSuffix(before, []byte(",")) {
		begin = len(before) - 1
	}
	return slices.Concat(e.text[:begin], e.text[end:]), nil
}

// endOfFlow returns the offset of the comma or the bracket that ends an element of { … } or [ … ], or
// -1.
func (e *editor) endOfFlow(at int) int {
	depth, fresh := 0, true // fresh: a quote would begin a scalar here
	for i := at; i < len(e.text); i++ {
		c := e.text[i]
		switch {
		case c == '"' && fresh, c == '\'' && fresh:
			if i = e.endOfQuote(i); i < 0 {
				return -1
			}
		case c == '#' && (i == 0 || strings.IndexByte(" \t\n", e.text[i-1]) >= 0):
			n := bytes.IndexByte(e.text[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n
		case c == '[', c == '{':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']'):
			return i
		case c == ']', c == '}':
			depth--
		}
		fresh = strings.IndexByte(" \t\r\n,:[{", c) >= 0
	}
	return -1
}

// endOfQuote returns the offset of the quote that closes the one at i, or -1.
func (e *editor) endOfQuote(i int) int {
	quote := e.text[i]
	for i++; i < len(e.text); i++ {
		switch {
		case quote == '"' && e.text[i] == '\\':
			i++
		case e.text[i] != quote:
		case quote == '\'' && i+1 < len(e.text) && e.text[i+1] == '\'':
			i++
		default:
			return i
		}
	}
	return -1
}

// Lines returns the lines of a key of a section with its value, without the indentation of the key.
// The key must begin its line.
func Lines(text []byte, section, name string) (string, error) {
	e, root, err := parse(text)
	if err != nil {
		return "", err
	}
	p, err := e.find(root, section, name)
	if err != nil {
		return "", err
	}
	first, last, err := e.linesOf(p)
	if err != nil {
		return "", err
	}
	var lines []string
	for i := first; i < last; i++ {
		line := e.line(i)
		lines = append(lines, line[min(p.key().Column-1, len(line)):])
	}
	return strings.Join(lines, "\n"), nil
}
