package bridge

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/definition"
	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

const (
	methodListen       = "subscriptions/listen"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
	metaSubscription   = "io.modelcontextprotocol/subscriptionId"

	codeHeaderMismatch = -32020 // 2026-07-28, streamable-http#server-validation

	maxListPages = 1000             // of tools/list
	maxListen    = 30 * time.Second // pause before a subscription is renewed
)

// modernVersion returns the protocol version of a modern request.
func modernVersion(m *jsonrpc.Message) (string, bool) {
	meta, err := m.Body.Object("_meta")
	if err != nil {
		return "", false
	}
	version, err := meta.String(mcp.MetaKeyProtocolVersion)
	return version, err == nil
}

// modernHeader returns the headers that mirror a request (2026-07-28,
// streamable-http#standard-headers).
func modernHeader(m *jsonrpc.Message, version string) ([]http1.Field, error) {
	if !transport.VisibleASCII(version) || !transport.VisibleASCII(m.Method) {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS,
			Message: "the method or the protocol version has invalid characters"}
	}
	member := ""
	switch {
	case m.Method == string(mcp.MethodToolsCall), m.Method == string(mcp.MethodPromptsGet):
		member = "name"
	case m.Method == string(mcp.MethodResourcesRead):
		member = "uri"
	case strings.HasPrefix(m.Method, "tasks/"):
		member = "taskId"
	}
	h := transport.AppendMirror(nil, version, m.Method)
	if name, err := m.Body.String(member); member != "" && err == nil {
		h = transport.AppendMirrorName(h, name)
	}
	return h, nil
}

// callModern sends a request without a session.
func (b *bridge) callModern(ctx context.Context, m *jsonrpc.Message, version string) (*jsonrpc.Message, error) {
	header, err := modernHeader(m, version)
	if err != nil {
		return nil, err
	}
	call := func() (*jsonrpc.Message, error) {
		return b.persist(ctx, func() (*jsonrpc.Message, error) {
			req := &transport.Request{Message: *m,
				Header: append(header[:len(header):len(header)], b.headers.fields(m)...)}
			return b.modern.Call(ctx, req, b.out.write)
		})
	}
	answer, err := call()
	if m.Method == string(mcp.MethodToolsCall) && mismatch(answer, err) && b.learnHeaders(ctx, m, version) {
		answer, err = call()
	}
	if m.Method == string(mcp.MethodToolsList) && err == nil {
		b.headers.learn(answer.Body)
	}
	return answer, err
}

// mismatch reports whether the endpoint missed a header, or saw another value.
func mismatch(answer *jsonrpc.Message, err error) bool {
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		answer = status.Message
	}
	return answer != nil && answer.Error != nil && answer.Error.Code == codeHeaderMismatch
}

// paramHeaders are the arguments that go into headers too, by tool. Clients on stdio need not send
// headers, so that the bridge reads them from the lists of tools that it sees.
type paramHeaders struct {
	mu    sync.Mutex
	tools map[string][]definition.ParamHeader
}

// learn reads a result of tools/list.
func (p *paramHeaders) learn(result raw.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tools) == 0 && !bytes.Contains(result.Text(), []byte("x-mcp-header")) {
		return
	}
	if p.tools == nil {
		p.tools = map[string][]definition.ParamHeader{}
	}
	list, err := result.Elements("tools")
	if err != nil {
		return
	}
	for _, text := range list {
		tool, err := raw.Parse(text)
		if err != nil {
			continue
		}
		name, err := tool.String("name")
		if err != nil {
			continue
		}
		delete(p.tools, name)
		schema, _ := tool.Get("inputSchema")
		if headers, err := definition.Headers(schema, nil); err == nil && len(headers) > 0 {
			p.tools[name] = headers
		}
	}
}

