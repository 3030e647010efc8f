package client

import (
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
)

// This file passes on notifications of extensions that Junction does not know (SEP-2133).

// Extended is a Peer whose client may have declared extensions of the protocol.
type Extended interface {
	// Extensions returns the identifiers of the extensions that the client has declared.
	Extensions() []string
	// Extension takes a notification of a method that Junction does not know. It came on the response
	// stream of the call, before the response. If the client has declared its extension (IsOfExtension),
	// Extension sends it and returns true. It does not block.
	Extension(method string, params []byte) bool
}

// relaysExtension passes a notification on the response stream of a call to its client.
func relaysExtension(peer Peer, m *jsonrpc.Message) bool {
	e, ok := peer.(Extended)
	return ok && e.Extension(m.Method, m.Params)
}

// notifications of MCP begin with this.
const notificationPrefix = "notifications/"

// bridged are the extensions whose notifications Junction would have to change.
var bridged = []string{ExtensionTasks, ExtensionUI, "io.modelcontextprotocol/skills"}

// core are the notifications of MCP itself that Junction does not expect from a server.
var core = []string{string(mcp.MethodNotificationInitialized), string(mcp.MethodNotificationCancelled),
	string(mcp.MethodNotificationRootsListChanged), methodElicitationComplete, notificationAcknowledged}

// IsOfExtension reports whether a notification is one of an extension that Junction does not know. Its
// method has the identifier of the extension, or the name after the prefix of that, behind
// notifications/, as notifications/tasks of io.modelcontextprotocol/tasks.
func IsOfExtension(method, extension string) bool {
	rest, ok := strings.CutPrefix(method, notificationPrefix)
	if !ok || slices.Contains(core, method) {
		return false
	}
	of := func(extension string) bool { return names(rest, extension) }
	return of(extension) && !slices.ContainsFunc(bridged, of)
}

// names reports whether the method of a notification, without its prefix, begins with the identifier of an
// extension, or with the name in it.
func names(method, extension string) bool {
	_, name, _ := strings.Cut(extension, "/")
	return slices.ContainsFunc([]string{extension, name}, func(name string) bool {
		after, found := strings.CutPrefix(method, name)
		return found && name != "" && (after == "" || after[0] == '/')
	})
}
