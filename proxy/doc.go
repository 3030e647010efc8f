// Package proxy answers MCP clients with what the upstreams offer, in both eras of the protocol.
//
// # The way of a call
//
// A tools/call of a client goes through these functions:
//
//	Server.ServeHTTP         server.go    loads the snapshot; the request keeps it to its end
//	snapshot.checkOrigin     request.go   rejects foreign origins and hosts
//	Server.at                request.go   finds the caller, its endpoint and its subject view
//	Server.post              request.go   reads the body within its limits (package budget)
//	newExchange              exchange.go  one request on its way to one answer
//	Server.frontFor          front.go     chooses the era of the message
//	legacyFront.post         legacy.go    2025-11-25 and older: handshake, session, batch, GET stream
//	modernFront.post         modern.go    2026-07-28: header and body must agree
//	Server.serve             exchange.go  dispatches, answers, reports to log and audit
//	Server.dispatch          dispatch.go  the table of methods; rate limits of policy
//	Server.call              call.go      find, permit, validate, approve, call, filter, answer
//	Server.answerResult      bridge.go    the form of the client's era
//	reply.succeed            reply.go     one JSON document, or the last event of a stream
//
// Server.call hands over to (*upstream.Upstream).Call, where the documentation of package upstream
// goes on.
//
// # What else is here
//
//	snapshot.go       all that a request is judged and answered by; replaced whole
//	endpoint.go       the endpoints: merged, of one upstream, named, of a person, of a client
//	subject.go        the part of an endpoint that one subject may use
//	list.go           the lists, page by page; waiting for upstreams that are starting
//	completion.go     completion/complete, with the values that policy allows
//	approve.go        policy's ask: the person at the client sees the exact call
//	ask.go            requests of upstreams to clients, and their way to a legacy client
//	parked.go         calls that wait in an upstream until a modern client returns with answers
//	state.go          the sealed requestState of a modern client, and the ids of tasks
//	signin.go         the offer to connect an upstream that each user signs in to
//	session.go        sessions of legacy clients
//	listen.go         streams of notifications; subscriptions.go: their resources
//	errors.go         every error that a client reads, with its HTTP status
//	report.go         what the log, the audit and operators learn
//
// Package view merges and renames the catalogs; pins, schema and redact check definitions,
// arguments and results; older changes results for older versions. Package cache bounds what a snapshot keeps for single principals.
//
// # Sessions
//
// The id of a legacy session contains, sealed, the protocol version, the client and its
// capabilities. So a session goes on after it was evicted from memory (idle, or beyond the share of
// its account) and after a restart. In both cases it loses its subscriptions, its log level, its
// remembered approvals and the events that a client could fetch again; a restart also ends its
// calls and streams.
//
// # Bytes
//
// Messages are carried as the bytes that they are. Only what belongs to one hop is replaced: the
// id, names and URIs, and the members of _meta about the connection.
package proxy
