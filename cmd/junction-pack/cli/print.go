package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/openapi"
	"junction/cmd/pack/plan"
	"junction/upstream/prose"
)

// load reads a pack to show it. References such as ${NAME} stay as they are written.
func load(ctx context.Context, path string) (*pack.Pack, error) {
	return made(ctx, path, manifest.Options{Unresolved: true}, pack.Runners{})
}

// made reads the manifests at path and makes the pack.
func made(ctx context.Context, path string, o manifest.Options, r pack.Runners) (*pack.Pack, error) {
	m, err := pack.Load(path, o)
	if err != nil {
		return nil, err
	}
	return pack.New(ctx, m, r)
}

// Check validates the manifests at path and prints the result.
func Check(ctx context.Context, w io.Writer, path string) error {
	p, err := made(ctx, path, manifest.Options{}, pack.Runners{})
	if problems, ok := errors.AsType[manifest.Problems](err); ok {
		for _, p := range problems {
			fmt.Fprintln(w, p)
		}
		return fmt.Errorf("%s has %s", path, prose.Count(len(problems), "mistake"))
	}
	if err != nil {
		return err
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	count := prose.Count(len(p.Tools), "tool")
	if p.Skills != nil {
		count += ", " + prose.Count(len(p.Skills.List().Skills), "skill")
	}
	_, err = fmt.Fprintf(w, "%s is valid: %s\n", path, count)
	return err
}

// List prints one line for each tool.
func List(ctx context.Context, w io.Writer, path string, asJSON bool) error {
	p, err := load(ctx, path)
	if err != nil {
		return err
	}
	if asJSON {
		list := struct {
			Tools []mcp.Tool `json:"tools"`
		}{[]mcp.Tool{}}
		for _, t := range p.Tools {
			list.Tools = append(list.Tools, t.Definition)
		}
		return printJSON(w, list)
	}
	width := 4
	for _, t := range p.Tools {
		width = max(width, len(t.Definition.Name))
	}
	fmt.Fprintf(w, "%-*s  %s\n", width, "NAME", "WHAT IT DOES")
	for _, t := range p.Tools {
		first, _, _ := strings.Cut(t.Definition.Description, "\n")
		about := prose.Flat(cmp.Or(t.Definition.Title, first))
		fmt.Fprintf(w, "%-*s  %s\n", width, t.Definition.Name, prose.Cut(about, max(prose.Width-width-2, 20)))
	}
	return nil
}

// ShowPack prints what a pack runs, sends and reads: its programs, hosts, variables and files.
func ShowPack(ctx context.Context, w io.Writer, path string, asJSON bool) error {
	p, err := plan.OfOwn(ctx, path)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, p)
	}
	_, err = io.WriteString(w, p.Text())
	return err
}

// Show prints a tool: its definition, and what a call runs.
func Show(ctx context.Context, w io.Writer, path, name string, asJSON bool) error {
	p, err := load(ctx, path)
	if err != nil {
		return err
	}
	t, err := find(p, path, name)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, t.Definition)
	}
	var b prose.Page
	fmt.Fprintf(&b, "%s (%s)\n", t.Definition.Name, t.File)
	b.Wrap("  ", "  ", prose.Flat(t.Definition.Description))
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "  %-12s %s\n", key, prose.OneLine(fmt.Sprintf(format, args...)))
	}
	if t.Operation != nil {
		line("arguments", "%s", t.Definition.RawInputSchema)
		describeOperation(line, p, t.Operation)
	} else {
		parameters(line, t.Source)
		describe(line, t.Source)
	}
	line("limits", "%s", limits(t))
	_, err = b.WriteTo(w)
	return err
}

// limits returns the limits that the kind of a tool uses. The operation of a document uses all of them.
func limits(t *pack.Tool) string {
	list := []string{t.Limits.Timeout.String()}
	if t.Operation != nil || t.Source.Kind == nil || t.Source.Kind.HasLimit("max_output") {
		list = append(list, fmt.Sprintf("%d bytes of output", t.Limits.MaxOutput))
	}
	return strings.Join(append(list, fmt.Sprintf("%d calls at the same time", t.Limits.Concurrency)), ", ")
}

func parameters(line pack.Line, t *manifest.Tool) {
	for _, p := range t.Parameters {
		required := ""
		if p.Required {
			required = " (required)"
		}
		line("parameter", "%s%s: %s", p.Name, required, p.Schema)
		if p.Within != "" {
			line("", "inside %s", p.Within)
		}
	}
}

// describe prints what a call of the tool does.
func describe(line pack.Line, t *manifest.Tool) {
	if kind := pack.KindOf(t); kind != nil {
		kind.Describe(t, line)
		return
	}
	line("does", "unknown: this version of junction-pack cannot show what the tool does; update it")
}

// describeOperation prints the request of an operation of an OpenAPI document: its host, and the
// headers and credentials as the manifest has them.
func describeOperation(line pack.Line, p *pack.Pack, o *openapi.Operation) {
	for _, api := range p.APIs {
		if !slices.Contains(api.Loaded.Operations, o) {
			continue
		}
		a := api.Source
		line("document", "%s", a.Spec.Source)
		line("requests", "%s %s", o.Method, strings.TrimSuffix(cmp.Or(a.BaseURL.Source, o.Server()), "/")+o.Path)
		for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
			line("header", "%s=%s", name, a.Headers[name].Source)
		}
		for _, name := range o.Credentials() {
			line("credential", "%s=%s", name, a.Auth[name].Source)
		}
	}
}

// find returns a tool of the pack at path.
func find(p *pack.Pack, path, name string) (*pack.Tool, error) {
	if t := p.Tool(name); t != nil {
		return t, nil
	}
	names := make([]string, len(p.Tools))
	for i, t := range p.Tools {
		names[i] = t.Definition.Name
	}
	return nil, fmt.Errorf("there is no tool %s; %s", prose.Quote(name),
		prose.DidYouMean(names, name, "junction-pack list "+path+" shows all"))
}

func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = b.WriteTo(w)
	return err
}
