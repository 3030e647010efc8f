// Package pack makes an MCP server of manifests.
//
// pack.go has the tools of a pack and a call of one; content.go makes results. server.go serves them
// with mcp-go over stdio and Streamable HTTP, in both eras. watch.go reads changed files again.
package pack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/junction-pack/command"
	"junction/cmd/junction-pack/manifest"
	"junction/proxy/schema"
	"junction/upstream/raw"
)

// Pack is what manifests offer. It is immutable; a changed file makes another one.
type Pack struct {
	Name, Title, Version, Instructions string

	Tools []*Tool // by name
}

// Tool is a tool as clients see it, and how it is called.
type Tool struct {
	Definition mcp.Tool
	Source     *manifest.Tool
	File       string // the manifest

	run       func(ctx context.Context, arguments map[string]any) (*mcp.CallToolResult, error)
	arguments schema.Validator
	text      []byte        // the definition, for arguments
	turns     chan struct{} // has a place for each call at the same time
	wait      time.Duration
}

// Runners do the work of tools. They outlive the packs that are made with them.
type Runners struct {
	Command *command.Runner
}

// NewRunners returns runners that log to log.
func NewRunners(log *slog.Logger) Runners {
	return Runners{Command: &command.Runner{Log: log}}
}

// New makes a pack of manifests. Tools that are turned off are left out.
func New(p *manifest.Pack, r Runners) *Pack {
	first := p.Manifests[0]
	pack := &Pack{Name: first.Name, Title: first.Title, Version: first.Version}
	var instructions []string
	for _, m := range p.Manifests {
		if m.Instructions != "" {
			instructions = append(instructions, m.Instructions)
		}
		for _, t := range m.Tools {
			if !t.Off() {
				pack.Tools = append(pack.Tools, newTool(m, t, r))
			}
		}
	}
	pack.Instructions = strings.Join(instructions, "\n\n")
	slices.SortFunc(pack.Tools, func(a, b *Tool) int {
		return strings.Compare(a.Definition.Name, b.Definition.Name)
	})
	return pack
}

// Tool returns the tool with the name, or nil.
func (p *Pack) Tool(name string) *Tool {
	i := slices.IndexFunc(p.Tools, func(t *Tool) bool { return t.Definition.Name == name })
	if i < 0 {
		return nil
	}
	return p.Tools[i]
}

func newTool(m *manifest.Manifest, source *manifest.Tool, r Runners) *Tool {
	t := &Tool{Source: source, File: m.File, turns: make(chan struct{}, source.Concurrency), wait: source.Timeout}
	t.Definition = mcp.NewToolWithRawSchema(source.Name, strings.TrimSpace(source.Description), source.InputSchema())
	t.Definition.Title = source.Title
	t.Definition.Annotations = annotations(source)
	results := newResults(source)
	t.Definition.RawOutputSchema = results.definition
	t.text, _ = json.Marshal(t.Definition) // a checked manifest can be marshalled
	t.run = func(ctx context.Context, arguments map[string]any) (*mcp.CallToolResult, error) {
		out, err := r.Command.Run(ctx, source, arguments)
		if err != nil {
			return nil, err
		}
		return results.of(out)
	}
	return t
}

// annotations returns the hints about a command. Without hints in the manifest, MCP's own defaults
// apply: it may change and destroy anything.
func annotations(t *manifest.Tool) mcp.ToolAnnotation {
	a := t.Annotations
	return mcp.ToolAnnotation{Title: t.Title, ReadOnlyHint: a.ReadOnly, DestructiveHint: a.Destructive,
		IdempotentHint: a.Idempotent, OpenWorldHint: a.OpenWorld}
}

// Call calls the tool. Mistakes of the caller and failures are results with isError; an error means
// that ctx has ended.
func (t *Tool) Call(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	object, err := raw.Parse(arguments)
	if err != nil {
		return mcp.NewToolResultErrorf("the arguments of %s are no JSON object: %v", t.Definition.Name, err), nil
	}
	problems, err := t.arguments.Check(t.text, object)
	if err != nil { // the schema was compiled when the manifest was checked
		return mcp.NewToolResultErrorf("the parameters of %s cannot be used: %v", t.Definition.Name, err), nil
	}
	if len(problems) > 0 {
		return mcp.NewToolResultErrorf("the arguments of %s do not fit its parameters; it was not called:\n- %s",
			t.Definition.Name, strings.Join(problems, "\n- ")), nil
	}
	values, err := decode(arguments)
	if err != nil {
		return mcp.NewToolResultErrorf("the arguments of %s: %v", t.Definition.Name, err), nil
	}
	done, err := t.turn(ctx)
	if err != nil {
		return failed(ctx, err)
	}
	defer done()
	result, err := t.run(ctx, values)
	if err != nil {
		return failed(ctx, err)
	}
	return result, nil
}

// turn waits until the tool may be called once more.
func (t *Tool) turn(ctx context.Context) (done func(), err error) {
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	select {
	case t.turns <- struct{}{}:
		return func() { <-t.turns }, nil
	case <-timer.C:
		return nil, fmt.Errorf("%d calls of %s are in progress; try again later", cap(t.turns), t.Definition.Name)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// failed returns the result for an error: a tool error, unless the caller has gone.
func failed(ctx context.Context, err error) (*mcp.CallToolResult, error) {
	if _, known := errors.AsType[*command.Failure](err); !known && ctx.Err() != nil {
		return nil, err
	}
	return mcp.NewToolResultError(err.Error()), nil
}

// decode returns the arguments with the digits of their numbers.
func decode(arguments json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var values map[string]any
	err := d.Decode(&values)
	return values, err
}
