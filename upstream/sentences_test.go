package upstream

import (
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// said are failures of real servers, whose tools ask in the legacy way. The tool is named ask.
var said = map[string]mcp.MCPMethod{
	"Server-to-client requests are not available on protocol revision 2026-07-28: 'sampling/createMessage' cannot be sent while serving a request on that revision. Return inputRequired({ ... }) from the handler instead — the client fulfils the embedded requests and retries the original request (multi round-trip requests).": mcp.MethodSamplingCreateMessage,
	"Method 'elicitation/create' is not supported by the negotiated protocol version (wire era 2026-07-28)":                                                                                           mcp.MethodElicitationCreate,
	"Cannot send 'roots/list': this transport context has no back-channel for server-initiated requests.":                                                                                             mcp.MethodListRoots,
	"Error calling tool 'ask': Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.":                                                           mcp.MethodElicitationCreate,
	"elicitation via server-initiated requests is unavailable on 2026-07-28 connections.":                                                                                                             mcp.MethodElicitationCreate,
	"\"elicitation/create\" cannot be sent while serving a request on protocol version 2026-07-28: return an InputRequests map instead (multi round-trip requests, SEP-2322)":                         mcp.MethodElicitationCreate,
	"sampling failed: \"sampling/createMessage\" cannot be sent while serving a request on protocol version 2026-07-28: return an InputRequests map instead (multi round-trip requests, SEP-2322)":    mcp.MethodSamplingCreateMessage,
	"\"roots/list\": server-initiated requests are not supported in protocol version 2026-07-28 or later: return an InputRequests map from the handler instead (multi round-trip requests, SEP-2322)": mcp.MethodListRoots,
	"server-to-client requests are not allowed on protocol 2026-07-28 or later; return InputRequiredResult instead":                                                                                   "",
	"Mcp error: -32600: server-to-client requests are not allowed on protocol 2026-07-28 or later; return InputRequiredResult instead":                                                                "",
	"Service error: Mcp error: -32600: server-to-client requests are not allowed on protocol 2026-07-28 or later; return InputRequiredResult instead":                                                 mcp.MethodElicitationCreate,
}

// TestOnlyAWholeSentenceIsKnown: callers can choose a part of a text, and the name in it.
func TestOnlyAWholeSentenceIsKnown(t *testing.T) {
	for text, want := range said {
		if method, known := unsentRequest(text, "ask"); !known || method != want {
			t.Errorf("the request of %q is %q, %v; want %q", text, method, known, want)
		}
		for _, other := range []string{"no file " + text, text + " ", text[1:], text[:len(text)-1], text + text} {
			if _, known := unsentRequest(other, "ask"); known {
				t.Errorf("%q is taken for the sentence of an SDK", other)
			}
		}
	}
	for _, other := range []string{
		"Error calling tool 'other': Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.",
		"Cannot send 'tools/call': this transport context has no back-channel for server-initiated requests.",
		"Cannot send '{method}': this transport context has no back-channel for server-initiated requests.", "",
	} {
		if _, known := unsentRequest(other, "ask"); known {
			t.Errorf("%q is taken for the sentence of an SDK", other)
		}
	}
}
