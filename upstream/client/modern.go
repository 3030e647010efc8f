package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// modernConn implements 2026-07-28: every request carries its version and its client's
// capabilities, and requests are independent of each other.
type modernConn struct {
	base
	follows chan follow // requests to the goroutine of Watch; unbuffered, never closed
	lmu     sync.Mutex
	listens map[jsonrpc.ID]*listen // subscriptions whose request is open
	// on stdio, by resource that the server follows; changed by watching with lmu held
	byURI    map[string]*listen
	unwanted map[string]bool // resources without a subscriber; guarded by lmu
	self     []byte          // Junction's clientInfo
}

const modernVersion = mcp.ProtocolVersion20260728

var quotedVersion = raw.Quote(modernVersion)

// notModernError means that the server responded, but does not support the modern era.
type notModernError struct{ cause error }

func (e *notModernError) Error() string { return "the server does not speak " + modernVersion }
func (e *notModernError) Unwrap() error { return e.cause }

// handshake sends server/discover. The error is a *notModernError if the response shows that the
// server belongs to the legacy era.
func (m *modernConn) handshake(ctx context.Context) error {
	result, err := m.request(ctx, string(mcp.MethodServerDiscover), nil, m.handshakeLease)
	if err != nil {
		return classifyDiscoverError(err)
	}
	versions, err := result.Get("supportedVersions")
	if err != nil {
		return &notModernError{fmt.Errorf("%w to server/discover: no supportedVersions", transport.ErrInvalid)}
	}
	offered, err := raw.ElementsWithin(versions, maxVersions)
	if err != nil || !slices.ContainsFunc(offered, func(v []byte) bool { return string(v) == `"`+modernVersion+`"` }) {
		return &notModernError{fmt.Errorf("the server offers %s", prose.Whole(string(versions), 200))}
	}
	m.info = Info{Era: EraModern, Version: modernVersion}
	m.info.Mirrors = m.transport.PerRequest()
	m.info.Capabilities, _ = result.Object("capabilities")
	m.info.Instructions, _ = result.String("instructions")
	if v, err := raw.Get(result.Text(), "_meta", mcp.MetaKeyServerInfo); err == nil {
		m.info.Server = v
	} else {
		m.info.Server, _ = result.Get("serverInfo")
	}
	return nil
}

// maxVersions limits the versions that a server may list.
const maxVersions = 1000

// params builds the params of Junction's own requests; more are members in addition to _meta.
func (m *modernConn) params(p Profile, more []byte) []byte {
	b := append([]byte{'{'}, more...)
	if len(more) > 0 {
		b = append(b, ',')
	}
	b = append(b, `"_meta":{"`+mcp.MetaKeyProtocolVersion+`":"`+modernVersion+`","`+mcp.MetaKeyClientInfo+`":`...)
	b = append(append(b, m.self...), `,"`+mcp.MetaKeyClientCapabilities+`":`...)
	return append(p.append(b, EraModern), '}', '}')
}

// appendMeta appends the members for this hop to the _meta of a client's call.
func (m *modernConn) appendMeta(own []raw.Edit, c *Call) []raw.Edit {
	own = append(own,
		raw.Edit{Name: mcp.MetaKeyProtocolVersion, Value: quotedVersion},
		raw.Edit{Name: mcp.MetaKeyClientInfo, Value: m.self},
		raw.Edit{Name: mcp.MetaKeyClientCapabilities, Value: c.Profile.append(nil, EraModern)},
	)
	if c.LogLevel != "" {
		own = append(own, raw.Edit{Name: mcp.MetaKeyLogLevel, Value: raw.Quote(c.LogLevel)})
	}
	return own
}

// request sends one of Junction's own requests; more are members of params in addition to _meta.
// lease is as for requestOwn.
func (m *modernConn) request(
	ctx context.Context, method string, more []byte, lease *transport.Lease,
) (raw.Object, error) {
	return m.requestObserved(ctx, method, m.params(Everything(), more), ownHeader(method), lease)
}

// ownHeader returns the headers of one of Junction's own requests.
func ownHeader(method string) []HeaderField {
	return transport.AppendMirror(nil, modernVersion, method)
}

// Call implements Conn.
func (m *modernConn) Call(ctx context.Context, c *Call, clock *Clock) (Result, error) {
	return m.observeCall(ctx, c, clock, m.send)
}

