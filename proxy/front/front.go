package front

import (
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/upstream/raw"
)

// eraFront handles messages of one era: legacyFront or modernFront.
type eraFront interface {
	// post validates a message by the rules of the era and serves it.
	post(x *request)
}

// frontFor chooses the era of a message (2026-07-28, basic/versioning). It is the modern era if
// _meta has a protocol version or if the version header is modernVersion. Otherwise it is the
// legacy era.
func (s *Server) frontFor(x *request) eraFront {
	if _, err := x.Meta.Get(mcp.MetaKeyProtocolVersion); err != raw.ErrAbsent {
		return modernFront{s}
	}
	if v := header(x.request.Header, "Mcp-Protocol-Version"); v == proxy.ModernVersion {
		return modernFront{s}
	}
	return legacyFront{s}
}

// maxClient bounds the client's name in session IDs and in the log, in bytes.
const maxClient = 64

// clientName returns the client's name for itself, which is in a member of o; "" if there is none.
func clientName(o raw.Object, member string) string {
	info, _ := o.Object(member)
	name, _ := info.String("name")
	return name[:min(len(name), maxClient)]
}

// header returns the first value of a header without surrounding white space; "" if there is none.
func header(h http.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return strings.TrimSpace(values[0])
}
