package upstreamtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// The keys of _meta that make a request modern, and that tie a notification to its subscription.
const (
	keyVersion      = "io.modelcontextprotocol/protocolVersion"
	keyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	keyServer       = "io.modelcontextprotocol/serverInfo"
	keyClient       = "io.modelcontextprotocol/clientInfo"
	keyLogLevel     = "io.modelcontextprotocol/logLevel"
	keySubscription = "io.modelcontextprotocol/subscriptionId"
	keyRelatedTask  = "io.modelcontextprotocol/related-task" // of 2025-11-25

	extensionTasks = "io.modelcontextprotocol/tasks"
)

// call is one request on its way to an answer.
type call struct {
	s      *Server
	m      *jsonrpc.Message
	se     *session
	out    *stream
	modern bool
	http   *exchange // on Streamable HTTP

	cancel context.CancelFunc
	twice  bool // another call in progress has its id
	held   bool // se.calls has it
	steps  int  // of progress so far
}

// plan returns what answers the request: a rule, or serve.
func (c *call) plan() (answer func(context.Context), ruled bool) {
	if r, ok := c.s.rule(c.m.Method, c.modern); ok {
		return func(ctx context.Context) { c.obey(ctx, r) }, true
	}
	return c.serve, false
}

// register makes the call one that can be cancelled, before the next message is read. The context
// is the call's; end follows.
func (c *call) register(ctx context.Context) context.Context {
	ctx, c.cancel = context.WithCancel(ctx)
	c.se.mu.Lock()
	defer c.se.mu.Unlock()
	if c.twice = c.se.calls[c.m.ID] != nil; !c.twice {
		c.se.calls[c.m.ID], c.held = c.cancel, true
	}
	if c.se.early[c.m.ID] {
		c.cancel()
	}
	return ctx
}

func (c *call) end() {
	c.forget()
	c.cancel()
}

// forget gives the id free.
func (c *call) forget() {
	c.se.mu.Lock()
	defer c.se.mu.Unlock()
	if c.held {
		delete(c.se.calls, c.m.ID)
		c.held = false
	}
}

// serve answers the request; it returns when that is done, or when ctx has ended and there is
// nothing to answer.
func (c *call) serve(ctx context.Context) {
	if c.modern && !c.check() {
		return
	}
	initialized := c.se.ready()
	if q, ok := c.s.script.AsksDuring[c.m.Method]; ok && !c.interject(ctx, q) {
		return
	}
	switch method := c.m.Method; {
	case c.twice:
		c.fail(200, -32600, "the id is in use", nil)
	case method == "initialize" && !c.modern:
		c.initialize()
	case method == "ping" && !c.modern:
		c.result("")
	case method == "server/discover" && c.modern:
		c.result(`"supportedVersions":%s,"capabilities":%s,%s%s`, mustJSON(c.s.script.Versions),
			c.s.script.capabilities(true), c.caching(), c.instructions())
	case method == "subscriptions/listen" && c.modern:
		c.listen(ctx)
	case !c.s.has(method, c.modern):
		c.fail(404, -32601, "Method not found", nil)
	case !c.modern && !initialized:
		c.fail(200, -32600, "the session is not initialized", nil)
	default:
		c.feature(ctx, method)
	}
}

// has reports whether the server has the method, which is none of the lifecycle's.
func (s *Server) has(method string, modern bool) bool {
	kind, _, _ := strings.Cut(method, "/")
	switch method {
	case "tools/list", "tools/call":
		return true
	case "prompts/list", "prompts/get":
		return s.script.prompts()
	case "resources/list", "resources/templates/list", "resources/read":
		return s.script.resources()
	case "resources/subscribe", "resources/unsubscribe":
		return s.script.resources() && !s.script.NoSubscribe && !modern
	case "skills/list", "skills/get":
		return s.script.Skills != nil
	case "resources/directory/read":
		return s.script.Directories != nil
	case "completion/complete":
		return s.script.Completions != nil
	case "logging/setLevel":
		return s.script.Logging && !modern
	case "tasks/update":
		return s.script.Tasks && modern
	case "tasks/list", "tasks/result":
		return s.script.Tasks && !modern
	}
	return s.script.Tasks && kind == "tasks"
}

// feature answers a request of a method that the server has.
func (c *call) feature(ctx context.Context, method string) {
	switch method {
	case "tools/call":
		c.tool(ctx)
	case "prompts/get":
		c.prompt(ctx)
	case "resources/read":
		c.read(ctx)
	case "resources/subscribe", "resources/unsubscribe":
		c.subscribe()
	case "skills/get":
		c.skill()
	case "resources/directory/read":
		c.directory()
	case "completion/complete":
		c.complete()
	case "logging/setLevel":
		c.setLevel()
	case "tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result":
		c.task(ctx, strings.TrimPrefix(method, "tasks/"))
	default:
		c.list(listKinds[method])
	}
}

// obey answers as the rule says.
func (c *call) obey(ctx context.Context, r Rule) {
	switch {
	case r.Hang:
		<-ctx.Done()
	case r.Die:
		c.out.die()
	case r.Result != nil:
		c.answer(r.Result)
	case r.Error != nil:
		if c.http != nil && r.Status != 0 {
			c.http.status = r.Status
		}
		c.refuse(r.Error)
	case c.http != nil:
		c.http.refuse(r.Status, r.Header, r.Body)
	default:
		c.fail(200, -32603, fmt.Sprintf("a rule for HTTP: status %d", r.Status), nil)
	}
}

