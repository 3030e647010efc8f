package pack

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
	"junction/proxy/schema"
	"junction/upstream/raw"
)

// results makes the results of one tool.
type results struct {
	tool       *manifest.Tool
	definition json.RawMessage // the output schema for clients; nil if there is none
	wrapped    bool            // the output is the member result of the structured content
	validator  schema.Validator
	text       []byte // a definition whose input schema has the output schema, for validator
}

// newResults prepares the output schema. Structured content is an object in MCP, so that other
// values become its member result.
func newResults(t *manifest.Tool) *results {
	r := &results{tool: t}
	if t.OutputSchema == nil {
		return r
	}
	var root struct{ Type any }
	json.Unmarshal(t.OutputSchema, &root) // anything but the word object is wrapped
	r.definition = json.RawMessage(t.OutputSchema)
	if r.wrapped = root.Type != "object"; r.wrapped {
		r.definition = fmt.Appendf(nil, `{"type":"object","properties":{"result":%s},"required":["result"]}`,
			t.OutputSchema)
	}
	r.text = fmt.Appendf(nil, `{"inputSchema":%s}`, r.definition)
	return r
}

// result returns the result for an output of a form: text, json, or a media type. cut means that the output was
// longer. What is longer than max_output is cut, or an error.
func (r *results) result(data []byte, cut bool, form string) (*mcp.CallToolResult, error) {
	if most := int(r.tool.MaxOutput); !cut && len(data) > most {
		if !r.tool.CutsOutput() {
			return nil, fmt.Errorf("the output of %s has %d bytes, more than its limit of %d (max_output); "+
				"ask for less", r.tool.Name, len(data), most)
		}
		data, cut = data[:most], true
	}
	if cut {
		data = marked(data, r.tool.Limits)
	}
	switch kind, _, _ := mime.ParseMediaType(form); {
	case form == "" || form == string(manifest.OutputText):
		return mcp.NewToolResultText(textOf(data)), nil
	case form == string(manifest.OutputJSON):
		return r.structured(data)
	default:
		return &mcp.CallToolResult{Content: []mcp.Content{r.file(data, kind)}}, nil
	}
}

// answer returns the result for the response of an API. The manifest decides its form, otherwise the
// response's media type. Without both it is text.
func (r *results) answer(a *web.Response) (*mcp.CallToolResult, error) {
	form := string(r.tool.Output)
	switch {
	case form != "":
	case len(a.Body) == 0:
		return mcp.NewToolResultText(fmt.Sprintf("(status %d, no content)", a.Status)), nil
	case web.IsJSON(a.Type):
		form = string(manifest.OutputJSON)
	case strings.HasPrefix(a.Type, "text/") || a.Type == "" || a.Type == "application/xml" ||
		strings.HasSuffix(a.Type, "+xml"):
	default:
		form = a.Type
	}
	return r.result(a.Body, false, form)
}

// marked returns the beginning of a text that was cut, with a marker after it.
func marked(b []byte, limits manifest.Limits) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ { // the last character may be incomplete
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				b = b[:len(b)-n]
			}
			break
		}
	}
	b = bytes.Clone(bytes.TrimSuffix(b, []byte("\n")))
	return fmt.Appendf(b, "\n[cut: the output has more than %d bytes (max_output); ask for less, or for "+
		"another part]", limits.MaxOutput)
}

// textOf returns the output as text. An empty output is no failure.
func textOf(b []byte) string {
	if text := strings.ToValidUTF8(string(b), "\uFFFD"); strings.TrimSpace(text) != "" {
		return text
	}
	return "(no output)"
}

// file returns an image, audio, or an embedded resource.
func (r *results) file(data []byte, kind string) mcp.Content {
	uri, encoded := "pack:///"+r.tool.Name+"/output", base64.StdEncoding.EncodeToString(data)
	switch group, _, _ := strings.Cut(kind, "/"); group {
	case "image":
		return mcp.NewImageContent(encoded, kind)
	case "audio":
		return mcp.NewAudioContent(encoded, kind)
	case "text":
		return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: kind,
			Text: strings.ToValidUTF8(string(data), "\uFFFD")})
	}
	return mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: uri, MIMEType: kind, Blob: encoded})
}

// structured returns the JSON output, if it fits the schema.
func (r *results) structured(data []byte) (*mcp.CallToolResult, error) {
	data = bytes.TrimSpace(data)
	if _, err := schema.DecodeOnce(data); err != nil {
		return nil, fmt.Errorf("the output of %s is no JSON (%v); it begins with:\n%s",
			r.tool.Name, err, beginning(data))
	}
	content := data
	if r.wrapped || data[0] != '{' {
		content = fmt.Appendf(nil, `{"result":%s}`, data)
	}
	if r.text != nil {
		object, err := raw.Parse(content)
		if err != nil {
			return nil, fmt.Errorf("the output of %s cannot be used: %v", r.tool.Name, err)
		}
		// the steps of the check are bounded, so it needs no context
		problems, err := r.validator.Check(context.Background(), r.text, object, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("the output of %s cannot be checked: %w", r.tool.Name, err)
		}
		if len(problems) > 0 {
			return nil, fmt.Errorf("the output of %s does not fit its output_schema:\n- %s",
				r.tool.Name, strings.Join(problems, "\n- "))
		}
	}
	result := mcp.NewToolResultText(string(data))
	result.RawStructuredContent = content
	result.StructuredContent = json.RawMessage(content)
	return result, nil
}

// beginning returns the first part of an output as text.
func beginning(b []byte) string {
	const shown = 500
	return strings.ToValidUTF8(string(b[:min(len(b), shown)]), "\uFFFD")
}
