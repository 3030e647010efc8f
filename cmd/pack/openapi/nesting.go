package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"gopkg.in/yaml.v3"
)

// The library reads the text of an object again for each object around it. So its time is the sum of
// the bytes of all objects and arrays, each as often as it is nested.
const (
	maxNesting = 256       // levels; Junction rejects messages with more (limits.nesting)
	maxWork    = 512 << 20 // bytes times levels of one document, which take a minute at most
)

// weight is what a value of a document costs.
type weight struct {
	size, work int64
	levels     int
}

// nesting returns an error if a document is nested too deep. A text that cannot be parsed is no error:
// the library describes it better.
func nesting(text []byte) error {
	var w weight
	var err error
	if json.Valid(text) {
		w, err = weighJSON(text)
	} else {
		var root yaml.Node
		if yaml.Unmarshal(text, &root) != nil {
			return nil
		}
		w, err = weights{}.weigh(&root, 0)
	}
	if err == nil && w.work > maxWork {
		err = errTooMuch
	}
	return err
}

var errTooMuch = fmt.Errorf("its objects and arrays have more than %d MiB, counted at each level of nesting; move "+
	"nested schemas to components", maxWork>>20)

func tooDeep(line, column int) error {
	return fmt.Errorf("line %d, column %d: objects and arrays are nested more than %d levels deep; move a nested "+
		"schema to components, and refer to it with $ref", line, column, maxNesting)
}

// weighJSON weighs a valid JSON text.
func weighJSON(text []byte) (w weight, err error) {
	levels, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
			w.work += int64(levels)
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if levels++; levels > maxNesting {
				before := text[:i]
				return w, tooDeep(1+bytes.Count(before, []byte{'\n'}), i-bytes.LastIndexByte(before, '\n'))
			}
		case c == '}' || c == ']':
			levels--
		}
		w.work += int64(levels)
	}
	return w, nil
}

// weights has the weights of the anchors of a YAML document. An anchor counts at each alias, as in the JSON
// that the library makes of the document.
type weights map[*yaml.Node]weight

// weigh weighs a node that is inside of objects and arrays on so many levels.
func (all weights) weigh(n *yaml.Node, levels int) (weight, error) {
	if n.Kind == yaml.AliasNode {
		w, done := all[n.Alias]
		if !done || levels+w.levels > maxNesting { // one that is not done contains itself
			return weight{}, tooDeep(n.Line, n.Column)
		}
		return w, nil
	}
	w := weight{size: int64(len(n.Value) + 1)}
	container := n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode
	if container {
		levels++
	}
	if levels > maxNesting {
		return weight{}, tooDeep(n.Line, n.Column)
	}
	for _, inner := range n.Content {
		v, err := all.weigh(inner, levels)
		if err != nil {
			return weight{}, err
		}
		w.size, w.work, w.levels = w.size+v.size, w.work+v.work, max(w.levels, v.levels)
	}
	if container {
		w.work, w.levels = w.work+w.size, w.levels+1
	}
	if n.Anchor != "" {
		all[n] = w
	}
	if w.work > maxWork { // here, too, because anchors in anchors can exceed an int64
		return weight{}, errTooMuch
	}
	return w, nil
}
