// Package upstream keeps MCP servers connected and makes calls on them.
//
// It is a ladder, and each rung knows only the one below it:
//
//	Set        all configured servers; keeps those whose Config did not change        set.go
//	Upstream   one configured server: its links, its catalog                          upstream.go, pool.go, catalog.go
//	link       keeps one conn alive; the state machine                                link.go, state.go
//	conn       a transport whose era is known: can make MCP calls                          conn.go, legacy.go, modern.go
//	transport       moves messages; knows nothing of MCP                                   transport: stdio.go, http.go, sse.go
//
// config.go is an entry of the file. Which era and which transport a server speaks is found out when it
// is dialled (probe.go). A Call (call.go) of a tool that answers by a task alone is made as one
// (task.go). subscription.go has which resources somebody wants to hear of, listen.go how a modern
// server tells of them, and listen_stdio.go how it does on stdio. alive.go asks a legacy server
// whether it is alive while calls are silent. Check (check.go, finding.go) looks at all that a
// server says, for a person.
//
// catalog.go reads the lists. definition.go changes a definition that would make typed clients
// reject a whole list, or leaves it out alone; older.go and outputschema.go have what only legacy
// clients reject.
//
// The two transports to remote servers share an origin (origin.go, payload.go, status.go), with package http1
// in place of net/http's transport where it is spoken in the clear. Streamable HTTP says of a call
// in the header what headers.go makes of it, and takes up broken streams (stream.go). The process
// at the other end of stdio is stdio_process.go, what it writes is read by stdio_read.go, and who
// ends it when we cannot is the Set's keeper (stdio_keeper.go).
//
// A command with a sandbox (sandbox.go) gets folders of its own and starts as a wrapper
// (stdio_sandbox.go), which is package sandbox's.
//
// One link lists and takes the calls of all clients. key.go has the exceptions: isolation, and
// questions: exact, where callers have links and catalogs of their own (own.go). A server request
// during a call goes to the call's Peer (server_request.go). While a person is asked, other calls get a
// second link, or take turns (turn.go). profile.go is what a server learns of its clients. The last
// catalog outlives the process (remember.go).
//
// What people sign in to themselves has an Upstream for each of them (people.go), whose requests
// carry what that person was given (credentials.go).
//
// Three transports and two eras are five files, not six combinations. Messages are package jsonrpc's, as
// their sender wrote them.
package upstream
