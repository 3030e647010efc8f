package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/upstream/prose"
)

// errTool means that the tool reported an error, which was printed.
var errTool = errors.New("the tool reported an error")

// Call calls a tool of the pack at path, without a server, and prints the result. whole is the
// arguments as a JSON object; if it is empty, words are KEY=VALUE.
func Call(ctx context.Context, w, stderr io.Writer, path, name string, words []string, whole string,
	asJSON bool) error {
	runners := pack.NewRunners(slog.New(slog.NewTextHandler(stderr, nil)))
	p, err := made(ctx, path, manifest.Options{}, runners)
	if err != nil {
		return err
	}
	t, err := find(p, path, name)
	if err != nil {
		return err
	}
	arguments := json.RawMessage(whole)
	if whole == "" {
		if arguments, err = argumentsOf(t, words); err != nil {
			return err
		}
	} else if len(words) > 0 {
		return Usagef("the arguments are given twice; use KEY=VALUE or --json")
	}
	result, err := t.Call(ctx, arguments, nil)
	if err != nil {
		return fmt.Errorf("the call was not finished: %w", err)
	}
	if asJSON {
		err = printJSON(w, result)
	} else {
		err = printResult(w, result)
	}
	if err == nil && result.IsError {
		return errTool
	}
	return err
}

// argumentsOf makes the arguments from KEY=VALUE. A value is text, unless the parameter has another
// type: then it is JSON.
func argumentsOf(t *pack.Tool, words []string) (json.RawMessage, error) {
	var root schema
	json.Unmarshal(t.Definition.RawInputSchema, &root) // without types, all values are text
	arguments := map[string]any{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, Usagef("%s is no argument; write KEY=VALUE, or --json '{\"key\": \"value\"}'",
				prose.Quote(word))
		}
		if _, twice := arguments[key]; twice {
			return nil, Usagef("the argument %s is given twice; keep one", key)
		}
		arguments[key] = value
		if p := root.Properties[key]; p != nil && !root.isText(p) && json.Valid([]byte(value)) {
			arguments[key] = json.RawMessage(value)
		}
	}
	return json.Marshal(arguments)
}

// schema has the parts of a JSON Schema that decide whether an argument is text.
type schema struct {
	Type       any
	Ref        string             `json:"$ref"`
	Defs       map[string]*schema `json:"$defs"`
	Properties map[string]*schema
	AllOf      []*schema
	AnyOf      []*schema
	OneOf      []*schema

	steps int // of isText
}

// maxSteps limits the schemas that isText looks at. References may form cycles.
const maxSteps = 1000

// isText reports whether a value of p, a part of the schema, may be text, also if p refers to a
// definition. A schema without a type accepts text.
func (root *schema) isText(p *schema) bool {
	if root.steps++; p == nil || root.steps > maxSteps {
		return true
	}
	if name, ok := strings.CutPrefix(p.Ref, "#/$defs/"); ok {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if to := root.Defs[name]; to != nil && !root.isText(to) {
			return false
		}
	}
	switch kind := p.Type.(type) {
	case string:
		return kind == "string"
	case []any:
		return slices.Contains(kind, any("string"))
	}
	for _, choice := range [][]*schema{p.AnyOf, p.OneOf} {
		if len(choice) > 0 && !slices.ContainsFunc(choice, root.isText) {
			return false
		}
	}
	return !slices.ContainsFunc(p.AllOf, func(s *schema) bool { return !root.isText(s) })
}

// printResult prints text as it is, and one line for other content.
func printResult(w io.Writer, r *mcp.CallToolResult) error {
	for _, c := range r.Content {
		text := ""
		switch c := c.(type) {
		case mcp.TextContent:
			text = c.Text
		case mcp.ImageContent:
			text = fmt.Sprintf("[image %s, %d bytes]", c.MIMEType, base64.StdEncoding.DecodedLen(len(c.Data)))
		case mcp.AudioContent:
			text = fmt.Sprintf("[audio %s, %d bytes]", c.MIMEType, base64.StdEncoding.DecodedLen(len(c.Data)))
		case mcp.EmbeddedResource:
			text = resource(c.Resource)
		default:
			text = "[other content; --output json shows it]"
		}
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func resource(c mcp.ResourceContents) string {
	switch c := c.(type) {
	case mcp.TextResourceContents:
		return c.Text
	case mcp.BlobResourceContents:
		return fmt.Sprintf("[%s, %d bytes]", c.MIMEType, base64.StdEncoding.DecodedLen(len(c.Blob)))
	}
	return "[resource]"
}
