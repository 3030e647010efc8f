package upstreamtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// errGraceful ends a subscription with its result.
var errGraceful = errors.New("ended by the server")

// Server is one MCP server, on as many wires as a test likes. Its methods may be called from several goroutines.
type Server struct {
	Journal
	script Script
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	exit   func(code int) // of a child process; nil in a test's own

	state    sync.Mutex // guards the rest; never held while a connection is written to
	tools    []json.RawMessage
	rules    []*ruleState
	sessions map[string]*session // of legacy HTTP and of HTTP+SSE by id, of stdio by a made-up one
	latest   *session
	listens  map[*listen]bool
	gates    map[string]chan struct{}
	asks     map[jsonrpc.ID]chan jsonrpc.Message
	serial   int // of the last session id, question or stream
}

type ruleState struct {
	Rule
	seen int
}

// session is what a legacy server remembers of a client; over stdio also what a modern one remembers of the calls in progress.
type session struct {
	id  string
	out *stream         // for what belongs to no call
	ctx context.Context // of the event stream of HTTP+SSE, and so of the calls on it

	mu          sync.Mutex
	version     string
	initialized bool
	ended       bool
	calls       map[jsonrpc.ID]context.CancelFunc
	running     sync.WaitGroup     // the goroutines of calls on HTTP+SSE
	streams     map[string]*stream // by the prefix of their event ids
}

// listen is one subscriptions/listen. Its out is written under mu, so that nothing comes before the acknowledgement.
type listen struct {
	id     jsonrpc.ID
	out    *stream
	tools  bool
	mu     sync.Mutex
	finish context.CancelCauseFunc // with errGraceful: after the result
}

// New returns a server that serves nothing yet. It panics when the script makes no sense, which is a mistake in a test.
func New(script Script) *Server {
	script = script.withDefaults()
	s := &Server{
		script: script, tools: script.Tools,
		sessions: map[string]*session{}, listens: map[*listen]bool{}, gates: map[string]chan struct{}{}, asks: map[jsonrpc.ID]chan jsonrpc.Message{},
	}
	s.quiet = script.Quiet
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.AddRules(script.Rules...)
	return s
}

// Close ends everything in progress: calls without an answer, streams and subscriptions at once. It waits for nothing; the wires do.
func (s *Server) Close() { s.cancel() }

// AddRules makes the server misbehave from now on. They come after the rules it has.
func (s *Server) AddRules(rules ...Rule) {
	s.state.Lock()
	defer s.state.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &ruleState{Rule: r})
	}
}

// ClearRules makes it behave.
func (s *Server) ClearRules() {
	s.state.Lock()
	defer s.state.Unlock()
	s.rules = nil
}

func (s *Server) rule(method string) (Rule, bool) {
	s.state.Lock()
	defer s.state.Unlock()
	for _, r := range s.rules {
		if r.Method != method && r.Method != "*" {
			continue
		}
		if r.seen++; r.seen > r.Skip && (r.Times == 0 || r.seen <= r.Skip+r.Times) {
			return r.Rule, true
		}
	}
	return Rule{}, false
}

// SetTools changes the list and tells those who want to know, before it returns.
func (s *Server) SetTools(tools []json.RawMessage) {
	s.state.Lock()
	s.tools = tools
	s.state.Unlock()
	if !s.script.NoListChanged {
		s.Notify("notifications/tools/list_changed", nil)
	}
}

// Notify sends a notification to every legacy session that is initialized, outside of any call. A change of the tools also goes to the subscriptions.
func (s *Server) Notify(method string, params json.RawMessage) {
	s.state.Lock()
	sessions, listens := slices.Collect(maps.Values(s.sessions)), slices.Collect(maps.Keys(s.listens))
	s.state.Unlock()
	for _, se := range sessions {
		if se.ready() {
			se.out.send(bytes.NewReader(jsonrpc.AppendRequest(nil, "", method, params)), false)
		}
	}
	for _, l := range listens {
		if l.tools && method == "notifications/tools/list_changed" {
			l.mu.Lock()
			l.write(method, "")
			l.mu.Unlock()
		}
	}
}

// Release lets one call, waiting or to come, through the gate of that name.
func (s *Server) Release(gate string) { s.gate(gate) <- struct{}{} }

func (s *Server) gate(name string) chan struct{} {
	s.state.Lock()
	defer s.state.Unlock()
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{}, 1000) // permits, so that Release need not wait for the call
	}
	return s.gates[name]
}

// EndSessions forgets all legacy sessions over HTTP and ends their streams: the next request of each client is answered 404.
func (s *Server) EndSessions() {
	s.state.Lock()
	var ended []*session
	for id, se := range s.sessions {
		if se.out.framing == events {
			ended = append(ended, se)
			delete(s.sessions, id)
		}
	}
	s.state.Unlock()
	for _, se := range ended {
		se.out.hangUp()
	}
}

