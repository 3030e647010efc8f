package proxy

import (
	"context"
	"fmt"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/headers"
	"junction/proxy/profile"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/raw"
)

// modernFront serves 2026-07-28: every request is self-contained, in the body and repeated in
// headers. The era has no sessions.
type modernFront struct{ *Server }

func (f modernFront) post(x *request) {
	x.era = upstream.EraModern
	switch {
	case x.msg.IsNotification():
		x.reply.w.WriteHeader(http.StatusAccepted) // no client notification has a meaning on HTTP, and none is an error
		return
	case x.msg.IsResponse():
		f.reject(x, x.msg.ID, refuseHTTP(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Invalid Request: a client of %s sends no responses", modernVersion))
		return
	}
	if err := f.check(x); err != nil {
		f.reject(x, x.msg.ID, err)
		return
	}
	// The end of the request is its cancellation (2026-07-28, streamable-http#cancellation).
	ctx, end := context.WithCancelCause(x.request.Context())
	cancel := func() { end(nil) }
	defer cancel()
	if ctx.Value(baseKey{}) != f.Server {
		defer context.AfterFunc(f.Killing(), func() { end(CutOff{}) })()
	}
	x.end, x.reply.broken = end, cancel
	f.answer(ctx, x)
}

// check compares headers and body, and reads the required members of _meta (2026-07-28,
// streamable-http#server-validation and basic/index#_meta).
func (f modernFront) check(x *request) error {
	version, err := x.meta.String(mcp.MetaKeyProtocolVersion)
	switch {
	case err == raw.ErrAbsent && len(x.request.Header["Mcp-Protocol-Version"]) > 0:
		return refuseHTTP(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: _meta has no %s",
			mcp.MetaKeyProtocolVersion)
	case err != nil:
		return refuseHTTP(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: %s in _meta is no certain string",
			mcp.MetaKeyProtocolVersion)
	}
	if err := headers.Repeats(x.request.Header, "Mcp-Protocol-Version", version, false); err != nil {
		return err
	}
	if err := headers.Repeats(x.request.Header, "Mcp-Method", x.msg.Method, false); err != nil {
		return err
	}
	if member := x.NamedBy(); member != "" {
		name, err := x.params.String(member)
		if err != nil && err != raw.ErrAbsent {
			return malformed(err)
		}
		if err := headers.Repeats(x.request.Header, "Mcp-Name", name, true); err != nil {
			return err
		}
	}
	declared, err := x.meta.Object(mcp.MetaKeyClientCapabilities)
	if err == raw.ErrAbsent {
		return refuseHTTP(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: _meta has no object %s",
			mcp.MetaKeyClientCapabilities)
	} else if err != nil {
		return malformed(err)
	}
	if version != modernVersion {
		e := refuseHTTP(http.StatusBadRequest, codeUnsupportedVersion, "Unsupported protocol version: %.100s", version)
		e.data = fmt.Appendf(nil, `{"supported":%s,"requested":%s}`, f.Supported(), raw.Quote(version))
		return e
	}
	x.Who = scope.Identity{Profile: profile.Of(declared, version)}
	x.Caller = x.Snapshot.ForClient(x.Caller)
	switch x.logLevel, err = x.meta.String(mcp.MetaKeyLogLevel); {
	case err == raw.ErrAbsent:
	case err != nil || upstream.Level(x.logLevel) == 0:
		// 2026-07-28, server/utilities/logging
		return invalidParams("Invalid params: %s in _meta is no level of log messages", mcp.MetaKeyLogLevel)
	}
	x.client = clientName(x.meta, mcp.MetaKeyClientInfo)
	return nil
}
