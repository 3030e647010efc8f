package proxy

import (
	"bytes"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// This file holds what a result must not have for a legacy client, because the version of its
// session does not know it: unknown members are harmless there, unknown types of content are not.

// legacyResult makes what a legacy client reads of a result. It is the upstream's own but for what
// the client's version does not have.
func (s *Server) legacyResult(x *exchange, r upstream.Result) (result, error) {
	var edits []raw.Edit
	content := "content" // the member that has blocks of content
	switch mcp.MCPMethod(x.msg.Method) {
	case mcp.MethodToolsCall:
		structured, err := r.Get("structuredContent")
		// Only objects before 2026-07-28 (SEP-2106). A legacy server's other values stay where its
		// outputSchema has stayed.
		if err == nil && structured[0] != '{' && (x.target.Backend.Catalog().Era == upstream.EraModern ||
			x.target.WithoutOutput()) {
			edits = append(edits, raw.Edit{Name: "structuredContent"})
			if text := withText(r.Object, structured); text != nil {
				edits = append(edits, raw.Edit{Name: "content", Value: text})
			}
		}
	case mcp.MethodPromptsGet:
		content = "messages"
	default:
		return result{body: r.Text()}, nil
	}
	if x.session.version < mcp.ProtocolVersion20250618 && len(edits) < 2 {
		blocks, err := r.Elements(content)
		if err == nil {
			if text := olderBlocks(blocks, content == "messages", x.session.version); text != nil {
				edits = append(edits, raw.Edit{Name: content, Value: text})
			}
		}
	}
	if len(edits) == 0 {
		return result{body: r.Text()}, nil
	}
	text, err := r.Splice(edits...)
	if err != nil {
		return result{}, x.invalid(err.Error())
	}
	return result{body: text}, nil
}

// withText returns the content of a result with its structured content as text, which is all that a
// client of the legacy era sees of it; nil when the server has said it in words itself.
func withText(o raw.Object, structured []byte) []byte {
	blocks, err := o.Elements("content")
	if err != nil && err != raw.ErrAbsent {
		return nil
	}
	b := []byte{'['}
	for _, block := range blocks {
		if kind, o := blockType(block); kind == "text" {
			if text, err := o.String("text"); err == nil && sameJSON([]byte(text), structured) {
				return nil
			}
		}
		b = append(append(b, block...), ',')
	}
	return append(raw.AppendQuote(append(b, `{"type":"text","text":`...), string(structured)), "}]"...)
}

// sameJSON reports whether two texts are the same JSON but for white space.
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

// olderBlocks returns an array of content blocks, or of messages with one block each, without the
// types that the version does not know: a link becomes text, and sound an embedded resource. nil
// means that there is nothing to change.
func olderBlocks(items [][]byte, messages bool, version string) []byte {
	changed := false
	b := []byte{'['}
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		block := item
		if messages {
			block, _ = raw.Get(item, "content")
		}
		if text := olderBlock(block, version); text != nil {
			changed = true
			if messages {
				text, _ = raw.Set(item, text, "content") // it was found there
			}
			item = text
		}
		b = append(b, item...)
	}
	if !changed {
		return nil
	}
	return append(b, ']')
}

// olderBlock returns a block that the version knows in place of one that it does not; nil for one
// that it knows.
func olderBlock(block []byte, version string) []byte {
	switch kind, o := blockType(block); {
	case kind == "resource_link":
		uri, _ := o.String("uri")
		text := uri
		if name, err := o.String("name"); err == nil {
			text = name + ": " + uri
		}
		return append(raw.AppendQuote([]byte(`{"type":"text","text":`), text), '}')
	case kind == "audio" && version < mcp.ProtocolVersion20250326:
		data, err := o.Get("data")
		media, bad := o.Get("mimeType")
		if err != nil || bad != nil {
			return nil
		}
		b := append([]byte(`{"type":"resource","resource":{"uri":"audio:inline","mimeType":`), media...)
		return append(append(append(b, `,"blob":`...), data...), "}}"...)
	}
	return nil
}
