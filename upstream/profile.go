package upstream

import "junction/upstream/raw"

// Profile is what an upstream may learn about the client of a call: the capabilities that Junction
// can bridge. Calls of equal profiles may share a legacy connection, which hears of its client
// once, in initialize. The zero value is a client that can do nothing but call.
type Profile struct {
	Form, URL     bool // modes of elicitation
	Sampling      bool
	SamplingTools bool
	Roots         bool
	RootsChange   bool   // it tells of changes of its roots; legacy clients only
	Tasks         bool   // the extension for tasks; modern clients only, and never said to a legacy server
	UI            string // the extension for MCP Apps: its settings, a JSON object; "" for none
}

// The extensions that we know how to carry (SEP-2133).
const (
	ExtensionTasks = "io.modelcontextprotocol/tasks"
	ExtensionUI    = "io.modelcontextprotocol/ui"
)

// everything is the profile of our own requests in the modern era, where each request has its own:
// a server may offer more to a client that can do more.
func everything() Profile {
	p := routed()
	p.Roots, p.Tasks = true, true
	return p
}

// routed is the profile of a legacy connection that all clients share: what Junction can route to
// the client of a call. Roots are not in it. A server asks for them once and keeps the answer,
// which is different for each client.
func routed() Profile {
	return Profile{Form: true, URL: true, Sampling: true, SamplingTools: true,
		UI: `{"mimeTypes":["text/html;profile=mcp-app"]}`}
}

// Asks reports whether the client can be asked anything.
func (p Profile) Asks() bool { return p.Form || p.URL || p.Sampling || p.Roots }

// forLegacy is what a legacy server may hear: what it must not, does not make another connection
// either.
func (p Profile) forLegacy() Profile {
	p.Tasks = false
	return p
}

// append appends the capabilities as a JSON object, in the words of the era. sampling.context is
// never declared: includeContext would include all upstreams, and a server must not see the others
// business.
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
	b[start] = '{' // the first comma
	return append(b, '}')
}
