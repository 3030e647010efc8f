package proxy

import (
	"net/netip"
	"time"

	"junction/proxy/view"
)

// Hooks report what happens. Each may be nil. They must not block.
type Hooks struct {
	// CallDone is called once for each call, after its answer was written, and for each request of
	// somebody who is known and may use nothing, or asks for an endpoint that does not exist for
	// them; of those neither the method nor the name is known. It may change the CallInfo, and must
	// not keep it.
	CallDone func(*CallInfo)
	// Problems is called with all items that are not offered, and why, when a new view has others
	// than the one before.
	Problems func([]view.Problem)
	// SessionDeleted is called when a legacy client has deleted its session, with a hash of the
	// session's id and when the id expires anyway. Options.DeletedSessions gives the hashes back to
	// a later Server with the same key.
	SessionDeleted func(hash [16]byte, until time.Time)
}

// CallInfo is what there is to know of a call, none of it secret but for Arguments. A text is ""
// where there is nothing to say.
type CallInfo struct {
	RequestID string     // of the HTTP request, which is in its answer too: X-Request-Id; "" where nobody has given it one
	Principal string     // id of who called, such as "local" or "key:ci"
	Kind      string     // of the principal: local, key, user or service
	Address   netip.Addr // of the client; the zero Addr when it is not known
	Client    string     // the name that the client gave itself; anybody can claim any
	Session   string     // what tells a legacy session from others; not its id, which whoever has it may use
	Request   string     // the JSON-RPC id, as the client wrote it
	Era       string
	Endpoint  string // "" is the merged one
	Surface   string // of the endpoint
	Upstream  string // "" when the name was unknown
	Method    string
	Name      string // as the client called it
	Own       string // as the upstream calls it

	// Verdict is deny, ask or allow; "" when nothing was decided, as about a method that does not
	// exist. Policy and Rule say what gave it, and Missing which capability is not held, or which
	// scopes the token of the caller would need, with spaces between them.
	Verdict, Policy, Rule, Missing string
	// Approval is "" when nobody had to be asked, and otherwise asked, given, remembered, declined,
	// late where the call was denied by the time of the answer, or impossible where the client
	// cannot ask anybody.
	Approval string
	// Arguments is the JSON text of the call's arguments; nil when it has none. Where it is not
	// clear which they are, because the member is there twice or in another letter case, it is that
	// of all params. It is valid during the hook only.
	Arguments []byte

	Took     time.Duration
	Sent     int // bytes of the request's body
	Received int // bytes of the result
	// Outcome is ok, error (the upstream's own), or the kind of our error.
	Outcome string
	Code    int64 // of the JSON-RPC error that the client was answered with; 0 when there was none
	Err     error
}
