// Package upstream connects to MCP servers and calls them.
//
// Three layers are above the connections. Each layer uses those below it. Only a link also calls
// the pool of its Upstream:
//
//	Set        all configured servers; keeps those whose Config did not change   set.go
//	Upstream   one configured server: its links, its catalog                     upstream.go, pool.go, catalog.go
//	link       keeps one conn alive; the state machine                           link.go, state.go
//	conn       makes MCP calls over a transport whose era is known               package client
//	Transport  moves messages                                                    packages transport, stdio
//
// # A call, function by function
//
// Package proxy calls (*Upstream).Call for each request. The request then passes through these
// functions to the standard input of a child process:
//
//	(*Upstream).Call           upstream.go  finds the time limits and the tool; starts the clock
//	(*Slots).Take              pace         waits until the upstream may have one more call (concurrency)
//	(*Upstream).acquire        eras.go      decides in which era the call is made
//	(*pool).key                key.go       decides which connection the caller may use (linkKey)
//	(*pool).takeTurn, take     turn.go      finds or starts the link of that key
//	(*pool).link               pool.go      starts a link, or waits until there is room for one (max_links)
//	(*link).acquire            hold.go      waits until the link is ready, and returns its conn
//	(*Upstream).own            upstream.go  the call with the changes for the settings and the tool
//	(*legacyConn).Call         client       or (*modernConn).Call: measures the call
//	(*legacyConn).send         client       or (*modernConn).send: makes the request of its era
//	(*base).roundTrip          client       tracks the call, so that notifications and server requests find it
//	(*stdio).Call              stdio        registers the request id
//	(*stdio).write             stdio        appends the message and a line feed to a buffer
//	(*pipeWriter).try          stdio        writes the buffer to the pipe, in one system call if it has room
//	(*stdio).overflow          stdio        if the pipe is full: another goroutine writes the rest
//
// The messages that the process writes to its standard output pass through these functions:
//
//	(*stdio).read              stdio        parses each line, on a goroutine of its own
//	(*stdio).settle            stdio        a response wakes the Call that waits for its id
//	(*base).receive            client       anything else: progress, log messages, changes, server requests
//
// The response then returns through these functions:
//
//	(*stdio).take              stdio        Call gives its caller the message, and the buffer with it
//	(*link).answered           second.go    finds out whether a learned second process may run
//	(*Upstream).explainQuestion eras.go     says why the server could not ask the client
//	(*Upstream).inTime         upstream.go  input_required is an error if the client's request has ended
//	Core.filtered              proxy        continues in the documentation of package proxy
//
// In place of inTime, (*Upstream).failureOf decides about the error of a call. Before that, (*link).suspect
// finds out whether the error is that of a lost session, or of a sign-in that has ended. Package client
// describes the way of a server request to the client and back.
//
// A link starts the process:
//
//	(*link).connectAndServe    link.go      makes one attempt, and serves until the conn ends
//	(*pool).takeSeat           keyed.go     if the command gets the key of its caller: waits until there is room
//	(*link).open               opening.go   opens a conn, and reads its catalog
//	(*link).dial               link.go      decides which function of the Dialer opens the conn
//	(*Dialer).Dial             client       decides in which era the attempt begins; or DialLegacy, DialLegacySession
//	(*attempt).open            client       calls the open of the kind of the server (ServerKind)
//	(*attempt).openProcess     client       is that open for a command
//
// (*attempt).openProcess calls Open of package stdio, which calls startProcess.
//
// Over HTTP, (*streamable).Call takes the place of (*stdio).Call: (*origin).do sends the request on
// a connection of package http1 or net/http, and the goroutine of the caller reads the response.
//
// # The secrets and words of a request, by their source
//
// Four sources add to a request of an upstream. Only the first one is a mode of credentials:
//
//	mode (auth)        a credential of Junction, the operator or the caller: a row of modes.go, and a Source in
//	                   package credentials, which makes it
//	${exec: …}         a secret that a program prints, in headers, env and auth.client_secret. It is a part of the
//	                   entry: package config puts the value there when it reads the file, and package secrets runs
//	                   the programs
//	forward_headers    words of the client of the call: forward.go, and forward in package proxy
//	identity           a statement of Junction about the caller: identity.go, and package identity, which signs it
//
// The credential of a mode passes through these functions when a transport sends a request:
//
//	(*origin).authorize        transport    asks for the token of each request, and again after a 401
//	(*tokens).token            client       notes whether the token of the attempt has failed
//	(*pool).token              credentials.go  asks the source, with the user of the pool as the Caller
//	(*Sources).Apply           ../auth/credentials  finds the Source of the mode of the entry
//	(Carrier).field            transport    puts the token into its header: Authorization, or that of the entry
//
// A command gets the key of its caller when its process starts: withKey (keyed.go) puts the key into the
// environment. The caller of a mode with OwnerSubject has an Upstream of its own (people.go).
//
// # A change of a catalog, function by function
//
// A server sends list_changed. The third column is the lock that is held:
//
//	(*base).receive            client         -      calls Hooks.Changed; (*base).deliver on the stream of a request
//	(*link).hooks              link.go        -      makes this hook: counts the change (announced), wakes serve
//	(*link).serve              link.go        -      waits: 250 ms after the last reading; 10 s after 20 quick ones
//	(*upkeep).reread           link.go        -      limits how often; calls the next one
//	(*link).reread             reread.go      -      only on a link that reads a catalog
//	(*pool).readCatalog        pool.go        -      reads; then (*pool).adopt decides whose catalog it is
//	(*catalogs).read           lists.go       -      all pages of all lists
//	(*catalogs).publish        catalogs.go    mu     swaps the catalog; compares all definitions with the old ones
//	(*catalogs).tell           catalogs.go    mu     if they differ: calls CatalogChanged, which must not block
//
// A reading may cost connect_timeout (10 s for all lists but the tools), limits.items, limits.message,
// maxPages and the memory of its account (lists.go), and a second of checks, of which all have a twentieth
// of a processor (checks.go).
//
// For the catalog of one user, the hook is OwnChanged. For catalogs of clients (isolation, questions:
// exact), publishOwn takes the place of publish, with OwnChanged too. The mutex is that of catalogs: calls over
// connections that all share do not wait while publish compares. Package proxy continues from CatalogChanged
// and OwnChanged.
//
// # Other files
//
// Connections: opening.go opens the conn of a link and reads its catalog, which may decide about
// the era. hold.go lets calls use a link. refused.go has the pause after the server has rejected
// the credentials. eras.go has the legacy connection beside a modern one. second.go decides when a
// command gets one without a line of the file, and sentences.go has the texts that teach this.
// key.go has the cases in which callers have connections or catalogs of their own (isolation,
// questions: exact). forward.go has the headers of callers (forward_headers), and identity.go who calls.
// turn.go opens a second connection while a server request waits for a user, and askers.go knows which
// tools ask.
// breaker.go rejects calls while a server is connected and does not answer. suspect.go decides
// whether a legacy server has lost a session over HTTP, and whether 401 to a call means that a sign-in has
// ended; tenure.go closes a conn after its calls,
// and idle.go ends unused links. If callers have credentials of their own, people.go has an Upstream for each
// of these callers, and credentials.go gets the credentials; keyed.go puts a key into the environment of a
// command, and bounds the processes of all callers.
//
// Folders (isolation: folder): folders.go has those of a call, programs.go the shares of programs without
// authentication, first_call.go lets a new process learn its folders, roots.go tells whether a command asks
// for them, and validate_folder.go checks the entry.
//
// Catalogs: catalogs.go has those of one server, for all callers and for some. lists.go reads the lists,
// catalog.go checks their items, and reread.go decides when they are read again. checks.go keeps the
// outcomes of the checks of tools, and bounds the time that the lists of a server take. Package definition
// repairs or removes a definition that would make clients reject a whole list, and reads which
// arguments go into headers. remember.go stores the last catalog for the next process. subscription.go
// has the resources that clients subscribed to.
//
// Configuration: config.go is one entry of the file; validate.go checks it, and has what the operator
// sees of it; package command has parts of it. kind.go has what the kind of a server means for its entry,
// modes.go the modes of credentials, headers.go the headers that an entry cannot name, and words.go the
// words of isolation, questions and expose: one row for
// each. resolve.go makes the options of a connection from an entry, tls.go its certificates. check.go
// examines a server for the operator; advice.go and missing.go say what to do about an error.
//
// Messages have the types of package jsonrpc, with the bytes that their sender wrote; package raw reads
// and changes them.
//
// Package sandbox confines a command. Package remedy reads the last output of a process that has
// ended. Package files reads and replaces files. Package upstreamtest is a server for tests.
package upstream
