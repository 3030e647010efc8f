package telemetry

import (
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/attribute"
)

// Attributes of the semantic conventions for MCP. The packages semconv of OpenTelemetry follow an
// older version of them.
const (
	attrMethod    = attribute.Key("mcp.method.name")
	attrVersion   = attribute.Key("mcp.protocol.version")
	attrSession   = attribute.Key("mcp.session.id")
	attrURI       = attribute.Key("mcp.resource.uri")
	attrTool      = attribute.Key("gen_ai.tool.name")
	attrPrompt    = attribute.Key("gen_ai.prompt.name")
	attrOperation = attribute.Key("gen_ai.operation.name")
	attrError     = attribute.Key("error.type")
	attrRequestID = attribute.Key("jsonrpc.request.id")
	attrCode      = attribute.Key("rpc.response.status_code")
	attrNetwork   = attribute.Key("network.transport")
	attrProtocol  = attribute.Key("network.protocol.name")
	attrServer    = attribute.Key("server.address")
	attrPort      = attribute.Key("server.port")
)

// Attributes of Junction.
const (
	attrUpstream     = attribute.Key("junction.upstream")
	attrOutcome      = attribute.Key("junction.outcome")
	attrHTTPRequest  = attribute.Key("junction.request.id") // X-Request-Id
	attrEndpoint     = attribute.Key("junction.endpoint")
	attrNotification = attribute.Key("junction.notification")
	attrLimit        = attribute.Key("junction.limit")
	attrReason       = attribute.Key("junction.reason")
	attrResult       = attribute.Key("junction.result")
	attrState        = attribute.Key("junction.state")
	attrKind         = attribute.Key("junction.kind")
	attrStore        = attribute.Key("junction.store.operation")
	attrPage         = attribute.Key("junction.page")
	attrForwarded    = attribute.Key("junction.forward.outcome")
	attrConfigKey    = attribute.Key("junction.config.key")
	attrPart         = attribute.Key("junction.part")
	attrBuild        = attribute.Key("service.version")
	attrOverflow     = attribute.Key("otel.metric.overflow")
)

// executeTool is the gen_ai.operation.name of tools/call.
const executeTool = "execute_tool"

// toolError is the error.type of a result with isError.
const toolError = "tool_error"

// other replaces a value that has no bound.
const other = "_OTHER"

// bounds are the boundaries of durations in seconds, by the conventions.
var bounds = [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// methods are the methods of MCP that a client or a server may send as requests.
var methods = []string{string(mcp.MethodToolsCall), string(mcp.MethodToolsList), string(mcp.MethodPing),
	string(mcp.MethodPromptsGet), string(mcp.MethodPromptsList), string(mcp.MethodResourcesRead),
	string(mcp.MethodResourcesList), string(mcp.MethodResourcesTemplatesList), string(mcp.MethodResourcesSubscribe),
	string(mcp.MethodResourcesUnsubscribe), string(mcp.MethodCompletionComplete), string(mcp.MethodSetLogLevel),
	string(mcp.MethodServerDiscover), string(mcp.MethodSubscriptionsListen), string(mcp.MethodInitialize),
	string(mcp.MethodElicitationCreate), string(mcp.MethodSamplingCreateMessage), string(mcp.MethodListRoots),
	"tasks/get", "tasks/update", "tasks/cancel", "skills/list", "skills/get", "resources/directory/read"}

// methodOf returns the method, or other for one that does not exist: clients and servers choose the
// text.
func methodOf(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return other
}

// named reports which attribute the name of a request is; "" for none. Names of resources are URIs,
// which have no bound.
func named(method string) attribute.Key {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall:
		return attrTool
	case mcp.MethodPromptsGet:
		return attrPrompt
	}
	return ""
}
