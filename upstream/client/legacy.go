package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// legacyConn implements 2025-11-25 and older: a handshake, then calls in a session whose client
// capabilities are fixed by the handshake.
type legacyConn struct {
	base
	leveling sync.Mutex // held while level is changed
	level    int        // of log messages, as set at the server; an index of levels
	pings    pings
	traffic  traffic
}

func newLegacyConn() *legacyConn {
	return &legacyConn{traffic: traffic{quiet: make(chan struct{}, 1)}}
}

// newestLegacy is the version that Junction offers; the server may choose an older one.
const newestLegacy = mcp.ProtocolVersion20251125

// handshake initializes the session. If the server chooses an unknown version, handshake fails
// (2025-11-25, basic/lifecycle).
func (l *legacyConn) handshake(ctx context.Context, self []byte, p Profile) error {
	l.mu.Lock()
	l.declared = p
	l.mu.Unlock()
	params := raw.AppendQuote([]byte(`{"protocolVersion":`), newestLegacy)
	params = p.append(append(params, `,"capabilities":`...), EraLegacy)
	params = append(append(append(params, `,"clientInfo":`...), self...), '}')
	result, err := l.requestObserved(ctx, string(mcp.MethodInitialize), params, nil, l.handshakeLease)
	if err != nil {
		return err
	}
	version, err := result.String("protocolVersion")
	if err != nil {
		return fmt.Errorf("%w to initialize: no protocolVersion", transport.ErrInvalid)
	}
	if !IsLegacyVersion(version) {
		return fmt.Errorf("%w to initialize: the server chose protocol version %q, which Junction does not support",
			transport.ErrInvalid, version)
	}
	l.info = Info{Era: EraLegacy, Version: version, Session: l.transport.HasSession()}
	l.info.Capabilities, _ = result.Object("capabilities")
	l.info.Server, _ = result.Get("serverInfo")
	l.info.Instructions, _ = result.String("instructions")
	if version >= mcp.ProtocolVersion20250618 {
		l.transport.SetVersion(version)
	}
	err = l.transport.Send(ctx, &transport.Request{Message: jsonrpc.Message{Method: "notifications/initialized"},
		Own: !l.info.Session})
	if refusal, ok := errors.AsType[*transport.StatusError](err); ok && !l.transport.Ended() &&
		refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
		// a notification has no answer; some servers do not know this one, and serve all the same
		l.log.Debug("the server rejects notifications/initialized", "error", transport.OneLine(err.Error()))
		return nil
	}
	return err
}

// Watch opens the GET stream of an HTTP server. On other transports the server sends notifications
// without it.
func (l *legacyConn) Watch() <-chan struct{} {
	lists, _ := l.info.Announces()
	return l.transport.Listen(func() {
		if l.hooks.Missed != nil {
			l.hooks.Missed(nil)
		}
		if lists {
			l.hooks.Changed()
		}
	})
}

// Call implements Conn.
func (l *legacyConn) Call(ctx context.Context, c *Call, clock *Clock) (Result, error) {
	l.traffic.begin()
	defer l.traffic.end()
	return l.observeCall(ctx, c, clock, l.send)
}

func (l *legacyConn) send(ctx context.Context, c *Call, clock *Clock) (Result, error) {
	if c.LogLevel != "" {
		l.setLevel(ctx, c)
	}
	if c.AsTask && l.info.Capabilities.HasObject("tasks", "requests", "tools", "call") {
		return l.callAsTask(ctx, c, clock)
	}
	id := l.nextID()
	var few [2]raw.Edit
	params, f, err := l.prepare(id, c, clock, few[:0])
	if err != nil {
		return Result{}, err
	}
	if clock != nil {
		clock.setPinger(l)
	}
	req := &transport.Request{Message: jsonrpc.Message{ID: id, Method: c.Method, Params: params}, Buffer: c.Buffer}
	req.Header, req.Forwarded = c.carried.header(req.HeaderRoom[:0]), c.Signed
	m, err := l.roundTrip(ctx, req, f, true)
	if err != nil {
		return Result{}, err
	}
	o, err := resultOf(m)
	if m.Error != nil && m.Error.Code == mcp.URL_ELICITATION_REQUIRED && len(m.Error.Data) > 0 {
		list, _ := raw.Get(m.Error.Data, "elicitations")
		items, _ := raw.Elements(list)
		for _, item := range items {
			l.sent(c.Peer, item)
		}
	}
	return Result{o, TypeComplete}, err
}

