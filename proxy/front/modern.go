package front

import (
	"context"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/scope"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// modernFront serves 2026-07-28: every request is self-contained, in the body and repeated in
// headers. The era has no sessions.
type modernFront struct{ *Server }

func (f modernFront) post(x *request) {
	x.Era = client.EraModern
	switch {
	case x.Msg.IsNotification():
		x.reply.w.WriteHeader(http.StatusAccepted) // no client notification has a meaning on HTTP, and none is an error
		return
	case x.Msg.IsResponse():
		f.reject(x, x.Msg.ID, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Invalid Request: a client of %s sends no responses", proxy.ModernVersion))
		return
	}
	if err := f.check(x); err != nil {
		f.reject(x, x.Msg.ID, err)
		return
	}
	// The end of the request is its cancellation (2026-07-28, streamable-http#cancellation).
	ctx, end := context.WithCancelCause(x.request.Context())
	cancel := func() { end(nil) }
	defer cancel()
	if ctx.Value(baseKey{}) != f.Server {
		defer context.AfterFunc(f.Killing(), func() { end(proxy.CutOff{}) })()
	}
	x.End, x.reply.broken = end, cancel
	f.answer(ctx, x)
}

// check compares headers and body, and reads the required members of _meta (2026-07-28,
// streamable-http#server-validation and basic/index#_meta).
func (f modernFront) check(x *request) error {
	given := header(x.request.Header, "Mcp-Protocol-Version")
	version, err := x.Meta.String(mcp.MetaKeyProtocolVersion)
	switch {
	case err == raw.ErrAbsent && len(x.request.Header["Mcp-Protocol-Version"]) > 0:
		return refuse(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: _meta has no %s%s",
			mcp.MetaKeyProtocolVersion, mixedHint)
	case err != nil:
		return refuse(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: %s in _meta is no certain string",
			mcp.MetaKeyProtocolVersion)
	}
	switch err := repeats(x.request.Header, "Mcp-Protocol-Version", version, false); {
	case err != nil && given == "":
		return mismatch("Mcp-Protocol-Version is missing%s", mixedHint)
	case err != nil && client.IsLegacyVersion(given):
		return mismatch("Mcp-Protocol-Version is %.100q, the body says %.100q%s", given, version, mixedHint)
	case err != nil:
		return err
	}
	if err := repeats(x.request.Header, "Mcp-Method", x.Msg.Method, false); err != nil {
		return err
	}
	if member := x.NamedBy(); member != "" {
		name, err := x.Params.String(member)
		if err != nil && err != raw.ErrAbsent {
			return proxy.Malformed(err)
		}
		if err := repeats(x.request.Header, "Mcp-Name", name, true); err != nil {
			return err
		}
	}
	declared, err := x.Meta.Object(mcp.MetaKeyClientCapabilities)
	if err == raw.ErrAbsent {
		return refuse(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: _meta has no object %s",
			mcp.MetaKeyClientCapabilities)
	} else if err != nil {
		return proxy.Malformed(err)
	}
	if version != proxy.ModernVersion {
		return f.unsupported(x, version)
	}
	x.Who = scope.Identity{Profile: profileOf(declared, version)}
	if x.Endpoint.View.Separates {
		x.Who.Session = proxy.Window(x.Header)
	}
	x.Caller = x.Snapshot.ForClient(x.Caller)
	switch x.LogLevel, err = x.Meta.String(mcp.MetaKeyLogLevel); {
	case err == raw.ErrAbsent:
	case err != nil || client.Level(x.LogLevel) == 0:
		// 2026-07-28, server/utilities/logging
		return proxy.InvalidParams("Invalid params: %s in _meta is no level of log messages", mcp.MetaKeyLogLevel)
	}
	x.Client = clientName(x.Meta, mcp.MetaKeyClientInfo)
	return nil
}
