package upstream

import (
	"context"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// legacyConn speaks 2025-11-25 and older: a handshake, then calls on a session that heard of its client once.
type legacyConn struct {
	base
}

// newestLegacy is what we offer; the server may answer with an older version.
const newestLegacy = mcp.ProtocolVersion20251125

// handshake initializes the session. A server that asks for a version that we do not know is refused (2025-11-25, basic/lifecycle).
func (l *legacyConn) handshake(ctx context.Context, self []byte, p Profile) error {
	params := raw.AppendQuote([]byte(`{"protocolVersion":`), newestLegacy)
	params = append(append(params, `,"capabilities":`...), p.capabilities()...)
	params = append(append(append(params, `,"clientInfo":`...), self...), '}')
	result, err := l.ask(ctx, string(mcp.MethodInitialize), params, nil)
	if err != nil {
		return err
	}
	version, err := result.String("protocolVersion")
	if err != nil {
		return fmt.Errorf("%w to initialize: no protocolVersion", errInvalid)
	}
	if !slices.Contains(mcp.LegacyProtocolVersions(), version) {
		return fmt.Errorf("%w to initialize: the server wants protocol version %q, which we do not speak", errInvalid, version)
	}
	l.info = serverInfo{era: EraLegacy, version: version}
	l.info.capabilities, _ = result.Object("capabilities")
	l.info.serverInfo, _ = result.Get("serverInfo")
	if w, ok := l.wire.(*httpWire); ok && version >= mcp.ProtocolVersion20250618 {
		w.setVersion(version)
	}
	return l.wire.Send(ctx, &request{Message: jsonrpc.Message{Method: "notifications/initialized"}})
}

// watch opens the GET stream of an HTTP server; on the other wires a server tells of changes unasked.
func (l *legacyConn) watch() {
	l.info.tells = isTrue(l.info.capabilities, "tools", "listChanged")
	if w, ok := l.wire.(*httpWire); ok {
		gap := func() {}
		if l.info.tells {
			gap = l.hooks.changed
		}
		w.listen(gap)
	}
}

func (l *legacyConn) call(ctx context.Context, c *Call, clock *clock) (raw.Object, error) {
	id := l.nextID()
	params, f, err := l.prepare(id, c, clock, nil)
	if err != nil {
		return raw.Object{}, err
	}
	m, err := l.roundTrip(ctx, &request{Message: jsonrpc.Message{ID: id, Method: c.Method, Params: params}, Buffer: c.Buffer}, f, true)
	if err != nil {
		return raw.Object{}, err
	}
	return resultOf(m)
}

func (l *legacyConn) list(ctx context.Context, method string, cursor []byte) (raw.Object, error) {
	var params []byte
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	return l.ask(ctx, method, params, nil)
}