func (c *call) initialize() {
	version, err := raw.Get(c.m.Params, "protocolVersion")
	offered, _ := raw.String(version)
	if err != nil || !c.s.script.speaks(false) {
		c.unsupported(offered)
		return
	}
	legacy := slices.DeleteFunc(slices.Clone(c.s.script.Versions), func(v string) bool { return v >= firstModern })
	if !slices.Contains(legacy, offered) {
		offered = slices.Max(legacy)
	}
	if c.http != nil && !c.s.script.NoSession {
		c.se = c.s.begin(c.s.listening())
		c.http.w.Header().Set("Mcp-Session-Id", c.se.id)
	}
	c.se.mu.Lock()
	c.se.version = offered
	if capabilities, err := raw.Get(c.m.Params, "capabilities"); err == nil {
		c.se.capabilities = bytes.Clone(capabilities)
	}
	if info, err := raw.Get(c.m.Params, "clientInfo"); err == nil {
		c.se.clientInfo = bytes.Clone(info)
	}
	c.se.mu.Unlock()
	c.result(`"protocolVersion":%s,"capabilities":%s,"serverInfo":%s%s`, raw.Quote(offered),
		c.s.script.capabilities(false), c.identity(), c.instructions())
}

// instructions returns the member with a comma before it; "" for none.
func (c *call) instructions() string {
	if c.s.script.Instructions == "" {
		return ""
	}
	return `,"instructions":` + string(raw.Quote(c.s.script.Instructions))
}

func (c *call) identity() string {
	return fmt.Sprintf(`{"name":%s,"version":"1.0.0"}`, raw.Quote(c.s.script.Name))
}

func (c *call) caching() string {
	return fmt.Sprintf(`"ttlMs":%d,"cacheScope":%s`, c.s.script.TTLMs, raw.Quote(c.s.script.CacheScope))
}

func (c *call) unsupported(requested string) {
	c.fail(400, -32022, "Unsupported protocol version",
		fmt.Appendf(nil, `{"supported":%s,"requested":%s}`, mustJSON(c.s.script.Versions), raw.Quote(requested)))
}

// check makes the checks of a modern request in the order of the specification, and answers one
// that fails.
func (c *call) check() bool {
	meta, _ := raw.Get(c.m.Params, "_meta")
	v, err := raw.Get(meta, keyVersion)
	version, _ := raw.String(v)
	if c.http != nil {
		h := c.http.r.Header
		named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
			"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}[c.m.Method]
		n, _ := raw.Get(c.m.Params, named)
		name, _ := raw.String(n)
		switch {
		case err == nil && h.Get("Mcp-Protocol-Version") != version:
			return c.fail(400, -32020, "Header mismatch: MCP-Protocol-Version", nil)
		case h.Get("Mcp-Method") != c.m.Method:
			return c.fail(400, -32020, "Header mismatch: Mcp-Method", nil)
		case named != "" && !headerIs(h, "Mcp-Name", name):
			return c.fail(400, -32020, "Header mismatch: Mcp-Name", nil)
		}
	}
	capabilities, errCapabilities := raw.Get(meta, keyCapabilities)
	if err != nil || errCapabilities != nil || capabilities[0] != '{' {
		return c.fail(400, -32602, "_meta lacks the protocol version or the client's capabilities", nil)
	}
	if version < firstModern || !slices.Contains(c.s.script.Versions, version) {
		c.unsupported(version)
		return false
	}
	return true
}

// headerIs compares a header that may be in Base64 between =?base64? and ?= with what it should
// say.
func headerIs(h http.Header, name, want string) bool {
	got := h.Get(name)
	if text, ok := strings.CutPrefix(got, "=?base64?"); ok && strings.HasSuffix(text, "?=") {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?="))
		return err == nil && string(b) == want
	}
	return got == want && len(h.Values(name)) == 1
}

// result answers with an object of these members and what the era adds.
func (c *call) result(format string, args ...any) {
	members := fmt.Sprintf(format, args...)
	if c.modern {
		if members != "" {
			members += ","
		}
		members += `"resultType":"complete","_meta":{"` + keyServer + `":` + c.identity() + `}`
	}
	c.answer([]byte("{" + members + "}"))
}

// answer sends a result verbatim, except for the pad of the script.
func (c *call) answer(result []byte) {
	if n := c.s.script.Pad[c.m.Method]; n > 0 {
		padded := append(append([]byte(`{"pad":"`), bytes.Repeat([]byte{'x'}, n)...), `",`...)
		result = append(padded, result[1:]...)
	}
	c.send(c.response(result))
}

func (c *call) response(result []byte) []byte {
	return append(append(jsonrpc.ResponseHead(nil, c.m.ID), result...), '}')
}

func (c *call) send(message []byte) { c.sendFrom(bytes.NewReader(message)) }

func (c *call) sendFrom(message io.Reader) {
	c.forget() // before the client can use the id again
	c.out.send(message, true)
}

// refuse sends an error verbatim.
func (c *call) refuse(e []byte) {
	c.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, c.m.ID, e))
}

// fail answers with an error of ours. The status is for modern HTTP; everywhere else there is none.
// It returns false.
func (c *call) fail(status int, code int64, text string, data []byte) bool {
	if c.http != nil && (c.modern || !c.s.script.speaks(false)) {
		c.http.status = status
	}
	c.send(jsonrpc.AppendError(nil, c.m.ID, &jsonrpc.Error{Code: code, Message: text, Data: data}))
	return false
}

// notify sends a notification on the call's stream.
func (c *call) notify(method, format string, args ...any) error {
	return c.out.notify(method, fmt.Appendf(nil, format, args...))
}
