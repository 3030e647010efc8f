package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/raw"
)

// This file converts results and forms for protocol versions that lack their features: content
// blocks, structured content and form fields that a legacy client would reject.

// olderText returns the content of a result with its structured content as text, for legacy
// clients. It returns nil if the content has that text already.
func olderText(o raw.Object, structured []byte) []byte {
	blocks, err := o.Elements("content")
	if err != nil && err != raw.ErrAbsent {
		return nil
	}
	for _, block := range blocks {
		if kind, o := blockType(block); kind == "text" {
			if text, err := o.String("text"); err == nil && sameJSON([]byte(text), structured) {
				return nil
			}
		}
	}
	return jsonArray(append(slices.Clip(blocks), textBlock(string(structured))))
}

func textBlock(text string) []byte {
	return fmt.Appendf(nil, `{"type":"text","text":%s}`, raw.Quote(text))
}

// sameJSON reports whether two JSON texts differ only in white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func blockType(block []byte) (string, raw.Object) {
	o, err := raw.Parse(block)
	if err != nil {
		return "", o
	}
	kind, _ := o.String("type")
	return kind, o
}

// olderBlocks converts an array of content blocks, or of messages with one block each, for a
// version. A link becomes text, and audio an embedded resource. olderBlocks returns nil if there is
// no change.
func olderBlocks(items [][]byte, messages bool, version string) []byte {
	changed := false
	items = slices.Clone(items)
	for i, item := range items {
		block := item
		if messages {
			block, _ = raw.Get(item, "content")
		}
		text := olderBlock(block, version)
		if text == nil {
			continue
		}
		if messages {
			text, _ = raw.Set(item, text, "content") // cannot fail: item has this member
		}
		items[i], changed = text, true
	}
	if !changed {
		return nil
	}
	return jsonArray(items)
}

func jsonArray(items [][]byte) []byte {
	return fmt.Appendf(nil, "[%s]", bytes.Join(items, []byte{','}))
}

// olderBlock converts a block for a version; nil if the version knows the block's type.
func olderBlock(block []byte, version string) []byte {
	switch kind, o := blockType(block); {
	case kind == "resource_link":
		uri, _ := o.String("uri")
		text := uri
		if name, err := o.String("name"); err == nil {
			text = name + ": " + uri
		}
		return textBlock(text)
	case kind == "audio" && version < mcp.ProtocolVersion20250326:
		data, err := o.Get("data")
		media, bad := o.Get("mimeType")
		if err != nil || bad != nil {
			return nil
		}
		return fmt.Appendf(nil, `{"type":"resource","resource":{"uri":"audio:inline","mimeType":%s,"blob":%s}}`,
			media, data)
	}
	return nil
}

// olderSchema converts requestedSchema for versions before 2025-11-25: a choice with titles becomes
// enum and enumNames instead of oneOf. It returns nil if there is no change. Older versions have no
// choice of several values.
func olderSchema(params raw.Object) ([]byte, error) {
	schema, _ := params.Object("requestedSchema")
	properties, err := schema.Object("properties")
	if err != nil {
		return nil, nil // an invalid schema is left to the client
	}
	var edits []raw.Edit
	for m := range properties.All() {
		name, err := m.Name()
		if err != nil {
			return nil, err
		}
		property, err := raw.Parse(m.Value)
		if err != nil {
			continue
		}
		if kind, _ := property.String("type"); kind == "array" {
			return nil, fmt.Errorf("%.60q chooses several values", name)
		}
		choices, err := property.Get("oneOf")
		if err != nil {
			continue
		}
		values, titles, err := constants(choices)
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", name, err)
		}
		text, err := property.Splice(raw.Edit{Name: "oneOf"}, raw.Edit{Name: "enum", Value: values},
			raw.Edit{Name: "enumNames", Value: titles})
		if err != nil {
			return nil, fmt.Errorf("%.60q: %w", name, err)
		}
		edits = append(edits, raw.Edit{Name: name, Value: text})
	}
	if len(edits) == 0 {
		return nil, nil
	}
	text, err := properties.Splice(edits...)
	if err != nil {
		return nil, err
	}
	return schema.Splice(raw.Edit{Name: "properties", Value: text})
}

// constants converts [{"const":"a","title":"A"}] to ["a"] and ["A"].
func constants(choices []byte) (values, titles []byte, err error) {
	list, err := raw.Elements(choices)
	if err != nil {
		return nil, nil, err
	}
	var all, names [][]byte
	for _, item := range list {
		choice, err := raw.Parse(item)
		if err != nil {
			return nil, nil, err
		}
		value, err := choice.Get("const")
		if err != nil {
			return nil, nil, fmt.Errorf("a choice without const: %w", err)
		}
		title, err := choice.Get("title")
		if err != nil {
			title = value
		}
		all, names = append(all, value), append(names, title)
	}
	return jsonArray(all), jsonArray(names), nil
}
