package pack

import (
	"cmp"
	"context"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack/manifest"
)

// commandKind runs a program.
var commandKind = &Kind{Kind: manifest.CommandKind, Plan: planCommand, Describe: describeCommand, hints: unknownEffect,
	run: func(t *Tool, results *results, r Runners) func(context.Context, call) (*mcp.CallToolResult, error) {
		source := t.Source
		return func(ctx context.Context, c call) (*mcp.CallToolResult, error) {
			out, cut, err := r.Command.Run(ctx, source, c.arguments)
			if err != nil {
				return nil, err
			}
			return results.result(out, cut, string(source.Output))
		}
	}}

func planCommand(t *manifest.Tool, l Listing) {
	if t.Shell {
		l.Program("/bin/sh")
		l.Fact("runs a script", t.Command.String())
	} else {
		l.Program(l.Here(t.Command[0].Text.Text(nil, nil)))
		l.Fact("runs", t.Command.String())
	}
	l.In(t.Dir, t.WorkDir)
	if t.Stdin.Source != "" {
		l.Fact("gives it", t.Stdin.Source)
	}
	l.Texts("variable", t.Env)
	if len(t.InheritEnv) > 0 {
		l.Fact("passes on", strings.Join(t.InheritEnv, ", "))
		for _, name := range t.InheritEnv {
			l.Variable(name)
		}
	}
	l.Sandbox(t)
}

// describeCommand prints the command of a tool and its surroundings.
func describeCommand(t *manifest.Tool, line Line) {
	key := "runs"
	if t.Shell {
		key = "runs script"
	}
	line(key, "%s", t.Command)
	line("in", "%s", t.WorkDir)
	variables(line, "env", t.Env)
	if len(t.InheritEnv) > 0 {
		line("inherits", "%s", strings.Join(t.InheritEnv, ", "))
	}
	if t.Stdin.Source != "" {
		line("stdin", "%s", t.Stdin.Source)
	}
	line("output", "%s", cmp.Or(t.Output, manifest.OutputText))
	if s := t.Sandbox; s != nil {
		line("sandbox", "read %q, write %q, tcp %v", s.Read, s.Write, s.TCP.List)
	} else {
		line("sandbox", "none")
	}
}
