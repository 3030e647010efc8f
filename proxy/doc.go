// Package proxy answers MCP clients with what the upstreams offer, in both eras of the protocol.
//
// A client's request, which package plain or net/http has read from its connection, goes through
// the files of this package in this order:
//
//	server.go     Server takes the request and loads the world, once
//	world.go      the world has the routes; it checks Origin and Host, has the guard find out who calls, finds the endpoint, reads the body up to its limit
//	budget.go     what callers share: requests in progress, streams, bytes; and the processors, in turns (turns.go)
//	direct.go     without authentication: no request through a proxy, no page of another port
//	share.go      what the caller sees of the endpoint (sight.go), and the decision about each call (rulings.go)
//	person.go     what the caller signs in to themselves, merged in; and the offer to connect it
//	fitted.go     the endpoint as a client sees it that has connections of its own to some upstreams
//	exchange.go   the message becomes an exchange: one request, on its way to one answer
//	front.go      which era does it speak?
//	legacy.go     2025-11-25 and older: the handshake, the session (session.go), arrays of messages (batch.go), the GET stream
//	modern.go     2026-07-28: header and body must agree; server/discover
//	dispatch.go   the table from method to function: what is not there does not exist; calls are metered where policy limits them (meter.go)
//	list.go       the lists are answered from the definitions of the view, page by page
//	tools.go      tools/call finds in the view the upstream, and the tool's own name; so do prompts.go, resources.go and completion.go
//	await.go      a list or a call waits for an upstream that is starting
//	completing.go what policy allows of a completion, by the URIs that its values make of a template (expand.go)
//	validate.go   arguments that do not fit the tool's schema do not reach it, where policy wants that
//	bridge.go     one call of an upstream, whichever eras meet; a modern client's result gets what its era wants
//	approve.go    before it, the person is asked, where policy says so
//	redact.go     after it, what policy does not let the caller read is taken out (secrets.go, escape.go)
//	question.go   what an upstream asks the person, as the client may be sent it
//	asking.go     a legacy client is asked on the stream of its call
//	parked.go     a modern client is asked by an answer, and comes back (state.go, valueform.go) while the call waits
//	tasks.go      a modern client asks after a task
//	older.go      what a legacy client's version does not know
//	uris.go       the URIs in a result, in an error and in a tool's definition, as the client sees them
//	reply.go      the answer: one JSON document, or an event stream as soon as there is progress to tell, which a legacy client can take up again (replay.go)
//	errors.go     every error that a client reads, and its status, is made here
//	hooks.go      what the log and the audit hear of it; explain.go what an operator who wonders does
//
// A world is immutable and belongs to the request to its end. It is made of the file's sections
// (config.go), and holds a view for each endpoint (view.go): the catalogs of its upstreams
// (stock.go), merged and renamed (names.go), with the way back; tools whose definition nobody has
// accepted (pins.go, canonical.go) are marked. A reload of the configuration (Server.Apply) and a
// changed catalog (Server.Refresh) put another world in its place; clients that listen (listen.go,
// subscriptions.go) are told if one of their lists is another one then, and of resources that they
// have subscribed to.
//
// All subjects share a world. What it keeps for single ones, such as what they see, has a budget of
// bytes (cache.go). It is made when it is asked for, and made again when it had to go. It ends with
// the world.
//
// Beside that way are profile.go, what upstreams may learn of a client; logging.go, from which
// level on it hears of their logs; and visible.go, how a text that others wrote is shown to a
// person.
//
// What a client sent and what an upstream answered are carried as the bytes that they are. Only
// what belongs to the way between two programs is replaced: the id, names and URIs, the parts of
// _meta that speak of the connection.
package proxy