// levels lists the levels of log messages, the most verbose last (RFC 5424).
var levels = []string{"", "emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"}

// Level returns the verbosity of a level of log messages, or 0 for an unknown level.
func Level(name string) int { return max(0, slices.Index(levels, name)) }

// levelPatience is how long a call waits for the server to accept a level.
const levelPatience = 2 * time.Second

// setLevel makes the server send log messages from the level of the call on. The level applies to the
// whole connection, so it is never lowered again; Exchange.wantsLog of package proxy applies the
// clients' own levels.
func (l *legacyConn) setLevel(ctx context.Context, c *Call) {
	name, wanted := c.LogLevel, Level(c.LogLevel)
	l.leveling.Lock()
	defer l.leveling.Unlock()
	if wanted <= l.level || !l.info.Capabilities.HasObject("logging") {
		return
	}
	limited, cancel := context.WithTimeout(CausedBy(ctx, c.trace), levelPatience)
	defer cancel()
	params := append(raw.AppendQuote([]byte(`{"level":`), name), '}')
	if _, err := l.requestObserved(limited, string(mcp.MethodSetLogLevel), params, nil, nil); err != nil {
		l.log.Debug("the server rejects the log level", "level", name, "error", transport.OneLine(err.Error()))
		if ctx.Err() != nil {
			return
		}
	}
	l.level = wanted // a server that rejects the level is not asked again
}

// Ping implements Conn.
func (l *legacyConn) Ping(ctx context.Context) error {
	_, err := l.requestObserved(ctx, string(mcp.MethodPing), nil, nil, nil)
	l.doubt(err)
	return unlessAnswered(err)
}

// Notify implements Conn.
func (l *legacyConn) Notify(method string) { l.post(&jsonrpc.Message{Method: method}) }

func (l *legacyConn) List(
	ctx context.Context, method string, cursor []byte, lease *transport.Lease,
) (raw.Object, error) {
	var params []byte
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	o, err := l.requestObserved(ctx, method, params, nil, lease)
	if err == nil && cursor == nil {
		l.answeredList(method)
	}
	return o, err
}

// Follow implements Conn: it sends one request per resource.
func (l *legacyConn) Follow(ctx context.Context, _ func() []string, added, removed []string) ([]string, error) {
	var accepted []string
	var refused error
	ask := func(method mcp.MCPMethod, uri string) error {
		_, err := l.requestObserved(ctx, string(method), append(raw.AppendQuote([]byte(`{"uri":`), uri), '}'), nil, nil)
		if _, answered := err.(*jsonrpc.Error); answered {
			refused = cmp.Or(refused, err)
			return nil
		}
		if err == nil && method == mcp.MethodResourcesSubscribe {
			accepted = append(accepted, uri)
		}
		return err
	}
	for _, uri := range removed {
		if err := ask(mcp.MethodResourcesUnsubscribe, uri); err != nil {
			return accepted, fmt.Errorf("%s: %w", mcp.MethodResourcesUnsubscribe, err)
		}
	}
	refused = nil
	for _, uri := range added {
		if err := ask(mcp.MethodResourcesSubscribe, uri); err != nil {
			return accepted, fmt.Errorf("%s: %w", mcp.MethodResourcesSubscribe, err)
		}
	}
	return accepted, refused
}
