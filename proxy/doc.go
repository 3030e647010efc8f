// Package proxy answers MCP clients from the catalogs and calls of upstreams, in both eras of the
// protocol. It is the core: it answers a request for one caller (an Exchange), and knows no HTTP.
// Package front is the HTTP side: it reads requests, chooses the era, keeps the sessions, and writes
// answers and streams. The interface Front (exchange.go) is what the core needs of it. Package scope,
// beneath both, is what one caller sees.
//
// # The path of a call
//
// http1.Server (upstream/http1) reads each request from the listener. The program passes it on to
// Server.ServeHTTP if it is not for one of its own pages (publicHandler in cmd/junction/serve/serving.go). A
// tools/call of a client then passes through these functions:
//
//	Server.ServeHTTP         front/server.go     routes
//	Server.checkOrigin       front/request.go    rejects foreign origins and hosts
//	Server.at                front/request.go    loads the snapshot, which the request keeps, except after
//	                                             a wait; finds the caller, its endpoint and its subject view
//	Server.newRequest        front/request.go    one HTTP request, with its Exchange
//	Server.forwardSession    front/owner.go      passes the request on if another process has the session
//	Server.post              front/request.go    reads the body within its limits (package budget)
//	Core.Read                exchange.go         reads the message and its params
//	Server.forwardParked     front/owner.go      passes the request on if another process has the parked call
//	Server.frontFor          front/eras.go       chooses the era of the message
//	legacyFront.post         front/legacy.go     2025-11-25 and older: handshake, session, batch, GET stream
//	legacyFront.enter        front/legacy.go     finds the session
//	legacyFront.run          front/legacy.go     lists the call in its session, which can cancel it
//	modernFront.post         front/modern.go     2026-07-28: header and body must agree
//	Server.answer            front/request.go    runs Core.Serve, and then finishes the reply
//	Core.Serve               exchange.go         dispatches, has the front answer, reports to log and audit
//	Core.dispatch            dispatch.go         methods, call tools (package search), rate limits of policy
//	Core.call                call.go             find, restore, permit, validate, approve, call, filter, answer
//	parkedCalls.begin        parked.go           if a modern client calls a legacy server: the call may be parked;
//	                                             applies Exchange.filter itself, in place of filtered
//	Core.callUpstream        call.go             calls the upstream, and keeps the result if it may be reused
//	Core.callBackend         call.go             calls here, or at the member that has the state
//	Core.filtered            call.go             removes what the policy redacts (package redact); with restore, the
//	                                             text can come back
//	Core.answerResult        bridge.go           converts the result to the client's era
//	request.Succeed          front/request.go    is Front.Succeed
//	reply.succeed            front/reply.go      one JSON document, or the last event of a stream
//
// Core.callBackend calls (*upstream.Upstream).Call. The documentation of package upstream continues from
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
// A server sends list_changed, or its list was read again. The documentation of package upstream has
// the way to the hook CatalogChanged, which wakes refreshLoop (cmd/junction/serve/upstreams.go). It is one
// goroutine, so that changes during a refresh merge into one more. The new tools then reach the clients
// in these steps. The third column is the lock that is held: changing orders snapshots, and mu is the
// lock of Listeners, which each new stream and each message to a stream need.
//
//	Core.Refresh             server.go           -         or Core.Settle, for requests that wait for a server
//	Core.change              server.go           changing  builds and stores the next snapshot (scope.New)
//	Snapshot.stockUp         scope/snapshot.go   changing  keeps the stocks of all catalogs that have not changed
//	View.Current             view/view.go        changing  whether an endpoint keeps its view; else Compile
//	Earlier.Keep             scope/earlier.go    changing  the old snapshot, for clients that are paging (1 minute)
//	Listeners.Renew          streams/renew.go    -         moves streams and subscriptions to the new snapshot
//	Listeners.undecided      streams/renew.go    mu        collects the callers of all streams and subscriptions
//	Snapshot.Adopt           scope/endpoint.go   -         one caller in the new snapshot (from decide)
//	Caller.SameList          scope/endpoint.go   -         whether its list is unchanged (from decide)
//	Listeners.move           streams/renew.go    mu        queues list_changed for each stream with a changed list
//	Listeners.follow         streams/follow.go   mu        moves subscriptions of replaced upstreams (background)
//	Listeners.Drain          streams/listener.go mu        the messages of one stream, for the front
//	Server.listen            front/streams.go    -         writes them; with members, modern clients wait 200 ms
//
// A session gets each list_changed on one of its streams; a modern client on each subscription.
// While callers with new streams come faster than renew decides, it decides with mu in the eleventh
// round.
//
// The cost of one change, where n callers have a stream or a subscription:
//
//	how often                             what
//	for each link that reads a catalog    the server's lists are read, and all definitions compared (catalogs.mu)
//	for each catalog that differs         the stock of the catalog
//	for each endpoint with the server     the view is compiled
//	n times, one caller after the other   Adopt: the endpoint, the Guard, and the rights (Policy.For)
//	n times, if callers have own catalogs a stock, and a view derived from that of the endpoint (ForClient)
//	for each set of different rights      a ruling about each class of items that the same rules select: the sight
//	for each such sight, old and new      a hash of each item; SameList compares 8 bytes of each
//	for each stream, and each resource    one step, with mu
//	for each other caller, later          rights, sight and pages again, with the next request
//
// One link reads the catalog of all callers. A caller with a connection of their own has a link that reads,
// too: by default, if there are several users or API keys, at a command and at a legacy server with a URL.
// So a change is read at most max_links times: 8 for a command, 256 for a URL. A user with credentials of
// their own has an upstream of their own, with its own links.
//
// So 500 callers with equal rights cost 500 times their rights and one sight of 2,000 tools; with 500 different
// rights, they cost 500 sights. BenchmarkListChanged (change_test.go) measures a change of 2,000 tools with 500
// callers who have policies of their own: 58,000 allocations of 46 MB. decide (streams/renew.go), which does
// the rows from Adopt to SameList, is most of the cost, and the place to change. SameList compares nothing if
// rights and stocks show that a list is unchanged.
//
// decide runs without mu, in the one goroutine that calls Core.Refresh. If a request of a client calls
// Core.Settle, that request pays for it. So does a request that opens a stream or a subscription while the
// snapshot changes (Listeners.catchUp): it decides for all callers. recheckLoop
// (cmd/junction/serve/upstreams.go) decides for all callers with the same snapshot (Core.Recheck): after
// OwnChanged, and every 5 s if users can sign in (Guard.Resources). With mu, follow looks at the stocks of
// the endpoint for each resource of a subscription. The new snapshot has empty caches for all endpoints, also
// for those that keep their view: therefore the last row.
//
// The bounds: changes during a refresh merge into one more; a stream has at most limits.queue messages that
// wait, and equal ones merge. limits.streams bounds the streams. The subject views of a snapshot, with their
// sights, have at most maxSubjects bytes (scope/snapshot.go); others are made again. Earlier snapshots are at
// most 8, and 64 MiB (scope/earlier.go). The lists that callers then read count for their budgets.
//
// # Where a denied item is hidden
//
// The functions of package policy in the first rows decide, and the other functions ask them. A denied item
// gets the same answer as an unknown name.
//
// A list passes through Core.list (list.go), subjectView.Listed (scope/subject.go) and SubjectView.Sight. A
// call passes through findNamed (call.go), Exchange.named and SubjectView.Named, and is refused by
// unknownNamed (errors.go). If only its arguments are denied, Exchange.permit refuses it, by deniedArguments.
// Before both, Caller.Enter and Caller.Outside (scope/endpoint.go) refuse an endpoint. All functions:
//
//	Ruling.Visible           ../policy/ruling.go      whether a subject sees an item
//	Items.Visible            ../policy/items.go       the same of many items at once; must agree with Ruling.Visible
//	Ruling.Decide            ../policy/ruling.go      a call, with its arguments
//	Ruling.Unconditional     ../policy/ruling.go      completions of a prompt, whose arguments are not known yet
//	Rights.Beginning         ../policy/beginning.go   completions of a URI, whose end is not known yet
//	Rights.Reaches           ../policy/reach.go       whether some item of an upstream might be visible: for
//	                                                  endpoints, capabilities, instructions, the connect tool
//	Rights.None              ../policy/reach.go       whether a subject may do nothing
//	Rights.Outside           ../policy/endpoints.go   whether a subject is bound to other endpoints
//	SubjectView.Sight        view/subject.go          in lists
//	SubjectView.reaches      view/subject.go          whether the subject reaches an upstream without items, too
//	SubjectView.Named        view/subject.go          by the name of a tool or prompt
//	Exchange.named           call.go                  the same for a call; hides tools for MCP Apps, too
//	Exchange.prefixed        list.go                  by a prefix: calls of tools that are not listed yet
//	Exchange.connecting      signin.go                the connect tool
//	SubjectView.Resource     view/resource.go         by the URI of a resource
//	Sight.Search             view/search.go           in search
//	Caller.Hidden            scope/endpoint.go        an endpoint without visible items, or for other callers
//	Server.at                front/request.go         rejects a caller without rights, or of a hidden endpoint
//	Server.forbid            front/request.go         the answer to a caller without rights: 403
//	Server.noEndpoint        front/request.go         the answer for a hidden endpoint: 404
//	discover                 dispatch.go              capabilities and instructions, for modern clients
//	legacyFront.handshake    front/legacy.go          the same for legacy clients
//	Exchange.permit          permit.go                each call, with its arguments
//	Core.permitAgain         permit.go                the same after each wait for the user
//	Exchange.Still           permit.go                the same before a call is sent that has waited for its server
//	Sent.Still               sent.go                  the same for a call of another member, by the policies here
//	Core.lookAgain           list.go                  takes the newest snapshot after a wait for a server; keeps the
//	                                                  old one if the caller has lost its rights meanwhile
//	findReference            completion.go            in completion
//	Exchange.completesPrompt completion.go            in completion, prompts that depend on arguments
//	Core.filterCompletion    completion.go            values of completions
//	SubjectView.Skill        view/skill.go            skills, and their files
//	Exchange.checkSkills     skill.go                 skills in results
//	Core.awaitNamed          list.go                  by the time of the answer
//	aboutTask                state.go                 in requests about tasks
//	request.serverOf         front/stateful.go        in calls of another member
//	reach.uses               ../cmd/junction/serve/inforce.go  in the sign-in to an upstream
//	reach.servers            ../cmd/junction/serve/inforce.go  in the list of a user's upstreams
//	Listeners.renew          streams/renew.go         in open streams, after a change of the policy
//	Listeners.Updated        streams/updated.go       in updates of resources
//
// With pinned, an item that is not accepted is hidden, too. No function of package policy knows this:
// SubjectView.look and SubjectView.sees check it, and explain (view/explain.go) for the operator.
//
// integration/safety tests this, in the files named hidden, listed, probes and completion.
//
// # Other files
//
//	server.go         the Core; replaces the snapshot of the configuration, policy and catalogs
//	list.go           the lists, page by page; waiting for upstreams that are starting
//	completion.go     completion/complete, with the values that policy allows
//	skill.go          the methods of the extension for skills
//	config.go         the sections limits and catalog of the file
//	sent.go           the same about a call that another member has sent, for a server with a state
//	permit.go         the decision of the policy about a call, and about the same call after a wait
//	validate.go       whether the arguments of a tool call fit the definition of the tool
//	forward.go        the headers of the client of a call that go to the server (forward_headers)
//	folder.go         the folder of the client of a call, for isolation: folder
//	approve.go        policy's ask: the user sees the exact call in the client
//	ask.go            server requests for a client
//	parked.go         calls that wait in an upstream until a modern client returns with answers
//	state.go          what requestState and task IDs of modern clients mean for a request
//	signin.go         the connect tool of an upstream that each user signs in to
//	subscribe.go      the requests that begin and end subscriptions
//	older.go          results and forms for protocol versions that lack their features
//	nulls.go          members of results that are null, which clients reject
//	extension.go      notifications of extensions that Junction does not know
//	errors.go         the errors that several files return, and the reasons that fronts make statuses of
//	outcome.go        how a call ended, in one word: the table of the outcomes
//	report.go         data for the log and the audit; the interface for metrics and traces. What operators
//	                  read of the items is in scope/report.go
//
// Package streams keeps the streams of notifications and the subscriptions to resources. Package view
// merges and renames the catalogs. Package search finds tools by words. Packages pins,
// schema and redact check definitions, arguments and results. Package budget limits everything that
// callers share. Package approval makes the form of an approval. Package origin checks where a request
// comes from. Package canon compares JSON values. Package sealed defines what clients carry between
// requests: requestState, task IDs and cursors. Package answers keeps results of calls that may be
// reused (cache). Package proxytest has servers and callers for tests.
//
// # Sessions
//
// In memory, a session is in sessions.byID (front/session.go) of one member, until it is idle and another
// request comes (trim), or its account has more than half of what others leave of limits.sessions; never
// while a call or a stream uses it. The ID of a legacy session contains, sealed, the
// protocol version, the client and its capabilities, when it began, the principal, the key for upstreams and
// the member that created it (sealedSession in front/session.go). So a session survives eviction from memory
// (idle, or beyond the share of its account), a restart, and the end of its member. It always loses its
// subscriptions, its log level, its remembered approvals, its replayable events, the extensions that its
// client has declared, and the text that was removed from its answers. A restart, and the end of its member,
// also end its calls and streams. A restart with another key ends all sessions.
//
// A session ends when the client deletes it (legacyFront.delete), and with its first request later than
// sessions.max_age after it began (sessions.find and sessions.open). Without such a request, an open stream
// of an older session lives on.
//
// The ID has the time when the session expires by the sessions.max_age with which it began: so a larger one,
// after a restart or at another member, makes no expired ID valid again. The hash of a deleted ID is kept until
// then, and for sessions.max_age after the deletion at least: in sessions.deleted, in the file ended-sessions
// beside the key (cmd/junction/base/stored/sessions.go), and among members in the table deleted_sessions.
// Alone, limits.sessions hashes are kept at most:
// beyond that, the oldest one of the principal with the most is forgotten, and its ID is valid again until it
// expires.
//
// A modern client has no session. With isolation: session, the folder that its headers name stands for one
// (Window in folder.go).
//
// With isolation: session, the upstream knows a session by its key, which the ID contains, too: so a
// rebuilt session uses the same connection again, if that is still open at this process. The end of a
// session does not end this connection: it ends after 15 minutes without a call, or after idle_stop
// (upstream/idle.go), and before that if another connection needs its place (max_links, takeIdle).
//
// A legacy request without a session ID has a Session of its own, without a key (legacyFront.enterWithout,
// Exchange.sessionless). Nothing of it is kept, so any member answers it. The methods that change a session
// (method.session), and upstreams with isolation: session, refuse it.
//
// # Members
//
// Several processes can serve the same endpoints over one database (package members). A session is
// in the memory of its owner, and so is a parked call. The sealed session ID and the sealed
// requestState name the owner. Each other member authenticates a request and forwards it to the
// owner. If the body has at most 64 KiB or an unknown length, the member reads the body first, and
// can send the request to another member if the owner has just ended. It passes a larger body of a
// session on as it arrives, once: if the owner ends then, the client gets an error. The owner judges the
// request by the policies of both members (scope.Caller.Stricter) if these differ. A request that
// returns to a parked call was always read before. The owner authenticates the request again, counts
// it against the budget and the limits, and writes the only audit line. All other requests are
// answered by the member that gets them.
//
// The response of a legacy client to a server request takes this way if another member gets it:
//
//	Server.forwardSession    front/owner.go      asks Server.session where the session is
//	Server.session           front/owner.go      in memory, or else opens the ID and asks Members.Owner
//	Server.reserveForward    front/owner.go      reads a small body, within the limits
//	(*Member).Forward        ../cmd/junction/base/replicas  sends the request to the owner, with Junction-Hop
//	(*Member).receive        ../cmd/junction/base/replicas  at the owner; Junction-Hop has the client's address
//	Server.at                front/request.go    at the owner, authenticates the request again
//	Server.forwardSession    front/owner.go      at the owner: has the session, or gives it up (Server.handOver)
//	Server.post              front/request.go    at the owner, as for all requests
//	Server.frontFor          front/eras.go       at the owner; without a modern version it is the legacy era
//	legacyFront.post         front/legacy.go     at the owner
//	legacyFront.enter        front/legacy.go     at the owner, finds the session
//	legacyFront.accept       front/legacy.go     at the owner, as for all messages that are no requests
//	session.respond          front/pending.go    wakes request.Ask; the client gets 202
//
// If Forward returns ErrGone, the request waits (Members.Await), for at most 20 s (takeover), until the
// lease of the owner has ended. Then it asks for the owner again, and the member becomes the new owner
// itself if it is the first: (*Member).Owner of package replicas, with (*Member).runClaims and
// (*Member).claimSessions. In the new owner, session.respond finds no server request with this ID: it ended
// with the old owner. The response is dropped, and the client gets 202 all the same. The call that caused
// the server request has ended with the old owner, too.
//
// The return to a parked call takes the way of the table above: Server.forwardParked sends it to
// the member that Core.ParkedAt names, and there it is answered as if it had arrived there. If the
// lease of that member has ended, the member that got the request returns errParkedGone. Before, it
// throws nothing away: it waits, as above, or answers with an error by which the client returns again.
//
// A requestState of another kind than parked, and a task ID, need no owner: any member answers, except for
// the state of a stateful server (below).
//
// A member without a lease because the database does not answer (Last, not Self) refuses sessions and what else
// members share (ErrAlone). It answers requests that need neither. It takes answers to the questions of
// its calls, and passes those to other calls on to the members that it knew (Server.deliver, Members.Deliver).
//
// An owner that renews its lease, but cannot be reached (ErrUnreachable), keeps its sessions and its
// parked calls. The client gets 503, and may try again. One request a second tries to connect. The same holds
// for an owner whose process is frozen. Each request has a latest time to begin (Junction-Latest), after which
// the owner refuses it: so no request is executed whose client has got the error. A request that the owner has
// begun waits for it, because it may have been executed.
//
// An owner that is stopping (Server.Ending) goes on to answer requests of other members, until its calls
// have ended or the grace is over, because their answers, cancellations and returns come with such
// requests. It keeps the sessions with a call in flight. It gives each other session up at the first
// request for it (Server.handOver), whose answer has the header of ErrReleased. The member that
// forwarded the request then becomes the owner in the table, or finds another one there. Three rules
// keep a session at one member: the lock of the session decides whether a call begins or the session is
// given up, not both; a stopping owner never loads a session into memory again; and the owner in the
// table comes before the owner in the session ID. A modern client's answer
// to an approval request needs no owner (a legacy client's is a response as above): any member
// accepts it, and Core.spend asks Members.Once whether it is the first.
//
// The state of a server that declares some (stateful) has an owner for each principal, for each folder of one,
// or for all. The member that has the request does everything as for other calls, and then:
//
//	Core.callBackend         call.go             asks Backend.Holder whether the server has a state
//	request.CallStateful     front/stateful.go   asks Members.State who has it; makes the call here, or
//	request.callAt           front/stateful.go   sends it (Members.Send) with the headers of the client
//	Server.serveMember       front/stateful.go   at the owner: authenticated again, finds the server
//	Server.makeCall          front/stateful.go   at the owner: permits the folders of the call again
//	                                             (AdmitAgain); Backend.Call, whose peer is a stateful.Owner
//	Read                     stateful/member.go  passes notifications and questions on, and has the result
//	Server.answerMember      front/stateful.go   at the owner: the answer to a question
//
// An answer to a question that does not reach the owner is sent again, for at most 30 s (answerPatience),
// and the owner ignores a second one. Then the call ends with ErrLost, because the time limits of the owner
// pause until the answer has come.
//
// A stopping owner gives a state without a call in flight up at the first call of another member
// (Server.enter). While the owner is away, calls wait for the end of its lease, as requests of sessions do.
// The owner judges the call by its own policies, too, before it sends the call (Sent): after a wait for the
// server, too, in which a key may have been revoked. It does not ask the user again.
//
// An owner whose own configuration denies the caller the server refuses the call and keeps the state: its
// file may be older than that of the other member, and other callers use the state (hidesState).
//
// If an owner has ended, exactly one other member becomes the owner of each of its sessions, and
// rebuilds the session from the ID. Requests wait for that. The session has lost what a restart
// loses, and its next stream begins with list_changed. Parked calls fail with an error that names
// this reason.
//
// A member whose lease has expired serves no sessions, but keeps them in memory: it gets its ID
// back if no other member has deleted its row. If its row was deleted, it joins with a new ID, ends
// the calls and streams of its sessions, and drops them from memory, because other members may have
// them. Their clients continue at any member.
//
// All members together count the limits of policies, each by shares that it has taken in advance, and
// accept each answer to an approval request once. Each member for itself counts limits.parked, the shares
// of the budget, and concurrency and max_links of an upstream, remembers the approvals of modern clients,
// and keeps the text that was removed from its own answers.
//
// # Bytes
//
// Messages are forwarded byte for byte. Junction replaces only data of a single hop: the id, names
// and URIs, and the members of _meta about the connection.
package proxy
