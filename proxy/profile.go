package proxy

import (
	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// profileOf returns what upstreams may learn of a client that declared these capabilities in that
// version: what we do not know how to bridge is left out, and what the version does not have is not
// believed.
func profileOf(capabilities raw.Object, version string) upstream.Profile {
	var p upstream.Profile
	modern := mcp.IsModernProtocol(version)
	if elicitation, err := capabilities.Object("elicitation"); err == nil && version >= mcp.ProtocolVersion20250618 {
		p.URL = declares(elicitation, "url") && version >= mcp.ProtocolVersion20251125
		p.Form = declares(elicitation, "form") || !p.URL // {} means forms (2025-11-25, client/elicitation#capabilities)
	}
	if sampling, err := capabilities.Object("sampling"); err == nil {
		p.Sampling = true
		p.SamplingTools = declares(sampling, "tools") && version >= mcp.ProtocolVersion20251125
	}
	if roots, err := capabilities.Object("roots"); err == nil {
		p.Roots = true
		changes, _ := roots.Get("listChanged")
		p.RootsChange = !modern && string(changes) == "true"
	}
	if extensions, err := capabilities.Object("extensions"); err == nil {
		p.Tasks = modern && declares(extensions, upstream.ExtensionTasks)
		if ui, err := extensions.Get(upstream.ExtensionUI); err == nil && ui[0] == '{' && len(ui) <= maxUI {
			p.UI = string(ui)
		}
	}
	return p
}

// maxUI bounds what a client says about MCP Apps, which is part of its session's id.
const maxUI = 256

// declares reports whether the object has the member, and it is an object.
func declares(o raw.Object, name string) bool {
	v, err := o.Get(name)
	return err == nil && v[0] == '{'
}
