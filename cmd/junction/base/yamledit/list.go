package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Append adds an element, which is in the style { … }, to the list that a key of a section has. It
// creates the section and the list if they are missing.
func Append(text []byte, section, key, element string) ([]byte, error) {
	added := []Entry{{Block: key + ":\n  - " + element, Flow: key + ": [" + element + "]"}}
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := e.find(root, section, key)
	if errors.Is(err, ErrNoKey) {
		return Add(text, section, added)
	}
	if err != nil {
		return nil, err
	}
	list := p.value()
	switch {
	case list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle != 0:
		at, err := e.offset(list)
		if err != nil {
			return nil, err
		}
		if e.text[at] != '[' {
			return nil, fmt.Errorf("line %d: %s cannot be changed; edit it by hand", list.Line, key)
		}
		if n := emptyFlow(e.text[at:]); n > 0 && !p.flow() && list.Line == p.key().Line {
			// an empty list becomes a block, so that each element has its line
			text := e.insertLines(p.next, p.key().Column-1+2, []Entry{{Block: "- " + element}})
			return slices.Concat(bytes.TrimRight(text[:at], " "), text[at+n:]), nil
		}
		if len(list.Content) > 0 {
			element += ", "
		}
		return e.insert(at+1, element), nil
	case list.Kind == yaml.SequenceNode && len(list.Content) > 0:
		return e.insertLines(p.next, list.Column-1, []Entry{{Block: "- " + element}}), nil
	case isNull(list) && list.Value == "" && !p.flow():
		return e.insertLines(p.next, p.key().Column-1+2, []Entry{{Block: "- " + element}}), nil
	}
	return nil, fmt.Errorf("line %d: %s is not a list of its own; add the element by hand", list.Line, key)
}

// emptyFlow returns the length of the list without elements, on one line, that text begins with; 0 for
// another text.
func emptyFlow(text []byte) int {
	rest, ok := bytes.CutPrefix(text, []byte("["))
	rest = bytes.TrimLeft(rest, " ")
	if !ok || !bytes.HasPrefix(rest, []byte("]")) {
		return 0
	}
	return len(text) - len(rest) + 1
}

// RemoveElement removes an element of the list that a key of a section has, with the comment directly
// above it. The element must not be the only one.
func RemoveElement(text []byte, section, key string, index int) ([]byte, error) {
	e, root, err := parse(text)
	if err != nil {
		return nil, err
	}
	p, err := e.find(root, section, key)
	if err != nil {
		return nil, err
	}
	list := p.value()
	byHand := fmt.Errorf("line %d: an element of %s cannot be removed; edit the file by hand", list.Line, key)
	if list.Kind != yaml.SequenceNode || len(list.Content) < 2 || index >= len(list.Content) {
		return nil, byHand
	}
	if list.Style&yaml.FlowStyle != 0 {
		return e.cutFlow(list.Content[index], "an element of "+key)
	}
	indent := list.Column - 1
	first, next := list.Content[index].Line-1, p.next-1 // lines, counted from 0
	if index+1 < len(list.Content) {
		next = list.Content[index+1].Line - 1
	}
	if !strings.HasPrefix(e.line(first), strings.Repeat(" ", indent)+"-") {
		return nil, byHand
	}
	next = e.endOf(first+1, next, indent)
	return slices.Concat(e.text[:e.start(e.aboveComment(first, indent))], e.text[e.start(next):]), nil
}
