// Package proxy answers MCP clients from the catalogs and calls of upstreams, in both eras of the
// protocol. It is the core: it answers a request for one caller (an Exchange), and knows no HTTP.
// Package front is the HTTP side: it reads requests, chooses the era, keeps the sessions, and writes
// answers and streams. The interface Front (exchange.go) is what the core needs of it. Package scope,
// beneath both, is what one caller sees.
//
// # The path of a call
//
// The program passes each request on to Server.ServeHTTP that is not for one of its own pages
// (publicHandler in cmd/junction/program.go). A tools/call of a client then passes through these
// functions:
//
//	Server.ServeHTTP         front/server.go     routes
//	Server.checkOrigin       front/request.go    rejects foreign origins and hosts
//	Server.at                front/request.go    loads the snapshot, which the request keeps, except after
//	                                             a wait; finds the caller, its endpoint and its subject view
//	Server.newRequest        front/request.go    one HTTP request, with its Exchange
//	Server.forwardSession    front/owner.go      passes the request on if another process has the session
//	Server.post              front/request.go    reads the body within its limits (package budget)
//	Server.forwardParked     front/owner.go      passes the request on if another process has the parked call
//	Server.frontFor          front/front.go      chooses the era of the message
//	legacyFront.post         front/legacy.go     2025-11-25 and older: handshake, session, batch, GET stream
//	modernFront.post         front/modern.go     2026-07-28: header and body must agree
//	Core.Serve               exchange.go         dispatches, has the front answer, reports to log and audit
//	Core.dispatch            dispatch.go         methods, call tools (package search), rate limits of policy
//	Core.call                call.go             find, permit, validate, approve, call, filter, answer
//	parkedCalls.begin        parked.go           if a modern client calls a legacy server: the call may be parked
//	Core.callUpstream        call.go             calls the upstream, and keeps the result if it may be reused
//	Core.answerResult        bridge.go           converts the result to the client's era
//	request.Succeed          front/request.go    is Front.Succeed
//	reply.succeed            front/reply.go      one JSON document, or the last event of a stream
//
// Core.callUpstream calls (*upstream.Upstream).Call. The documentation of package upstream continues from
// there.
//
// # A server request to a legacy client
//
// A legacy server sends requests during a call, and waits. The documentation of package upstream has
// the way of a server request to Peer.Ask. It continues here:
//
//	Exchange.Ask             ask.go              is that Peer.Ask
//	Exchange.serverRequest   ask.go              converts the request for the client, or rejects it
//	request.Ask              front/pending.go    is Front.Ask; waits for the response to the request
//	reply.send               front/reply.go      an event on the stream of the call
//	legacyFront.accept       front/legacy.go     the client sends the response with a POST
//	session.respond          front/pending.go    wakes request.Ask
//
// # A server request to a modern client
//
// A modern client gets a server request as the result of its own request (input_required), and returns
// with another request. Meanwhile the call is parked:
//
//	parked.Ask               parked.go           is that Peer.Ask; waits for the answer of the client
//	Exchange.serverRequest   ask.go              converts the request for the client, or rejects it
//	parkedCalls.admit        parked.go           lists the call as parked, within limits.parked of the user
//	parked.wait              parked.go           runs in the client's request, which waits for Ask or the result
//	parked.requests          parked.go           the result with all server requests that came within 20 ms
//	Core.seal                state.go            requestState names the call, its process, its user and the request
//
// The client sends the same request again, with requestState and inputResponses. It passes through
// the functions of the first table, with these differences:
//
//	Server.forwardParked     front/owner.go      finds the process that has the call
//	Core.ParkedAt            state.go            opens requestState for forwardParked
//	Core.call                call.go             runs find, permit and validate again
//	Core.openState           state.go            checks that requestState is for this user and this request
//	Core.approve             approve.go          does not ask again: the user's approval is in requestState
//	parkedCalls.resume       parked.go           finds the parked call, instead of begin
//	parked.deliver           parked.go           gives each answer to its Ask, and so to package upstream
//	parked.wait              parked.go           waits again: for the result, or for the next server request
//
// # A change of a catalog
//
// A server sends list_changed, or its list was read again. The new tools reach the clients in these
// steps. Only the endpoints with this server are compiled again, and only callers with a stream or a
// subscription cost anything; the others find the new list when they ask for it.
//
//	Core.Refresh             server.go           builds the next snapshot; changes wait for each other only here
//	Snapshot.stockUp         scope/snapshot.go   keeps the stocks of all catalogs that have not changed
//	View.Current             view/view.go        whether an endpoint keeps its view; else it is compiled again
//	Core.renew               listen.go           moves streams and subscriptions to the new snapshot
//	listeners.undecided      listen.go           the callers that have streams and subscriptions
//	Snapshot.Adopt           scope/endpoint.go   the caller in the new snapshot, without a lock
//	Caller.SameList          scope/endpoint.go   compares rights and stocks, or else the prints of both lists
//	listeners.move           listen.go           queues one list_changed for each stream whose list has changed
//	Core.Drain               listen.go           its messages, for the front
//	Server.listen            front/streams.go    writes them; with several members, modern clients wait 200 ms
//	Core.follow              subscriptions.go    moves subscriptions of replaced upstreams, in the background
//
// # Other files
//
//	server.go         the Core; replaces the snapshot of the configuration, policy and catalogs
//	list.go           the lists, page by page; waiting for upstreams that are starting
//	completion.go     completion/complete, with the values that policy allows
//	approve.go        policy's ask: the user sees the exact call in the client
//	ask.go            server requests for a client
//	parked.go         calls that wait in an upstream until a modern client returns with answers
//	state.go          what requestState and task IDs of modern clients mean for a request
//	signin.go         the connect tool of an upstream that each user signs in to
//	listen.go         what streams of notifications get; subscriptions.go: their resources
//	older.go          results and forms for protocol versions that lack their features
//	errors.go         the errors that several files return, and the reasons that fronts make statuses of
//	report.go         data for the log and the audit; the interface for metrics and traces. What operators
//	                  read of the items is in scope/report.go
//
// Package view merges and renames the catalogs. Package search finds tools by words. Packages pins,
// schema and redact check definitions, arguments and results. Package budget limits everything that
// callers share. Package approval makes the form of an approval. Package origin checks where a request
// comes from. Package canon compares JSON values. Package sealed defines what clients carry between
// requests: requestState, task IDs and cursors. Package answers keeps results of calls that may be
// reused (cache). Package proxytest has servers and callers for tests.
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
// requestState name the owner. Each other member authenticates a request and forwards it to the
// owner. If the body has at most 64 KiB or an unknown length, the member reads the body first, and
// can send the request to another member if the owner has just ended. It passes a larger body on as
// it arrives, once. The owner authenticates the request again, counts it against the budget and the
// limits, and writes the only audit line. All other requests are answered by the member that gets
// them.
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
