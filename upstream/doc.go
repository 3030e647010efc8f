// Package upstream connects to MCP servers and calls them.
//
// Four layers are above the transports. Each layer uses those below it. Only a link also calls the
// pool of its Upstream:
//
//	Set        all configured servers; keeps those whose Config did not change   set.go
//	Upstream   one configured server: its links, its catalog                     upstream.go, pool.go, catalog.go
//	link       keeps one conn alive; the state machine                           link.go, state.go
//	conn       a transport whose era is known: can make MCP calls                conn.go, legacy.go, modern.go
//	Transport  moves messages; of MCP it implements only the HTTP headers, with  package transport
//	           those of version and session
//
// # A call, function by function
//
// Package proxy calls (*Upstream).Call for each request. The request then passes through these
// functions to the standard input of a child process:
//
//	(*Upstream).Call           upstream.go  finds the time limits and the tool; starts the clock (call.go)
//	(*Slots).Take              pace         waits until the upstream may have one more call (concurrency)
//	(*Upstream).acquire        key.go       decides which connection the caller may use (linkKey)
//	(*pool).takeTurn, take     turn.go      finds or starts the link of that key
//	(*pool).link               pool.go      starts a link, or waits until there is room for one (max_links)
//	(*link).acquire            link.go      waits until the link is ready, and returns its conn
//	(*Upstream).send           call.go      tells the Observer; failureOf decides about errors
//	(*legacyConn).call         legacy.go    or (*modernConn).call: makes the request of its era
//	(*base).prepare            conn.go      replaces the name, and the members of _meta that belong to one hop
//	(*base).roundTrip          conn.go      tracks the call, so that notifications and server requests find it
//	(*stdio).Call              transport    registers the request id
//	(*stdio).write             transport    appends the message and a line feed to a buffer
//	(*pipeWriter).try          transport    writes the buffer to the pipe, in one system call if it has room
//	(*stdio).overflow          transport    if the pipe is full: another goroutine writes the rest
//
// The messages that the process writes to its standard output pass through these functions:
//
//	(*stdio).read              transport    parses each line, on a goroutine of its own
//	(*stdio).settle            transport    a response wakes the Call that waits for its id
//	(*base).receive            conn.go      anything else: progress, log messages, changes, server requests
//
// A server request passes through these functions to the client, and the answer back to the server:
//
//	(*base).deliver            conn.go            tells requests from notifications
//	(*base).answer             conn.go            answers ping; rejects unknown methods
//	(*base).serverRequest      server_request.go  rejects a request that no client can answer
//	(*base).callOf             server_request.go  finds the call that the request belongs to
//	(*base).admit              server_request.go  limits the open requests; marks exclusive use
//	(*base).relay              server_request.go  stops the clock of the call, on a goroutine of its own
//	Peer.Ask                   package proxy      waits for the client's answer
//	(*stdio).Send              transport          writes the answer
//
// Modern servers send no requests. Their questions are results of the type input_required, which
// (*modernConn).call returns to package proxy.
//
// A link starts the process: (*link).connectAndServe (link.go) calls (*dialer).dial and
// openTransport (dial.go), and these call OpenStdio and startProcess of package transport.
//
// Over HTTP, (*streamable).Call takes the place of (*stdio).Call: (*origin).do sends the request on
// a connection of package http1 or net/http, and the goroutine of the caller reads the response.
//
// # Other files
//
// Connections: dial.go detects the era and the transport of a server. alive.go pings a legacy
// server while its calls are silent. key.go has the cases in which callers have connections or
// catalogs of their own (isolation, questions: exact). turn.go opens a second connection while a
// server request waits for a user. If each user signs in to a server, people.go has an Upstream for
// each of these users, and credentials.go gets their tokens.
//
// During a call: server_request.go passes the requests of a server to the Peer of the call that
// they belong to. profile.go has the client capabilities that Junction declares to a server.
// task.go calls tools that answer only by a task. observe.go tells the Observer about requests in
// both directions.
//
// Catalogs: catalog.go reads the lists. Package definition repairs or removes a definition that
// would make clients reject a whole list, and reads which arguments go into headers. remember.go
// stores the last catalog for the next process. subscription.go has the resources that clients
// subscribed to; listen.go and listen_shared.go subscribe to them at a modern server.
//
// Configuration: config.go is one entry of the file, validate.go checks it; package command has
// parts of it. check.go examines a server for the operator, and connects the command line.
//
// Messages are those of package jsonrpc, with the bytes that their sender wrote; package raw reads
// and changes them.
//
// Package sandbox confines a command. Package remedy reads the last output of a process that has
// ended. Package files reads and replaces files. Package upstreamtest is a server for tests.
package upstream
