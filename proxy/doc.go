// Package proxy answers MCP clients from the catalogs and calls of upstreams, in both eras of the
// protocol.
//
// # The path of a call
//
// The program passes each request on to Server.ServeHTTP that is not for one of its own pages
// (publicHandler in cmd/junction/program.go). A tools/call of a client then passes through these
// functions:
//
//	Server.ServeHTTP         server.go    loads the snapshot; the request keeps it, except after a wait
//	Server.checkOrigin       request.go   rejects foreign origins and hosts
//	Server.at                request.go   finds the caller, its endpoint and its subject view
//	Server.newExchange       exchange.go  one request until its answer
//	Server.forwardSession    owner.go     passes the request on if another process has the session
//	Server.post              request.go   reads the body within its limits (package budget)
//	Server.forwardParked     owner.go     passes the request on if another process has the parked call
//	Server.frontFor          front.go     chooses the era of the message
//	legacyFront.post         legacy.go    2025-11-25 and older: handshake, session, batch, GET stream
//	modernFront.post         modern.go    2026-07-28: header and body must agree
//	Server.serve             exchange.go  dispatches, answers, reports to log and audit
//	Server.dispatch          dispatch.go  methods, call tools (package search), rate limits of policy
//	Server.call              call.go      find, permit, validate, approve, call, filter, answer
//	parkedCalls.begin        parked.go    if a modern client calls a legacy server: the call may be parked
//	Server.make              call.go      calls the upstream, and keeps the result if it may be reused
//	Server.answerResult      bridge.go    converts the result to the client's era
//	reply.succeed            reply.go     one JSON document, or the last event of a stream
//
// Server.make calls (*upstream.Upstream).Call. The documentation of package upstream continues from
// there.
//
// # A server request to a modern client
//
// A legacy server sends requests during a call, and waits. A modern client gets such a request as
// the result of its own request (input_required), and returns with another request. Meanwhile the
// call is parked. The documentation of package upstream has the way of a server request to Peer.Ask.
// It continues here:
//
//	parked.Ask               parked.go    is that Peer.Ask; waits for the answer of the client
//	exchange.serverRequest   ask.go       converts the request for the client, or rejects it
//	parkedCalls.admit        parked.go    lists the call as parked, within limits.parked of the user
//	parked.wait              parked.go    runs in the client's request, which waits for Ask or the result
//	parked.requests          parked.go    the result with all server requests that came within 20 ms
//	Server.seal              state.go     requestState names the call, its process, its user and the request
//
// The client sends the same request again, with requestState and inputResponses. It passes through
// the functions of the first table, with these differences:
//
//	Server.forwardParked     owner.go     opens requestState, and finds the process that has the call
//	Server.call              call.go      runs find, permit and validate again
//	Server.openState         state.go     checks that requestState is for this user and this request
//	Server.approve           approve.go   does not ask again: the user's approval is in requestState
//	parkedCalls.resume       parked.go    finds the parked call, instead of begin
//	parked.deliver           parked.go    gives each answer to its Ask, and so to package upstream
//	parked.wait              parked.go    waits again: for the result, or for the next server request
//
// # Other files
//
//	list.go           the lists, page by page; waiting for upstreams that are starting
//	completion.go     completion/complete, with the values that policy allows
//	approve.go        policy's ask: the user sees the exact call in the client
//	ask.go            server requests, and their delivery to a legacy client
//	parked.go         calls that wait in an upstream until a modern client returns with answers
//	state.go          the sealed requestState of a modern client, and task IDs
//	signin.go         the connect tool of an upstream that each user signs in to
//	session.go        sessions of legacy clients
//	owner.go          the process that answers a request, if several serve the endpoints
//	listen.go         streams of notifications; subscriptions.go: their resources
//	older.go          results and forms for protocol versions that lack their features
//	question.go       what clients are asked, for metrics and traces
//	errors.go         the errors that several files return, with their HTTP status
//	report.go         data for the log, the audit and operators; the interface for metrics and traces
//
// Package scope has what one caller sees: the snapshot of the configuration, policy and catalogs that
// is replaced as a whole, the endpoints (merged, per upstream, named, per user, per client), and the
// part of an endpoint that one subject may use. Package view merges and renames the catalogs. Package
// search finds tools by words. Packages pins, schema and redact check definitions, arguments and
// results. Package budget limits everything that callers share. Package approval makes the form of an
// approval, and package profile reads the capabilities of a client. Packages origin and headers check
// requests. Package replay keeps the events of a stream, and package relay writes the response of
// another member. Package canon compares JSON values. Package answers keeps results of calls that may
// be reused (cache).
//
// # Sessions
//
// The ID of a legacy session contains, sealed, the protocol version, the client and its
// capabilities. So a session survives eviction from memory (idle, or beyond the share of its
// account), a restart, and the end of its member. It always loses its subscriptions, its log level,
// its remembered approvals and its replayable events. A restart, and the end of its member, also end
// its calls and streams.
//
// # Members
//
// Several processes can serve the same endpoints over one database (package members). A session is
// in the memory of its owner, and so is a parked call. The sealed session ID and the sealed
// requestState name the owner. Each other member forwards a request to it: after authentication,
// before the body is read, and once. The owner authenticates the request again, counts it against
// the budget and the limits, and writes the only audit line. All other requests are answered by the
// member that gets them.
//
// If an owner ends, exactly one other member becomes the owner of each of its sessions, and
// rebuilds the session from the ID. Requests wait for that. The session has lost what a restart
// loses, and its next stream begins with list_changed. Parked calls fail with an error that names
// this reason.
//
// A member whose lease has expired serves no sessions, but keeps them in memory: it gets its ID back
// if no other member has deleted its row. If its row was deleted, it joins with a new ID, and ends
// its sessions, because other members may have them.
//
// All members together count the limits of policies, and accept each answer to an approval request
// once. Each member for itself counts limits.parked and the shares of the budget, and remembers the
// approvals of modern clients.
//
// # Bytes
//
// Messages are forwarded byte for byte. Junction replaces only data of a single hop: the id, names
// and URIs, and the members of _meta about the connection.
package proxy
