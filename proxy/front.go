package proxy

import (
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// front is one era as spoken to clients: legacyFront and modernFront.
type front interface {
	// post answers a message that was posted: it checks what the era wants to be checked, and has
	// the rest served.
	post(w http.ResponseWriter, r *http.Request, x *exchange)
}

// frontFor decides which era a message speaks (2026-07-28, basic/versioning): the modern one if its
// _meta says so, or if the version header names a modern version that we know. Everything else is
// legacy.
func (s *Server) frontFor(x *exchange) front {
	if _, err := x.meta.Get(mcp.MetaKeyProtocolVersion); err != raw.ErrAbsent {
		return modernFront{s}
	}
	if v := header(x.header, "Mcp-Protocol-Version"); v == modernVersion {
		return modernFront{s}
	}
	return legacyFront{s}
}

const modernVersion = mcp.ProtocolVersion20260728

// maxClient bounds the name that a client gives itself, which goes into session ids and the log.
const maxClient = 64

// versions are all that we speak, the newest first.
func versions() []string {
	return append([]string{modernVersion}, mcp.LegacyProtocolVersions()...)
}

// header returns the one value of a header, without the white space around it; "" when there is
// none.
func header(h http.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}

// accepts reports whether the client takes the media type; a client that says nothing takes
// everything.
func accepts(r *http.Request, media string) bool {
	values := r.Header["Accept"]
	if len(values) == 0 {
		return true
	}
	for _, v := range values {
		if strings.Contains(v, media) || strings.Contains(v, "*/*") ||
			strings.Contains(v, media[:strings.IndexByte(media, '/')]+"/*") {
			return true
		}
	}
	return false
}

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