// fields returns the headers for the arguments of a call.
func (p *paramHeaders) fields(m *jsonrpc.Message) []http1.Field {
	if m.Method != string(mcp.MethodToolsCall) {
		return nil
	}
	name, err := m.Body.String("name")
	if err != nil {
		return nil
	}
	p.mu.Lock()
	headers := p.tools[name]
	p.mu.Unlock()
	if len(headers) == 0 {
		return nil
	}
	arguments, err := m.Body.Object("arguments")
	if err != nil {
		return nil
	}
	return definition.EncodeHeaders(headers, arguments)
}

// learnHeaders lists the tools on behalf of the client. It reports whether that succeeded.
func (b *bridge) learnHeaders(ctx context.Context, m *jsonrpc.Message, version string) bool {
	meta, err := m.Body.Get("_meta")
	if err != nil {
		return false
	}
	if meta, err = raw.Set(meta, nil, "progressToken"); err != nil {
		return false
	}
	var cursor []byte
	for range maxListPages {
		params := append([]byte(`{"_meta":`), meta...)
		if cursor != nil {
			params = append(append(params, `,"cursor":`...), cursor...)
		}
		list := jsonrpc.Message{ID: `"junction-tools"`, Method: string(mcp.MethodToolsList),
			Params: append(params, '}')}
		header, err := modernHeader(&list, version)
		if err != nil {
			return false
		}
		answer, err := b.modern.Call(ctx, &transport.Request{Message: list, Header: header}, nil)
		if err != nil || answer.Error != nil {
			return false
		}
		b.headers.learn(answer.Body)
		if cursor, err = answer.Body.Get("nextCursor"); err != nil {
			return true
		}
	}
	return true
}

// listen keeps a subscription until the client cancels it, also while the endpoint restarts. It
// returns only when the endpoint rejects the subscription.
func (b *bridge) listen(ctx context.Context, m *jsonrpc.Message, version string) (*jsonrpc.Message, error) {
	header, err := modernHeader(m, version)
	if err != nil {
		return nil, err
	}
	acknowledged, fresh := false, false
	take := func(got *jsonrpc.Message) {
		if fresh = true; got.Method != methodAcknowledged || !acknowledged {
			acknowledged = acknowledged || got.Method == methodAcknowledged
			b.out.write(got)
			return
		}
		b.announce(m.ID, got)
	}
	try := func() (*jsonrpc.Message, error) {
		return b.modern.Call(ctx, &transport.Request{Message: *m, Header: header}, take)
	}
	for pause := maxPause; ; pause = min(2*pause, maxListen) {
		var answer *jsonrpc.Message
		if fresh = false; acknowledged {
			answer, err = try()
			b.notes.tried(err)
		} else {
			answer, err = b.persist(ctx, try)
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !acknowledged, err == nil && answer.Error != nil, rejected(err):
			return answer, err
		case fresh:
			pause = maxPause
		}
		if !b.sleep(ctx, pause) {
			return nil, context.Canceled
		}
	}
}

// rejected reports whether another attempt has no chance: the endpoint answered with a client error.
func rejected(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return ok && status.Status/100 == 4 && status.Status != 429 || errors.As(err, new(*transport.TokenError))
}

// announce tells the client, after its subscription was renewed, that everything in it may have
// changed.
func (b *bridge) announce(id jsonrpc.ID, ack *jsonrpc.Message) {
	honoured, err := ack.Body.Object("notifications")
	if err != nil {
		return
	}
	meta := append([]byte(`"_meta":{"`+metaSubscription+`":`), id...)
	meta = append(meta, '}')
	for _, part := range []string{"tools", "prompts", "resources"} {
		if v, err := honoured.Get(part + "ListChanged"); err == nil && string(v) == "true" {
			b.out.tell("notifications/"+part+"/list_changed", append(append([]byte{'{'}, meta...), '}'))
		}
	}
	uris, _ := honoured.Elements("resourceSubscriptions") // an error is that there are none
	for _, uri := range uris {
		params := append(append([]byte(`{"uri":`), uri...), ',')
		b.out.tell("notifications/resources/updated", append(append(params, meta...), '}'))
	}
}
