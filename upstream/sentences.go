package upstream

import (
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
)

// sentence is the whole text with which an SDK fails a call, if a tool sends a request to the
// client in the modern era. The protocol has no error code for it.
type sentence struct {
	// {method} stands for the method of the request, {tool} for the name of the tool
	text string
	// the method of the request, if the text does not have it; "" if that is not known
	method mcp.MCPMethod
}

// sentences are the errors of the SDKs, as they were read from servers of each. A text that only
// contains one of them does not count, because callers can choose a part of a text.
var sentences = []sentence{
	// TypeScript SDK 2.0 to 2.4
	{text: "Server-to-client requests are not available on protocol revision 2026-07-28: '{method}' cannot be sent " +
		"while serving a request on that revision. Return inputRequired({ ... }) from the handler instead — the " +
		"client fulfils the embedded requests and retries the original request (multi round-trip requests)."},
	{text: "Method '{method}' is not supported by the negotiated protocol version (wire era 2026-07-28)"},
	// Python SDK 2.0 to 2.3
	{text: "Cannot send '{method}': this transport context has no back-channel for server-initiated requests."},
	// FastMCP 4.0 and 4.1
	{text: "Error calling tool '{tool}': Cannot send '{method}': this transport context has no back-channel for " +
		"server-initiated requests."},
	{text: "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.",
		method: mcp.MethodElicitationCreate},
	// go-sdk 1.7 and 1.8, and the server of its conformance tests
	{text: "\"{method}\" cannot be sent while serving a request on protocol version 2026-07-28: return an " +
		"InputRequests map instead (multi round-trip requests, SEP-2322)"},
	{text: "sampling failed: \"{method}\" cannot be sent while serving a request on protocol version 2026-07-28: " +
		"return an InputRequests map instead (multi round-trip requests, SEP-2322)"},
	{text: "elicitation failed: \"{method}\" cannot be sent while serving a request on protocol version 2026-07-28: " +
		"return an InputRequests map instead (multi round-trip requests, SEP-2322)"},
	// mcp-go 1.0 to 1.2
	{text: "\"{method}\": server-initiated requests are not supported in protocol version 2026-07-28 or later: " +
		"return an InputRequests map from the handler instead (multi round-trip requests, SEP-2322)"},
	// rmcp 3.11: the errors of the protocol, of a request, and of an elicitation
	{text: "server-to-client requests are not allowed on protocol 2026-07-28 or later; return InputRequiredResult " +
		"instead"},
	{text: "Mcp error: -32600: server-to-client requests are not allowed on protocol 2026-07-28 or later; return " +
		"InputRequiredResult instead"},
	{text: "Service error: Mcp error: -32600: server-to-client requests are not allowed on protocol 2026-07-28 or " +
		"later; return InputRequiredResult instead", method: mcp.MethodElicitationCreate},
}

// requestMethods are the methods of requests to a client.
var requestMethods = []mcp.MCPMethod{mcp.MethodElicitationCreate, mcp.MethodSamplingCreateMessage, mcp.MethodListRoots}

// longestSentence is the most bytes of a failure that is compared with the sentences: the name of a
// tool may have many.
const longestSentence = 1 << 10

// unsentRequest returns the method of the request that a tool could not send to the client, if the
// whole text of its failure is a sentence of an SDK. The method is "" if the sentence does not tell
// it.
func unsentRequest(text, tool string) (method mcp.MCPMethod, known bool) {
	if len(text) > longestSentence {
		return "", false
	}
	for _, s := range sentences {
		if s.method != "" || !strings.Contains(s.text, "{method}") {
			if s.with(s.method, tool) == text {
				return s.method, true
			}
			continue
		}
		for _, method := range requestMethods {
			if s.with(method, tool) == text {
				return method, true
			}
		}
	}
	return "", false
}

func (s sentence) with(method mcp.MCPMethod, tool string) string {
	return strings.NewReplacer("{method}", string(method), "{tool}", tool).Replace(s.text)
}

// answers reports whether a client of the profile can answer a request of that method; any request
// if it is "".
func answers(p client.Profile, method mcp.MCPMethod) bool {
	if method == "" {
		return p.Asks()
	}
	return p.Answers(string(method))
}
