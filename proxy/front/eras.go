package front

import (
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/scope"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file chooses the era in which a message is read.
//
// An endpoint with eras: legacy or eras: modern reads a message that mixes the eras as one of its
// own: the header Mcp-Protocol-Version of one era with a body of the other. The parts of the other
// era are then ignored, and those that its own era requires and that are missing are added. Two
// version headers that differ are no mixture. All other rules of the era hold.

// signs are the parts of a message that belong to one era.
type signs struct {
	header  bool // Mcp-Protocol-Version is that of the modern era
	version bool // _meta has a protocol version, as the modern era requires
	session bool // initialize, or a message of a session
}

func (x *request) signs() signs {
	_, err := x.Meta.Get(mcp.MetaKeyProtocolVersion)
	return signs{
		header:  header(x.request.Header, "Mcp-Protocol-Version") == proxy.ModernVersion,
		version: err != raw.ErrAbsent,
		session: x.Msg.Method == string(mcp.MethodInitialize) || header(x.request.Header, "Mcp-Session-Id") != "",
	}
}

// looksModern reports whether a POST is for the modern era, as far as its endpoint and its header tell. It
// decides which member answers. The header of a message that mixes the eras tells nothing.
func (x *request) looksModern() bool {
	switch x.Endpoint.Eras {
	case scope.ErasLegacy:
		return false
	case scope.ErasModern:
		return true
	}
	return header(x.request.Header, "Mcp-Protocol-Version") == proxy.ModernVersion
}

// frontFor chooses the era of a message (2026-07-28, basic/versioning). It is the modern era if
// _meta has a protocol version or if the version header is ModernVersion. Otherwise it is the
// legacy era. On an endpoint of one era, it is that one.
func (s *Server) frontFor(x *request) eraFront {
	signs := x.signs()
	modern := signs.header || signs.version
	switch x.Endpoint.Eras {
	case scope.ErasLegacy:
		if !signs.header || !signs.version || signs.session { // otherwise it is a message of the other era
			x.readAsLegacy()
		}
		return legacyFront{s}
	case scope.ErasModern:
		if !modern && x.Msg.IsRequest() {
			return otherEra{s}
		}
		x.readAsModern(signs)
		return modernFront{s}
	}
	if modern {
		return modernFront{s}
	}
	return legacyFront{s}
}

// twoVersions reports whether a message has version headers that differ: see joinVersion. It is no mixture
// that one client makes, and a gateway may read the other header.
func (x *request) twoVersions() bool { return len(x.request.Header[headerVersion]) > 1 }

// readAsLegacy removes the version header of the modern era: the session, or the default, has the
// version. In the legacy era, _meta has no meaning for this.
func (x *request) readAsLegacy() {
	if !x.twoVersions() && header(x.request.Header, "Mcp-Protocol-Version") == proxy.ModernVersion {
		x.request.Header.Del("Mcp-Protocol-Version")
	}
}

// readAsModern completes a message that mixes the eras. One that has the parts of the modern era in
// another way stays as it is, and is checked.
func (x *request) readAsModern(signs signs) {
	h := x.request.Header
	given := header(h, "Mcp-Protocol-Version")
	version, err := x.Meta.String(mcp.MetaKeyProtocolVersion)
	switch {
	case x.twoVersions():
		return
	case signs.header && !signs.version, signs.header && err == nil && client.IsLegacyVersion(version):
		version = proxy.ModernVersion
	case !signs.header && version == proxy.ModernVersion && (given == "" || client.IsLegacyVersion(given)):
	default:
		return
	}
	x.mixed = true
	h["Mcp-Protocol-Version"] = []string{version}
	if len(h["Mcp-Method"]) == 0 {
		h["Mcp-Method"] = []string{x.Msg.Method}
	}
	if member := x.NamedBy(); member != "" && len(h["Mcp-Name"]) == 0 {
		name, _ := x.Params.String(member)
		encoded, _ := mcp.EncodeHeaderValue(name)
		h["Mcp-Name"] = []string{encoded}
	}
	meta := x.Meta
	if !meta.Present() {
		meta, _ = raw.Parse([]byte("{}"))
	}
	edits := []raw.Edit{{Name: mcp.MetaKeyProtocolVersion, Value: raw.Quote(version)}}
	if _, err := meta.Get(mcp.MetaKeyClientCapabilities); err == raw.ErrAbsent {
		edits = append(edits, raw.Edit{Name: mcp.MetaKeyClientCapabilities, Value: []byte("{}")})
	}
	if meta, err = meta.With(edits...); err == nil {
		x.Meta = meta
	}
}

// mixedHint tells the operator what helps a client that mixes the eras.
const mixedHint = "; for a client that mixes the eras of MCP, set eras for an endpoint of its own"

// otherEra answers requests of the legacy era at an endpoint of the modern era, as a server of the
// modern era alone does: the error has the supported versions (2026-07-28, basic/versioning).
type otherEra struct{ *Server }

func (o otherEra) post(x *request) {
	x.Era = client.EraModern
	version, err := x.Params.String("protocolVersion")
	if x.Msg.Method != string(mcp.MethodInitialize) || err != nil {
		version = header(x.request.Header, "Mcp-Protocol-Version")
	}
	o.reject(x, x.Msg.ID, o.unsupported(x, version))
}

// unsupported returns the error for a version that the endpoint does not support.
func (s *Server) unsupported(x *request, version string) error {
	e := refuse(http.StatusBadRequest, proxy.CodeUnsupportedVersion, "Unsupported protocol version: %.100s", version)
	e.Data = append(append(append([]byte(`{"supported":`), s.Supported(x.Endpoint)...), `,"requested":`...),
		append(raw.Quote(version), '}')...)
	return e
}
