package proxy

import (
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/raw"
)

// front handles messages of one era: legacyFront or modernFront.
type front interface {
	// post validates a message by the rules of the era and serves it.
	post(w http.ResponseWriter, r *http.Request, x *exchange)
}

// frontFor chooses the era of a message (2026-07-28, basic/versioning). It is the modern era if
// _meta has a protocol version or if the version header is modernVersion. Otherwise it is the
// legacy era.
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

// maxClient bounds the client's name in session IDs and in the log, in bytes.
const maxClient = 64

// versions returns the supported versions, newest first.
func versions() []string {
	return append([]string{modernVersion}, mcp.LegacyProtocolVersions()...)
}

// header returns the first value of a header without surrounding white space; "" if there is none.
func header(h http.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}

// accepts reports whether the client accepts the media type. Without an Accept header, the client
// accepts every type.
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

// profileOf returns the profile of a client for upstreams, from the client's capabilities and
// version. It omits capabilities that Junction cannot bridge or that the version does not have.
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

// maxUI bounds the client's MCP Apps capability, which is part of its session ID, in bytes.
const maxUI = 256

// declares reports whether the object has the member with an object as value.
func declares(o raw.Object, name string) bool {
	v, err := o.Get(name)
	return err == nil && v[0] == '{'
}
