// Package pack makes the tools, prompts and resources of a pack from its manifests, for the program
// that serves them, and for the one that shows a person what they will do.
//
// pack.go has the tools of a pack and a call of one; content.go makes results. kind.go has the table of
// the kinds of tools; the row of a kind is in the file with its key, such as kind_http.go.
// sampling.go asks the model of the client.
//
// A tool, from its manifest to its result, function by function:
//
//	Load                kind.go    reads the manifests with the kinds; (*decoder).action finds the Kind of a tool
//	Action.Check, Uses  manifest   the kind's own: its mistakes, and the parameters that it places
//	newTool             pack.go    looks up the row (KindOf); the kind's run returns what a call does
//	(*Tool).Call        pack.go    checks the arguments, waits for a turn (concurrency), calls run
//	the kind's run      kind_*.go  keeps timeout and the other limits; its errors are for the model
//	(*results).result   content.go makes the result of bytes, within max_output, in the form of output
//
// A person sees a tool by Plan (package plan, before a pack is installed) and Describe (junction-pack show).
//
// Package manifest reads the manifest, and package template the placeholders in it. Package command
// runs commands, package web sends requests, and package openapi makes tools of OpenAPI documents.
// Package skill reads the folder with the skills of a pack.
// Package plan lists what a pack will run and send, for a person. Package tree computes the checksum
// of a pack, and package lock keeps the checksums of installed packs.
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

	"junction/cmd/pack/command"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/openapi"
	"junction/cmd/pack/skill"
	"junction/cmd/pack/web"
	"junction/proxy/schema"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// Pack contains the tools, prompts and resources of manifests. It is immutable; a changed file
// makes another Pack.
type Pack struct {
	Name, Title, Version, Instructions string

	Tools     []*Tool // by name
	Prompts   []*manifest.Prompt
	Resources []*manifest.Resource
	Skills    *skill.Folder // nil if there is no folder skills

	APIs     []API             // in the order of the manifests, those that are turned off are left out
	Files    []string          // that the manifests name
	Warnings manifest.Problems // about items that cannot work
}

// API is an OpenAPI document of a pack.
type API struct {
	Manifest *manifest.Manifest
	Source   *manifest.API
	Loaded   *openapi.API // nil if Preview did not read the document
}

// Tool is a tool as clients see it, and how it is called.
type Tool struct {
	Definition mcp.Tool
	File       string // the manifest
	Limits     manifest.Limits
	// Source is the entry of the manifest; nil for an operation of an API.
	Source    *manifest.Tool
	Operation *openapi.Operation // nil for others

	// run makes a call with checked arguments: Kind.run, or a request (see requests) of an API. Call
	// checks the arguments and calls it.
	run       func(ctx context.Context, c call) (*mcp.CallToolResult, error)
	arguments schema.Validator
	text      []byte        // the definition, for arguments
	turns     chan struct{} // its capacity is the number of calls at the same time
}

// call is one call, or one round of it if the client is asked something.
type call struct {
	arguments map[string]any
	answers   mcp.InputResponses
}

// Runners run the commands and send the requests of tools. They outlive the packs that use them.
type Runners struct {
	Command *command.Runner
	Web     *web.Client
}

// NewRunners returns runners that log to log.
func NewRunners(log *slog.Logger) Runners {
	return Runners{Command: &command.Runner{Log: log}, Web: web.NewClient()}
}

// New makes a pack of manifests, and reads the OpenAPI documents that they name. It leaves out
// items with enabled: false. Mistakes in documents are manifest.Problems.
func New(ctx context.Context, p *manifest.Pack, r Runners) (*Pack, error) {
	return build(ctx, p, r, false)
}

// Preview makes a pack of manifests as New does, to be shown: its tools cannot be called. It fetches
// nothing. A document with a URL is not read, and neither is one whose name depends on a variable.
func Preview(ctx context.Context, p *manifest.Pack) (*Pack, error) {
	return build(ctx, p, Runners{}, true)
}

// maxAPIs limits the documents of a pack. A hostile one can take a minute.
const maxAPIs = 32

