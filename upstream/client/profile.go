package client

import "junction/upstream/raw"

// Profile is the part of a client's capabilities that an upstream may learn: those that Junction
// can bridge. Calls with equal profiles may share a legacy connection, because initialize declares
// the capabilities only once. The zero value is a client that can only call.
type Profile struct {
	Form, URL     bool // modes of elicitation
	Sampling      bool
	SamplingTools bool
	Roots         bool
	RootsChange   bool   // it notifies about changes of its roots; legacy clients only
	Tasks         bool   // the extension for tasks; modern clients only, and never declared to a legacy server
	UI            string // the extension for MCP Apps: its settings, a JSON object; "" for none
}

// The extensions that Junction can bridge (SEP-2133).
const (
	ExtensionTasks = "io.modelcontextprotocol/tasks"
	ExtensionUI    = "io.modelcontextprotocol/ui"
)

// Everything is the profile of Junction's own requests in the modern era, where each request
// declares capabilities. A server may list more items for a client with more capabilities.
func Everything() Profile {
	return Profile{Form: true, URL: true, Sampling: true, SamplingTools: true, Roots: true, Tasks: true,
		UI: `{"mimeTypes":["text/html;profile=mcp-app"]}`}
}

// Asks reports whether the client can answer at least one kind of server request.
func (p Profile) Asks() bool { return p.Form || p.URL || p.Sampling || p.Roots }

// append appends the capabilities as a JSON object, in the form of the era. sampling.context is
// never declared: includeContext would show a server the data of all other upstreams.
func (p Profile) append(b []byte, era Era) []byte {
	if p == (Profile{}) {
		return append(b, "{}"...)
	}
	start := len(b)
	add := func(member string) { b = append(append(b, ','), member...) }
	switch {
	case p.Form && p.URL:
		add(`"elicitation":{"form":{},"url":{}}`)
	case p.URL:
		add(`"elicitation":{"url":{}}`)
	case p.Form:
		add(`"elicitation":{}`) // as clients before 2025-11-25 wrote it
	}
	switch {
	case p.SamplingTools:
		add(`"sampling":{"tools":{}}`)
	case p.Sampling:
		add(`"sampling":{}`)
	}
	switch {
	case p.Roots && p.RootsChange && era == EraLegacy:
		add(`"roots":{"listChanged":true}`)
	case p.Roots:
		add(`"roots":{}`)
	}
	tasks := p.Tasks && era == EraModern
	if p.UI != "" || tasks {
		add(`"extensions":{`)
		if p.UI != "" {
			b = append(append(raw.AppendQuote(b, ExtensionUI), ':'), p.UI...)
		}
		if tasks {
			if p.UI != "" {
				b = append(b, ',')
			}
			b = append(raw.AppendQuote(b, ExtensionTasks), ":{}"...)
		}
		b = append(b, '}')
	}
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{' // replaces the first comma
	return append(b, '}')
}
