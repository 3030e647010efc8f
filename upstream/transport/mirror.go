package transport

import (
	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
)

// Headers that mirror a modern request, beside HeaderVersion (2026-07-28,
// streamable-http#standard-headers).
const (
	HeaderMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
)

// AppendMirror appends the headers that every modern request has. version and method must be
// VisibleASCII.
func AppendMirror(h []http1.Field, version, method string) []http1.Field {
	return append(h, http1.Field{Name: HeaderVersion, Value: version}, http1.Field{Name: HeaderMethod, Value: method})
}

// AppendMirrorName appends the header for the name, the URI or the task that a request is about.
func AppendMirrorName(h []http1.Field, name string) []http1.Field {
	value, _ := mcp.EncodeHeaderValue(name)
	return append(h, http1.Field{Name: headerName, Value: value})
}