func build(ctx context.Context, p *manifest.Pack, r Runners, preview bool) (*Pack, error) {
	first := p.Manifests[0]
	pack := &Pack{Name: first.Name, Title: first.Title, Version: first.Version, Warnings: p.Warnings,
		Skills: skill.Open(p.Dir)}
	var instructions []string
	var problems manifest.Problems
	var tools []*manifest.Tool
	for _, m := range p.Manifests {
		if m.Instructions != "" {
			instructions = append(instructions, m.Instructions)
		}
		pack.Files, tools = append(pack.Files, m.Files()...), append(tools, m.Tools...)
		for _, t := range m.Tools {
			if !t.Off() {
				pack.Tools = append(pack.Tools, newTool(m, t, r))
			}
		}
		pack.Prompts = append(pack.Prompts, m.Prompts...)
		pack.Resources = append(pack.Resources, m.Resources...)
		for _, a := range m.OpenAPI {
			if a.Off() {
				continue
			}
			if len(pack.APIs) >= maxAPIs {
				problems = append(problems, m.At(a.Path(), "is one of more than %d OpenAPI documents; "+
					"make another pack", maxAPIs))
				continue
			}
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			if preview && (a.Spec.Open() || manifest.IsURL(a.Spec.Value())) {
				pack.APIs = append(pack.APIs, API{Manifest: m, Source: a})
				continue
			}
			problems = append(problems, pack.api(ctx, m, a, r)...)
		}
	}
	if r.Command != nil {
		r.Command.Confine(tools)
	}
	pack.Instructions = strings.Join(instructions, "\n\n")
	slices.SortFunc(pack.Tools, func(a, b *Tool) int {
		return strings.Compare(a.Definition.Name, b.Definition.Name)
	})
	if problems = append(problems, pack.twice(p)...); len(problems) > 0 {
		return nil, problems
	}
	pack.Warnings = append(pack.Warnings, pack.Skills.List().Problems...)
	return pack, nil
}

// api adds the operations of an API.
func (p *Pack) api(ctx context.Context, m *manifest.Manifest, a *manifest.API, r Runners) manifest.Problems {
	api, err := openapi.Load(ctx, a)
	p.Files = append(p.Files, api.Files...)
	p.APIs = append(p.APIs, API{m, a, api})
	if keyErr, ok := errors.AsType[*openapi.KeyError](err); ok {
		return manifest.Problems{m.At(a.Path()+"."+keyErr.Key, "%s", keyErr.Text)}
	}
	if err != nil {
		return manifest.Problems{m.At(a.Path()+".spec", "cannot use the document %s: %v", a.Spec.Source, err)}
	}
	for _, w := range api.Warnings {
		p.Warnings = append(p.Warnings, m.At(a.Path(), "%s", w))
	}
	client := r.Web
	if !api.Reach.Any {
		client = web.NewGuarded(api.Reach)
	}
	for _, o := range api.Operations {
		matches := func(glob string) bool { return manifest.MatchesName(glob, o.Name) }
		if a.Only != nil && !slices.ContainsFunc(a.Only, matches) {
			continue
		}
		t := &Tool{File: m.File, Limits: a.Limits, Operation: o}
		t.Definition = newDefinition(o.Name, o.Title, o.Description, o.InputSchema, o.Annotations)
		t.require(slices.Concat(a.Capabilities, a.Tools[o.ID].Capabilities))
		results := newResults(&manifest.Tool{Name: o.Name, Limits: a.Limits})
		// t.Call calls run. Then o.Request makes the HTTP request from the arguments, and client sends it.
		t.run = requests(client, t, results, o.Request)
		p.Tools = append(p.Tools, t.ready())
	}
	return nil
}

// twice reports names that several tools have.
func (p *Pack) twice(source *manifest.Pack) (problems manifest.Problems) {
	for i, t := range p.Tools[:max(len(p.Tools)-1, 0)] {
		if other := p.Tools[i+1]; t.Definition.Name == other.Definition.Name {
			problems = append(problems, source.Manifests[0].At("", "%s and %s both have a tool %s; rename one, "+
				"or set prefix of an OpenAPI document", t.File, other.File, t.Definition.Name))
		}
	}
	return problems
}

// Tool returns the tool with the name, or nil.
func (p *Pack) Tool(name string) *Tool {
	i := slices.IndexFunc(p.Tools, func(t *Tool) bool { return t.Definition.Name == name })
	if i < 0 {
		return nil
	}
	return p.Tools[i]
}

