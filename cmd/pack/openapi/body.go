package openapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/template"
	"junction/cmd/pack/web"
)

// body is the body of a request: the argument body.
type body struct {
	key      string
	kind     string // the media type
	required bool
	encoding map[string]openapi3.Encoding // of the properties of a form
}

const (
	kindForm      = "application/x-www-form-urlencoded"
	kindMultipart = "multipart/form-data"
)

// newBody chooses the media type: JSON, then forms, then text, then any other one.
func newBody(b *openapi3.RequestBody, taken map[string]any) (*body, error) {
	kinds := slices.Sorted(maps.Keys(b.Content))
	if len(kinds) == 0 {
		return nil, nil
	}
	choice := kinds[0]
	for _, is := range []func(string) bool{web.IsJSON, func(k string) bool { return k == kindForm },
		func(k string) bool { return k == kindMultipart },
		func(k string) bool { return strings.HasPrefix(k, "text/") }} {
		if i := slices.IndexFunc(kinds, func(k string) bool { return is(plain(k)) }); i >= 0 {
			choice = kinds[i]
			break
		}
	}
	if plain(choice) == "" {
		return nil, fmt.Errorf("its body has the media type %q", choice)
	}
	made := &body{key: argument("body", "request", taken), kind: choice, required: b.Required,
		encoding: map[string]openapi3.Encoding{}}
	if strings.Contains(choice, "*") {
		made.kind = "application/octet-stream"
	}
	if m := b.Content[choice]; m != nil {
		for name, e := range m.Encoding {
			if e != nil {
				made.encoding[name] = *e
			}
		}
	}
	return made, nil
}

// plain returns a media type without parameters.
func plain(kind string) string {
	text, _, err := mime.ParseMediaType(kind)
	if err != nil && text == "" {
		text, _, _ = strings.Cut(kind, ";")
	}
	return strings.TrimSpace(text)
}

// file is the schema of binary content.
func file() map[string]any {
	return map[string]any{"anyOf": []any{
		map[string]any{"type": "string", "description": "The content, as text."},
		map[string]any{"type": "object", "required": []any{"base64"}, "additionalProperties": false,
			"properties": map[string]any{
				"base64":   map[string]any{"type": "string", "description": "The content in base64."},
				"filename": map[string]any{"type": "string"}, "type": map[string]any{"type": "string"}}},
	}}
}

// body returns the schema of the argument.
func (s *schemas) body(b *openapi3.RequestBody, made *body) any {
	var schema any = map[string]any{}
	for kind, m := range b.Content {
		if m != nil && (kind == made.kind || made.kind == "application/octet-stream" && len(b.Content) == 1) {
			schema = s.convert(m.Schema)
		}
	}
	switch kind := plain(made.kind); {
	case web.IsJSON(kind), kind == kindForm:
	case kind == kindMultipart:
		object, _ := schema.(map[string]any)
		properties, _ := object["properties"].(map[string]any)
		for name, p := range properties {
			if property, ok := p.(map[string]any); ok && (property["format"] == "binary" ||
				property["contentMediaType"] != nil) {
				properties[name] = file()
			}
		}
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "xml"):
		schema = map[string]any{"type": "string"}
	default:
		schema = file()
	}
	if object, ok := schema.(map[string]any); ok && b.Description != "" && object["description"] == nil {
		object["description"] = b.Description
	}
	return schema
}

// encode returns the media type and the text of a body.
func (b *body) encode(v any) (kind string, text []byte, err error) {
	switch kind := plain(b.kind); {
	case web.IsJSON(kind):
		text, err = json.Marshal(v)
		return b.kind, text, err
	case kind == kindForm:
		return b.kind, b.form(v), nil
	case kind == kindMultipart:
		return b.multipart(v)
	}
	data, _, _, err := content(v)
	return b.kind, data, err
}

// form returns a URL-encoded form.
func (b *body) form(v any) []byte {
	object, _ := v.(map[string]any)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		p := param{name: name, style: "form", explode: true}
		if b.encoding[name].Style == "deepObject" {
			p.style = "deepObject"
		} else if _, nested := object[name].(map[string]any); nested {
			p.isJSON = true
		}
		parts = append(parts, p.query(object[name])...)
	}
	return []byte(strings.Join(parts, "&"))
}

func (b *body) multipart(v any) (kind string, text []byte, err error) {
	object, _ := v.(map[string]any)
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		items, list := object[name].([]any)
		if !list {
			items = []any{object[name]}
		}
		for _, item := range items {
			if err := b.part(w, name, item); err != nil {
				return "", nil, fmt.Errorf("the part %s: %w", name, err)
			}
		}
	}
	err = w.Close()
	return w.FormDataContentType(), out.Bytes(), err
}

func (b *body) part(w *multipart.Writer, name string, v any) error {
	header := textproto.MIMEHeader{}
	disposition := map[string]string{"name": name}
	object, isObject := v.(map[string]any)
	_, isFile := object["base64"]
	kind := b.encoding[name].ContentType
	data := []byte(template.Value(v))
	if isFile {
		var filename string
		var err error
		if data, filename, kind, err = content(v); err != nil {
			return err
		}
		if disposition["filename"] = filename; filename == "" {
			disposition["filename"] = name
		}
	} else if isObject && kind == "" {
		kind = "application/json"
	}
	for key, value := range disposition {
		if strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("its %s has a line break; remove it", key)
		}
	}
	header.Set("Content-Disposition", mime.FormatMediaType("form-data", disposition))
	if kind != "" && !strings.ContainsAny(kind, "\r\n\x00,") {
		header.Set("Content-Type", kind)
	}
	part, err := w.CreatePart(header)
	if err == nil {
		_, err = part.Write(data)
	}
	return err
}

// content returns the bytes of text, or of an object with base64.
func content(v any) (data []byte, filename, kind string, err error) {
	object, ok := v.(map[string]any)
	if !ok {
		return []byte(template.Value(v)), "", "", nil
	}
	encoded, _ := object["base64"].(string)
	if data, err = base64.StdEncoding.DecodeString(encoded); err != nil {
		return nil, "", "", fmt.Errorf("base64 cannot be decoded: %w", err)
	}
	filename, _ = object["filename"].(string)
	kind, _ = object["type"].(string)
	if kind == "" {
		kind = "application/octet-stream"
	}
	return data, filename, kind, nil
}
