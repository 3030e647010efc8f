package pack

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
)

// httpKind sends a request.
var httpKind = &Kind{Kind: manifest.HTTPKind, Plan: planHTTP, Describe: describeHTTP,
	hints: func(t *manifest.Tool) manifest.Annotations { return web.Annotations(requestOf(t).Method) },
	run: func(t *Tool, results *results, r Runners) func(context.Context, call) (*mcp.CallToolResult, error) {
		h, client := requestOf(t.Source), r.Web
		if len(h.Hosts) > 0 {
			client = web.NewChosen(h)
		}
		return requests(client, t, results, func(arguments map[string]any) (*web.Request, error) {
			return web.Build(h, t.Source.Parameters.WithDefaults(arguments))
		})
	}}

// requestOf returns the request of a tool of httpKind.
func requestOf(t *manifest.Tool) *manifest.HTTP { return t.Action.(*manifest.HTTP) }

// PlainHTTP is the fact about a request that others can read.
const PlainHTTP = "over http, also to other machines, so that others on their network can read it (allow_http)"

func planHTTP(t *manifest.Tool, l Listing) {
	h := requestOf(t)
	l.Fact("sends", h.Method+" "+h.URL.Source)
	if len(h.Hosts) == 0 {
		l.URL(h.URL.Text(nil, nil))
	}
	for _, host := range h.Hosts {
		if host == manifest.PublicHosts {
			host = "any public host that the caller names"
		}
		l.Host(host)
	}
	if h.AllowHTTP {
		l.Fact("sends", PlainHTTP)
	}
	l.Texts("header", h.Headers)
	l.Texts("query", h.Query)
	l.Texts("form", h.Form)
	if h.JSON != nil {
		l.Fact("body", h.JSON.Source())
	}
	if h.Text.Source != "" {
		l.Fact("body", h.Text.Source)
	}
}

func describeHTTP(t *manifest.Tool, line Line) {
	h := requestOf(t)
	line("requests", "%s %s", h.Method, h.URL.Source)
	variables(line, "query", h.Query)
	variables(line, "header", h.Headers)
	variables(line, "form", h.Form)
	if h.JSON != nil {
		line("body", "%s", h.JSON.Source())
	} else if h.Text.Source != "" {
		line("body", "%s", h.Text.Source)
	}
	if len(h.Hosts) > 0 {
		line("hosts", "%s", strings.Join(h.Hosts, ", "))
	}
}

// variables prints a line for each text.
func variables(line Line, key string, v manifest.Variables) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		line(key, "%s=%s", name, v[name].Source)
	}
}