// require adds the capabilities to the definition, where Junction reads them.
func (t *Tool) require(capabilities []string) {
	if len(capabilities) > 0 {
		t.Definition.Meta = &mcp.Meta{AdditionalFields: map[string]any{definition.Capabilities: capabilities}}
	}
}

// ready completes a tool whose definition is complete.
func (t *Tool) ready() *Tool {
	t.turns = make(chan struct{}, t.Limits.Concurrency)
	t.text, _ = json.Marshal(t.Definition) // what was checked can be marshalled
	return t
}

func newTool(m *manifest.Manifest, source *manifest.Tool, r Runners) *Tool {
	t := &Tool{Source: source, File: m.File, Limits: source.Limits}
	hints, kind := source.Annotations, KindOf(source)
	if kind != nil {
		hints = hints.Or(kind.hints(source))
	}
	t.Definition = newDefinition(source.Name, source.Title, strings.TrimSpace(source.Description), source.InputSchema(),
		hints)
	t.require(source.Capabilities)
	results := newResults(source)
	t.Definition.RawOutputSchema = results.definition
	if kind == nil { // the decoder has refused it
		t.run = func(context.Context, call) (*mcp.CallToolResult, error) { return nil, errKind }
	} else {
		t.run = kind.run(t, results, r)
	}
	return t.ready()
}

// requests returns the run of a tool that sends an HTTP request. build makes the request from the
// arguments of each call; client sends it, and results converts the response.
func requests(client *web.Client, t *Tool, results *results, build func(map[string]any) (*web.Request, error)) func(
	context.Context, call) (*mcp.CallToolResult, error) {
	return func(ctx context.Context, c call) (*mcp.CallToolResult, error) {
		request, err := build(c.arguments)
		if err != nil {
			return nil, err
		}
		idempotent := t.Definition.Annotations.IdempotentHint
		request.Repeat = idempotent != nil && *idempotent
		response, err := client.Send(ctx, t.Definition.Name, request, t.Limits)
		if err != nil {
			return nil, err
		}
		if response.Cut { // a part of JSON is text, too
			return mcp.NewToolResultText(textOf(marked(response.Body, t.Limits))), nil
		}
		return results.answer(response)
	}
}

// newDefinition returns a tool as clients see it. Without a hint, MCP's own defaults apply: the tool may
// change and destroy anything.
func newDefinition(name, title, description string, schema []byte, a manifest.Annotations) mcp.Tool {
	d := mcp.NewToolWithRawSchema(name, description, schema)
	d.Title = title
	d.Annotations = mcp.ToolAnnotation{Title: title, ReadOnlyHint: a.ReadOnly, DestructiveHint: a.Destructive,
		IdempotentHint: a.Idempotent, OpenWorldHint: a.OpenWorld}
	return d
}

// Call calls the tool. answers are the client's responses in the rounds before. If an OpenAPI
// document has a schema that cannot be used, the arguments are not checked; the API checks them
// itself. Mistakes of the caller and failures are results with isError; an error means that ctx has
// ended.
func (t *Tool) Call(ctx context.Context, arguments json.RawMessage,
	answers mcp.InputResponses) (*mcp.CallToolResult, error) {
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	object, err := raw.Parse(arguments)
	if err != nil {
		return mcp.NewToolResultErrorf("the arguments of %s are no JSON object: %v", t.Definition.Name, err), nil
	}
	problems, err := t.arguments.Check(ctx, t.text, object, nil, nil)
	_, unusable := errors.AsType[*schema.UnusableError](err)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && !unusable:
		return mcp.NewToolResultErrorf("the arguments of %s cannot be checked: %v", t.Definition.Name, err), nil
	case unusable && t.Operation == nil: // impossible: it was compiled when the manifest was checked
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
	result, err := t.run(ctx, call{values, answers})
	if err != nil {
		return failed(ctx, err)
	}
	return result, nil
}

// turn waits until the tool may be called once more.
func (t *Tool) turn(ctx context.Context) (done func(), err error) {
	timer := time.NewTimer(t.Limits.Timeout)
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
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
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
