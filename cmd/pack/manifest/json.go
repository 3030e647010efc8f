package manifest

import (
	"encoding/json"

	"junction/upstream/raw"
	"junction/upstream/yamlread"

	"gopkg.in/yaml.v3"
)

// json returns n as JSON. Members keep their order, and numbers their digits if JSON can have them.
func (d *decoder) json(path string, n *yaml.Node) json.RawMessage {
	return d.appendJSON(nil, path, n, 0)
}

func (d *decoder) appendJSON(b []byte, path string, n *yaml.Node, depth int) []byte {
	if n = d.Enter(n); n == nil || depth > maxDepth {
		if depth > maxDepth {
			d.bad(path, "is nested more than %d levels deep; flatten it", maxDepth)
		}
		return append(b, "null"...)
	}
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		for i, p := range d.pairs(path, n) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(raw.AppendQuote(b, p.Key), ':')
			b = d.appendJSON(b, yamlread.Join(path, p.Key), p.Value, depth+1)
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, e := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = d.appendJSON(b, path, e, depth+1)
		}
		return append(b, ']')
	}
	return d.appendScalar(b, path, n)
}

func (d *decoder) appendScalar(b []byte, path string, n *yaml.Node) []byte {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return append(b, "null"...)
	case "!!bool", "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(b, n.Value...)
		}
		var v any
		err := n.Decode(&v)
		text, jsonErr := json.Marshal(v)
		if err != nil || jsonErr != nil {
			d.bad(path, "%q cannot be written as JSON; put quotes around it", n.Value)
			return append(b, "null"...)
		}
		return append(b, text...)
	}
	return raw.AppendQuote(b, n.Value)
}

// FromYAML returns the YAML of another file of a pack, such as frontmatter, as JSON.
func FromYAML(file string, text []byte) (json.RawMessage, Problems) {
	d := newDecoder(file, Options{})
	n, _ := d.Parse(text)
	if n == nil {
		if len(d.Problems) == 0 {
			d.At(1, "", "is empty")
		}
		return nil, d.Problems
	}
	v := d.json("", n)
	d.TooLarge()
	return v, d.Problems
}