// EndStreams ends the listening streams of all clients: those of subscriptions/listen with their result if graceful, otherwise without a word.
func (s *Server) EndStreams(graceful bool) {
	s.state.Lock()
	sessions, listens := slices.Collect(maps.Values(s.sessions)), slices.Collect(maps.Keys(s.listens))
	s.state.Unlock()
	for _, se := range sessions {
		se.out.hangUp()
	}
	for _, l := range listens {
		if graceful {
			l.finish(errGraceful)
		} else {
			l.finish(nil)
		}
	}
}

// Ask sends a request outside of any call to the session that was begun last, and blocks until it is answered. The error is that of ctx, or says that
// there is no session.
func (s *Server) Ask(ctx context.Context, method string, params json.RawMessage) (jsonrpc.Message, error) {
	s.state.Lock()
	se := s.latest
	s.state.Unlock()
	if se == nil {
		return jsonrpc.Message{}, fmt.Errorf("ask %s: no session", method)
	}
	return s.ask(ctx, se.out, method, params)
}

func (s *Server) ask(ctx context.Context, out *stream, method string, params json.RawMessage) (jsonrpc.Message, error) {
	answer := make(chan jsonrpc.Message, 1)
	id := jsonrpc.ID(raw.Quote("ask-" + s.next()))
	s.state.Lock()
	s.asks[id] = answer
	s.state.Unlock()
	defer func() {
		s.state.Lock()
		defer s.state.Unlock()
		delete(s.asks, id)
	}()
	if err := out.send(bytes.NewReader(jsonrpc.AppendRequest(nil, id, method, params)), false); err != nil && out.ids == "" {
		return jsonrpc.Message{}, fmt.Errorf("ask %s: %w", method, err)
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, fmt.Errorf("ask %s: %w", method, context.Cause(ctx))
	case <-s.ctx.Done():
		return jsonrpc.Message{}, fmt.Errorf("ask %s: the server was closed", method)
	}
}

func (s *Server) next() string {
	s.state.Lock()
	defer s.state.Unlock()
	s.serial++
	return strconv.Itoa(s.serial)
}

func (s *Server) begin(out *stream, initialized bool) *session {
	se := &session{id: "session-" + s.next(), out: out, initialized: initialized, calls: map[jsonrpc.ID]context.CancelFunc{}, streams: map[string]*stream{}}
	s.state.Lock()
	defer s.state.Unlock()
	s.sessions[se.id], s.latest = se, se
	return se
}

func (s *Server) session(id string) *session {
	s.state.Lock()
	defer s.state.Unlock()
	return s.sessions[id]
}

func (s *Server) forget(se *session) {
	s.state.Lock()
	defer s.state.Unlock()
	delete(s.sessions, se.id)
	if s.latest == se {
		s.latest = nil
	}
}

func (se *session) ready() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.initialized
}

// take handles a message that is no request.
func (s *Server) take(se *session, m *jsonrpc.Message) {
	switch {
	case m.IsResponse():
		s.state.Lock()
		defer s.state.Unlock()
		if answer := s.asks[m.ID]; answer != nil {
			delete(s.asks, m.ID)
			answer <- *m
		}
	case m.Method == "notifications/initialized":
		se.mu.Lock()
		defer se.mu.Unlock()
		se.initialized = se.version != ""
	case m.Method == "notifications/cancelled":
		id, _ := raw.Get(m.Params, "requestId")
		se.mu.Lock()
		defer se.mu.Unlock()
		if cancel := se.calls[jsonrpc.ID(id)]; cancel != nil {
			cancel()
		}
	}
}

// call is one request on its way to an answer.
type call struct {
	s      *Server
	m      *jsonrpc.Message
	se     *session
	out    *stream
	modern bool
	http   *exchange // on Streamable HTTP
}

// plan returns what answers the request: a rule, or serve.
func (c *call) plan() (answer func(context.Context), ruled bool) {
	if r, ok := c.s.rule(c.m.Method); ok {
		return func(ctx context.Context) { c.obey(ctx, r) }, true
	}
	return c.serve, false
}

// serve answers the request; it returns when that is done, or when ctx has ended and there is nothing to answer.
func (c *call) serve(ctx context.Context) {
	if c.modern && !c.check() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.se.mu.Lock()
	twice := c.se.calls[c.m.ID] != nil
	if !twice {
		c.se.calls[c.m.ID] = cancel
		defer func() {
			c.se.mu.Lock()
			defer c.se.mu.Unlock()
			delete(c.se.calls, c.m.ID)
		}()
	}
	initialized := c.se.initialized
	c.se.mu.Unlock()
	switch method := c.m.Method; {
	case twice:
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
		c.se = c.s.begin(c.s.listening(), false)
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

func (c *call) send(message []byte) { c.out.send(bytes.NewReader(message), true) }

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
