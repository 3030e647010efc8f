package front

import (
	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file reads what a client has declared that it can do.

// profileOf returns the profile of a client for upstreams, from the client's capabilities and
// version. It omits capabilities that Junction cannot bridge or that the version does not have.
func profileOf(capabilities raw.Object, version string) client.Profile {
	var p client.Profile
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
		p.Tasks = modern && declares(extensions, client.ExtensionTasks)
		if ui, err := extensions.Get(client.ExtensionUI); err == nil && ui[0] == '{' && len(ui) <= maxUI {
			p.UI = string(ui)
		}
	}
	return p
}

// maxUI bounds the client's MCP Apps capability, which is part of its session ID, in bytes.
const maxUI = 256

// declares reports whether the object has the member with an object as value.
func declares(o raw.Object, name string) bool {
	v, err := o.Get(name)
	return err == nil && v[0] == '{'
}
