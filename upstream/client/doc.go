// Package client makes MCP calls over one connection to a server.
//
// A Dialer connects to one server and detects its era and its transport. It returns a Conn. A Conn
// makes calls, reads lists, subscribes to resources, and passes the requests and notifications of
// the server to the Peer of the call that they belong to. The package knows no configuration file,
// does not reconnect, and has no policy about who shares a Conn: package upstream does all of this.
//
//	Conn       one connection whose era is known                            conn.go, legacy.go, modern.go
//	Dialer     opens a Conn; remembers the era and the transport            dial.go, knowledge.go, era.go,
//	                                                                        transports.go
//	attempt    one attempt to open a Conn: the handshakes, and its tokens   attempt.go, race.go, verdict.go
//	Transport  moves messages; of MCP it implements only the HTTP headers,  packages transport, stdio
//	           for version and session
//
// # A call, function by function
//
//	(*legacyConn).Call         legacy.go    or (*modernConn).Call
//	(*base).observeCall        observe.go   tells the Observer
//	(*legacyConn).send         legacy.go    or (*modernConn).send: makes the request of its era
//	(*base).prepare            params.go    replaces the name, and the members of _meta that belong to one hop
//	(*base).roundTrip          conn.go      tracks the call, so that notifications and server requests find it
//
// Then (*stdio).Call of package stdio or (*streamable).Call of package transport sends the request,
// and returns the response. A Clock ends the call if the server is silent for too long. The messages
// that are no responses pass through these functions:
//
//	(*base).receive            conn.go      anything else: progress, log messages, changes, server requests
//	(*base).deliver            conn.go      tells requests from notifications
//	(*base).progress           conn.go      finds the call of a progress notification
//
// A server request passes through these functions to the client, and the answer back to the server:
//
//	(*base).answer             conn.go            answers ping; rejects unknown methods
//	(*base).serverRequest      server_request.go  rejects a request that no client can answer
//	(*base).callOf             server_request.go  finds the call that the request belongs to
//	(*base).newest             owner.go           picks one if several are of one window
//	(*base).learn              turn.go            reports the calls that may have caused it
//	(*base).admit              server_request.go  limits the open requests; marks exclusive use
//	(*base).relay              server_request.go  stops the clock of the call, on a goroutine of its own
//	Peer.Ask                   package proxy      waits for the client's answer
//	(*stdio).Send              stdio              writes the answer
//
// Modern servers send no requests. Their questions are results of the type input_required, which
// (*modernConn).Call returns.
//
// # Other files
//
// Servers: server_kind.go has a row of facts for each kind of server, also those that package upstream
// and the commands need.
//
// Calls: call.go has a call, its result and the kinds of failures. clock.go limits the time of a call.
// alive.go pings a legacy server while its calls are silent. task.go calls tools that answer only by a
// task. suspicious.go has the table of answers that may mean a lost session, and control.go what
// the owner of a Conn needs to find out, and which 401 ends a sign-in. profile.go has the client
// capabilities that Junction declares to a server. later.go keeps when a server wants to be asked again.
// observe.go tells the Observer about requests in
// both directions. probe.go finds out whether a server asks for a sign-in. extension.go passes on
// notifications of extensions that Junction does not know.
//
// Subscriptions: a legacy server gets a request for each resource (legacy.go). At a modern server,
// listen.go and listen_shared.go keep subscriptions/listen open.
//
// # A new transport
//
// The five steps of another way to a URL, such as one called NEW:
//
//  1. Its code implements transport.Transport (upstream/transport/transport.go), whose comments are the
//     contract. It moves messages, and implements nothing of MCP except HTTP headers. Over HTTP it embeds
//     origin (upstream/transport/origin.go), which has the headers, tokens and redirects. Else it embeds
//     transport.Ending, and transport.Duplex if all messages share one connection. It gives messages that
//     belong to no request to the Receiver, and honours each field of a Request. ErrNotSent,
//     ErrSessionGone, ErrInvalid and ErrClosed in an error decide whether a call is sent again, so they must
//     be true. With access tokens, it asks for another token after a 401, as another in
//     upstream/transport/renewal.go does.
//  2. Its word is a constant of the type Transport, and a row with its open (transports.go). openRemote
//     (dial.go) calls that. The constant also belongs into the expression of integration/words_test.go:
//     without it, nothing finds a comparison of the word.
//  3. (*attempt).remote tells with which transport an attempt begins: the word of the entry, or
//     TransportAuto, with which the transport is found out. Only Dial begins with another one: the transport
//     that succeeded before (knowledge.go). To be found out, too, the transport needs a place there:
//     mayBeSSE decides which errors lead to the next transport of the row, dialAuto starts both handshakes
//     on one transport, and rejectedOverSSE (verdict.go) has the names of the two transports in its text.
//  4. Three tables make a word of what others write: remoteTypes in cmd/junction/desk/clients/entry.go (it
//     fills the field Transport of Entry, also for Goose) and in cmd/junction/desk/registry/server.go, and
//     bridgeTransports in cmd/junction/desk/clients/bridge.go. The flag of junction add has the words of the
//     rows (cmd/junction/desk/entries/add.go).
//  5. Only with another scheme than http and https: a row of schemes (upstream/transport/scheme.go). Without
//     its fact Secure, validation allows no credentials and no section tls. otherScheme and (*Entry).bridge of
//     cmd/junction/desk/clients, isURL of cmd/junction/desk/entries, and secure of cmd/junction/desk/registry
//     accept only these two, NewPool of package transport connects only for these two, and (calls).End of
//     cmd/junction/base/telemetry knows only their ports.
//
// Each word has the facts of the kind Remote (server_kind.go). With its fact HTTP, statuses decide whether a
// session is lost (upstream/suspect.go) and whether a call was answered (noteAnswer), securePool opens the
// connections, and (calls).End reports http as the protocol. A transport without HTTP also needs a kind of its own,
// for which these facts are false.
//
// CONTRIBUTING.md, "Making a change", has its tests and documents.
//
// # A new kind of address
//
// Another kind of address (not command, not url) is a row: ServerKind (server_kind.go) with an open of its
// own, and kindRows in upstream/kind.go. Its fields are new in Options, in Config of package upstream (also
// in Config.Address, and in Config.Entry of that package), in the function that makes one of the other
// (upstream/resolve.go), and among the parameters of ServerKindOf and ServerKindsOf. Kinds of each mode
// (upstream/modes.go) lists the kinds that may have it. The tag kind of the fields headers, auth, tls and
// transport of an entry names one kind. withAddress (cmd/junction/desk/entries/arguments.go) and addresses
// (cmd/junction/desk/clients/given.go) choose among the kinds by what a person typed, kindOf
// (cmd/junction/desk/entries/search.go) by the way of a registry. sameValues
// (cmd/junction/desk/entries/change.go) and Entry of cmd/junction/desk/clients list the fields. (calls).End
// of cmd/junction/base/telemetry takes each URL for HTTP.
package client
