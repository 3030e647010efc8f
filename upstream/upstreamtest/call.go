package upstreamtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// The keys of _meta that make a request modern, and that tie a notification to its subscription.
const (
	keyVersion      = "io.modelcontextprotocol/protocolVersion"
	keyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	keyServer       = "io.modelcontextprotocol/serverInfo"
	keySubscription = "io.modelcontextprotocol/subscriptionId"
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
}

// plan returns what answers the request: a rule, or serve.
func (c *call) plan() (answer func(context.Context), ruled bool) {
	if r, ok := c.s.rule(c.m.Method); ok {
		return func(ctx context.Context) { c.obey(ctx, r) }, true
	}
	return c.serve, false
}

// register makes the call one that can be cancelled, before the next message is read. The context is the call's; end follows.
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

// serve answers the request; it returns when that is done, or when ctx has ended and there is nothing to answer.
func (c *call) serve(ctx context.Context) {
	if c.modern && !c.check() {
		return
	}
	initialized := c.se.ready()
	switch method := c.m.Method; {
	case c.twice:
		c.fail(200, -32600, "the id is in use", nil)
	case method == "initialize" && !c.modern:
		c.initialize()
	case method == "ping" && !c.modern:
		c.result("")
	case method == "server/discover" && c.modern:
		c.result(`"supportedVersions":%s,"capabilities":%s,%s`, mustJSON(c.s.script.Versions), c.s.script.Capabilities, c.caching())
	case method == "subscriptions/listen" && c.modern:
		c.listen(ctx)
	case method != "tools/list" && method != "tools/call":
		c.fail(404, -32601, "Method not found", nil)
	case !c.modern && !initialized:
		c.fail(200, -32600, "the session is not initialized", nil)
	case method == "tools/list":
		c.list()
	default:
		c.tool(ctx)
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
	c.se.mu.Unlock()
	c.result(`"protocolVersion":%s,"capabilities":%s,"serverInfo":%s`, raw.Quote(offered), c.s.script.Capabilities, c.identity())
}

func (c *call) identity() string {
	return fmt.Sprintf(`{"name":%s,"version":"1.0.0"}`, raw.Quote(c.s.script.Name))
}

func (c *call) caching() string {
	return fmt.Sprintf(`"ttlMs":%d,"cacheScope":%s`, c.s.script.TTLMs, raw.Quote(c.s.script.CacheScope))
}

func (c *call) unsupported(requested string) {
	c.fail(400, -32022, "Unsupported protocol version", fmt.Appendf(nil, `{"supported":%s,"requested":%s}`, mustJSON(c.s.script.Versions), raw.Quote(requested)))
}

// check makes the checks of a modern request in the order of the specification, and answers one that fails.
func (c *call) check() bool {
	meta, _ := raw.Get(c.m.Params, "_meta")
	v, err := raw.Get(meta, keyVersion)
	version, _ := raw.String(v)
	if c.http != nil {
		h := c.http.r.Header
		named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[c.m.Method]
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

// headerIs compares a header that may be in Base64 between =?base64? and ?= with what it should say.
func headerIs(h http.Header, name, want string) bool {
	got := h.Get(name)
	if text, ok := strings.CutPrefix(got, "=?base64?"); ok && strings.HasSuffix(text, "?=") {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?="))
		return err == nil && string(b) == want
	}
	return got == want && len(h.Values(name)) == 1
}

func (c *call) list() {
	c.s.state.Lock()
	tools := c.s.tools
	c.s.state.Unlock()
	size := c.s.script.PageSize
	if size <= 0 {
		size = max(1, len(tools))
	}
	page := 0
	if v, err := raw.Get(c.m.Params, "cursor"); err == nil {
		cursor, _ := raw.String(v)
		n, err := strconv.Atoi(strings.TrimPrefix(cursor, "page-"))
		switch {
		case cursor == "" && c.s.script.EmptyCursor, cursor == "again" && c.s.script.LoopCursor:
			page = 1
		case err == nil && 0 < n && n*size < len(tools):
			page = n
		default:
			c.fail(200, -32602, "Invalid cursor", nil)
			return
		}
	}
	from, to, next := min(page*size, len(tools)), min((page+1)*size, len(tools)), ""
	switch {
	case c.s.script.LoopCursor:
		next = `,"nextCursor":"again"`
	case to < len(tools) && page == 0 && c.s.script.EmptyCursor:
		next = `,"nextCursor":""`
	case to < len(tools):
		next = fmt.Sprintf(`,"nextCursor":"page-%d"`, page+1)
	}
	if c.modern {
		next += "," + c.caching()
	}
	var list []byte
	for i, t := range tools[from:to] {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, t...)
	}
	c.result(`"tools":[%s]%s`, list, next)
}

// errGraceful ends a subscription with its result.
var errGraceful = errors.New("ended by the server")

// listen is one subscriptions/listen. Its out is written under mu, so that nothing comes before the acknowledgement.
type listen struct {
	id     jsonrpc.ID
	out    *stream
	tools  bool
	mu     sync.Mutex
	finish context.CancelCauseFunc // with errGraceful: after the result
}

// listen serves one subscription until the client or the server ends it.
func (c *call) listen(ctx context.Context) {
	wanted, err := raw.Get(c.m.Params, "notifications")
	if err != nil {
		c.fail(200, -32602, "notifications is missing", nil)
		return
	}
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	flag, _ := raw.Get(wanted, "toolsListChanged")
	l := &listen{id: c.m.ID, out: c.out, finish: finish, tools: string(flag) == "true" && !c.s.script.NoListChanged}
	honoured := ""
	if l.tools {
		honoured = `"toolsListChanged":true`
	}
	l.mu.Lock() // nothing is written before the acknowledgement, and no change after it is missed
	c.s.state.Lock()
	c.s.listens[l] = true
	c.s.state.Unlock()
	l.write("notifications/subscriptions/acknowledged", `"notifications":{`+honoured+`},`)
	l.mu.Unlock()
	defer func() {
		c.s.state.Lock()
		defer c.s.state.Unlock()
		delete(c.s.listens, l)
	}()
	<-ctx.Done()
	if context.Cause(ctx) == errGraceful {
		c.answer(fmt.Appendf(nil, `{"resultType":"complete","_meta":{"%s":%s}}`, keySubscription, l.id))
	}
}

// write sends a notification of the subscription; mu is held.
func (l *listen) write(method, members string) {
	params := fmt.Appendf(nil, `{%s"_meta":{"%s":%s}}`, members, keySubscription, l.id)
	l.out.send(bytes.NewReader(jsonrpc.AppendRequest(nil, "", method, params)), false)
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

// answer sends a result verbatim.
func (c *call) answer(result []byte) { c.send(c.response(result)) }

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

// fail answers with an error of ours. The status is for modern HTTP; everywhere else there is none. It returns false.
func (c *call) fail(status int, code int64, text string, data []byte) bool {
	if c.http != nil && (c.modern || !c.s.script.speaks(false)) {
		c.http.status = status
	}
	c.send(jsonrpc.AppendError(nil, c.m.ID, &jsonrpc.Error{Code: code, Message: text, Data: data}))
	return false
}

// notify sends a notification on the call's stream.
func (c *call) notify(method, format string, args ...any) error {
	return c.out.send(bytes.NewReader(jsonrpc.AppendRequest(nil, "", method, fmt.Appendf(nil, format, args...))), false)
}