func (m *modernConn) send(ctx context.Context, c *Call, clock *Clock) (Result, error) {
	id := m.nextID()
	var few [7]raw.Edit
	params, f, err := m.prepare(id, c, clock, m.appendMeta(few[:0], c))
	if err != nil {
		return Result{}, err
	}
	req := &transport.Request{Message: jsonrpc.Message{ID: id, Method: c.Method, Params: params}, Buffer: c.Buffer}
	if m.transport.PerRequest() {
		mirror := transport.AppendMirror(req.HeaderRoom[:0], modernVersion, c.Method)
		if name := c.headerName(); name != "" {
			mirror = transport.AppendMirrorName(mirror, name)
		}
		req.Header = c.carried.header(append(mirror, c.Header...))
		req.Called, req.Forwarded = true, c.Forwarded
		if len(c.Signed) > 0 {
			req.Forwarded = slices.Concat(c.Forwarded, c.Signed)
		}
	}
	answer, err := m.roundTrip(ctx, req, f, !m.transport.PerRequest())
	if err != nil {
		return Result{}, asRPCError(err)
	}
	result, err := resultOf(answer)
	if err != nil {
		return Result{}, err
	}
	kind := TypeComplete
	stated, err := result.Get("resultType")
	if err == nil && string(stated) != `"complete"` { // most results are complete
		if kind, err = raw.String(stated); err == raw.ErrAbsent {
			err = errors.New("no string")
		}
	}
	switch {
	case err == raw.ErrAbsent:
	case err != nil:
		return Result{}, fmt.Errorf("%w: resultType: %w", transport.ErrInvalid, err)
	case kind == TypeComplete:
	case kind == TypeInputRequired && mayRequireInput(c.Method):
	case kind == TypeTask && c.Method == string(mcp.MethodToolsCall) && c.Profile.Tasks:
	// the extension's examples use this type, its text requires complete
	case kind == TypeTask && c.Method == methodTasksGet:
		kind = TypeComplete
	default: // an unknown type is invalid (2026-07-28, basic/index#resulttype)
		return Result{}, fmt.Errorf("%w: a result of type %s to %s", transport.ErrInvalid,
			prose.Whole(strconv.Quote(string(kind)), 60), c.Method)
	}
	return Result{result, kind}, nil
}

// mayRequireInput reports whether the response to this method may contain server requests
// (2026-07-28, basic/patterns/mrtr#supported-requests).
func mayRequireInput(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// Ping implements Conn. This era has no ping.
func (m *modernConn) Ping(ctx context.Context) error {
	_, err := m.request(ctx, string(mcp.MethodServerDiscover), nil, nil)
	return unlessAnswered(err)
}

// Drain implements Conn.
func (m *modernConn) Drain(context.Context) {}

// Notify implements Conn. This era has no client notifications.
func (m *modernConn) Notify(string) {}

func (m *modernConn) List(
	ctx context.Context, method string, cursor []byte, lease *transport.Lease,
) (raw.Object, error) {
	var more []byte
	if cursor != nil {
		more = append([]byte(`"cursor":`), cursor...)
	}
	m.listed.Store(true)
	o, err := m.request(ctx, method, more, lease)
	if err != nil {
		return o, asRPCError(err)
	}
	if cursor == nil {
		m.answeredList(method)
	}
	return o, nil
}

// filter builds the filter in the params of subscriptions/listen: the resources, and, if lists is
// true, the lists whose changes the server announces.
func (m *modernConn) filter(lists bool, uris []string) []byte {
	var wanted []string
	for _, listing := range listings {
		if lists && m.info.announcesList(listing) {
			wanted = append(wanted, `"`+listing+`ListChanged":true`)
		}
	}
	if len(uris) > 0 {
		var quoted [][]byte
		for _, uri := range uris {
			quoted = append(quoted, raw.Quote(uri))
		}
		wanted = append(wanted, `"resourceSubscriptions":[`+string(bytes.Join(quoted, []byte(",")))+"]")
	}
	return []byte(`"notifications":{` + strings.Join(wanted, ",") + `}`)
}

// notificationAcknowledged is the first message of a subscription.
const notificationAcknowledged = "notifications/subscriptions/acknowledged"
