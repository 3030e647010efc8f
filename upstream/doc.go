// Package upstream keeps MCP servers connected and makes calls on them.
//
// It is a ladder, and each rung knows only the one below it:
//
//	Set        all configured servers; keeps those whose Config did not change        set.go
//	Upstream   one configured server: its links by profile, its catalog               upstream.go, pool.go, catalog.go
//	link       keeps one conn alive; the state machine                                link.go, state.go
//	conn       a wire whose era is known: can make MCP calls                          conn.go, legacy.go, modern.go
//	wire       moves messages; knows nothing of MCP                                   wire.go: stdio.go, http.go, sse.go
//
// A server that asks something during a call is answered by the call's Peer (question.go); a legacy one hears once in a connection what its client can do, so that
// its links are by Profile (profile.go).
//
// What people sign in to themselves has an Upstream for each of them (people.go), whose requests carry what that person was given (credentials.go).
//
// Three wires and two eras are five files, not six combinations. Messages are package jsonrpc's, as their sender wrote them.
package upstream
