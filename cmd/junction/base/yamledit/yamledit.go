// Package yamledit adds, changes and removes entries of a section of a YAML file as text, so that
// every other byte stays: comments, order, indentation and line ends.
//
// The caller has to validate the result: the package finds the place of a text, but does not
// interpret the text.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// An Entry is a key with its value, in both styles of YAML.
type Entry struct {
	Block string // lines without indentation, such as "a:\n  b: 1"
	Flow  string // an element of { … }, such as "a: {b: 1}"
}

// Add puts entries into the mapping that the key section of the root has, at its end. It creates
// the section at the end of the text if there is none. The entries must not exist.
func Add(text []byte, section string, entries []Entry) ([]byte, error) {
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := e.find(root, section)
	switch {
	case err == nil:
		if begin, end := e.emptyFlow(p); end > 0 {
			out := e.insertLines(p.next, p.key().Column-1+2, entries) // behind the brackets
			return slices.Concat(out[:begin], out[end:]), nil
		}
		return e.addTo(p, entries)
	case !errors.Is(err, ErrNoKey):
		return nil, err
	case root.Style&yaml.FlowStyle != 0:
		return nil, fmt.Errorf("the file is one { … } without %s; add that by hand", section)
	}
	return e.appendSection(section, entries), nil
}

// emptyFlow returns the offsets of a value { } of one line, with the space before it. end is 0 if the value is
// another one, or stands in { … } itself.
func (e *editor) emptyFlow(p place) (begin, end int) {
	value := p.value()
	if p.flow() || value.Kind != yaml.MappingNode || len(value.Content) > 0 {
		return 0, 0
	}
	begin, err := e.offset(value)
	if err != nil {
		return 0, 0
	}
	rest, opened := bytes.CutPrefix(e.text[begin:], []byte("{"))
	rest, closed := bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte("}"))
	if !opened || !closed || e.text[begin-1] != ' ' {
		return 0, 0
	}
	return begin - 1, len(e.text) - len(rest)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// editor holds a text and the offsets of its lines.
type editor struct {
	text    []byte
	lines   []int
	newline string
}

func newEditor(text []byte) *editor {
	e := &editor{text: text, newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	for i := 0; i < len(text); i++ {
		if i == 0 || text[i-1] == '\n' {
			e.lines = append(e.lines, i)
		}
	}
	return e
}

// addTo adds entries to the value of a key.
func (e *editor) addTo(p place, entries []Entry) ([]byte, error) {
	switch key, value := p.key(), p.value(); {
	case value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle != 0:
		at, err := e.offset(value)
		if err != nil {
			return nil, err
		}
		if n := bytes.IndexByte(e.text[at:], '{'); n >= 0 { // after an anchor
			at += n + 1
		}
		var list []string
		for _, entry := range entries {
			list = append(list, entry.Flow)
		}
		chunk := " " + strings.Join(list, ", ")
		if len(value.Content) > 0 {
			chunk += ","
		} else {
			chunk += " "
		}
		return e.insert(at, chunk), nil
	case value.Kind == yaml.MappingNode && len(value.Content) > 0:
		return e.insertLines(p.next, value.Content[0].Column-1, entries), nil
	case isNull(value):
		if value.Value != "" { // ~ or null, which the entries replace
			at, err := e.offset(value)
			if err != nil {
				return nil, err
			}
			e.text = slices.Concat(e.text[:at], bytes.Repeat([]byte(" "), len(value.Value)),
				e.text[at+len(value.Value):])
		}
		return e.insertLines(p.next, key.Column-1+2, entries), nil
	}
	return nil, fmt.Errorf("line %d: %s is not a mapping of its own; add the entries by hand", p.value().Line,
		p.key().Value)
}

// offset returns where a node begins.
func (e *editor) offset(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(e.lines) {
		return 0, fmt.Errorf("line %d was not found", n.Line)
	}
	at := e.lines[n.Line-1]
	if n.Line == 1 {
		at += len(e.text) - len(bytes.TrimPrefix(e.text, []byte("\xef\xbb\xbf")))
	}
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(e.text[at:])
		at += size
	}
	return at, nil
}

// insertLines adds entries at an indentation, after the last line before the line next that belongs
// to the mapping: comments with less indentation, and empty lines, belong to what follows.
func (e *editor) insertLines(next, indent int, entries []Entry) []byte {
	last := e.endOf(0, next-1, indent-1)
	return e.insert(e.start(last), e.block(indent, entries))
}

// endOf returns the line after the last one between first and next that belongs to a key or an
// element: empty lines at the end, and comments that are not indented deeper than indent, belong to
// what follows. Lines count from 0.
func (e *editor) endOf(first, next, indent int) int {
	for ; next > first; next-- {
		line := e.line(next - 1)
		content := strings.TrimLeft(line, " ")
		if strings.TrimSpace(line) != "" && (content[0] != '#' || len(line)-len(content) > indent) {
			break
		}
	}
	return next
}

// aboveComment returns the first line of the comment directly above a line, or that line.
func (e *editor) aboveComment(line, indent int) int {
	for line > 0 && strings.HasPrefix(e.line(line-1), strings.Repeat(" ", indent)+"#") {
		line--
	}
	return line
}

// start returns the offset of a line, counted from 0, or the end of the text.
func (e *editor) start(line int) int {
	if line < len(e.lines) {
		return e.lines[line]
	}
	return len(e.text)
}

// line returns a line, counted from 0, without its end.
func (e *editor) line(i int) string {
	return strings.TrimRight(string(e.text[e.start(i):e.start(i+1)]), "\r\n")
}

func (e *editor) appendSection(section string, entries []Entry) []byte {
	chunk := section + ":" + e.newline + e.block(2, entries)
	if len(bytes.TrimSpace(e.text)) > 0 {
		chunk = e.newline + chunk
	}
	at := len(e.text)
	if n := len(e.lines); n > 0 && strings.HasPrefix(e.line(n-1), "...") {
		at = e.lines[n-1]
	}
	return e.insert(at, chunk)
}

// block returns entries as whole lines.
func (e *editor) block(indent int, entries []Entry) string {
	var b strings.Builder
	for _, entry := range entries {
		for line := range strings.SplitSeq(entry.Block, "\n") {
			if line != "" {
				b.WriteString(strings.Repeat(" ", indent) + line)
			}
			b.WriteString(e.newline)
		}
	}
	return b.String()
}

// insert puts chunk into the text; whole lines begin on a line of their own.
func (e *editor) insert(at int, chunk string) []byte {
	if at > 0 && at == len(e.text) && e.text[at-1] != '\n' {
		chunk = e.newline + chunk
	}
	return slices.Concat(e.text[:at], []byte(chunk), e.text[at:])
}
