package pack

import (
	"cmp"
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack/manifest"
)

// promptKind asks the model of the client.
var promptKind = &Kind{Kind: manifest.PromptKind,
	Plan: func(t *manifest.Tool, l Listing) {
		ask := askOf(t)
		l.Fact("asks the model", cmp.Or(ask.File, ask.Text.Source))
		if ask.System.Source != "" {
			l.Fact("tells the model", ask.System.Source)
		}
	},
	Describe: func(t *manifest.Tool, line Line) {
		ask := askOf(t)
		line("asks", "%s", cmp.Or(ask.File, ask.Text.Source))
		line("model", "%s", cmp.Or(ask.Model, "any"))
	},
	hints: unknownEffect,
	run: func(t *Tool, results *results, _ Runners) func(context.Context, call) (*mcp.CallToolResult, error) {
		source := t.Source
		return func(ctx context.Context, c call) (*mcp.CallToolResult, error) {
			return runPrompt(ctx, source, source.Parameters.WithDefaults(c.arguments), c.answers,
				func(answer string) (*mcp.CallToolResult, error) {
					return results.result([]byte(answer), false, string(source.Output))
				})
		}
	}}

// askOf returns the request to the model of a tool of promptKind.
func askOf(t *manifest.Tool) *manifest.Ask { return t.Action.(*manifest.Ask) }
