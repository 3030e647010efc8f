// Package replicas implements proxy/members: several processes over one Postgres that answer for
// each other's sessions. By file:
//
//   - member.go: Member, this process among the others; what it knows of them
//   - lease.go: the connection that holds this process's row in the table members
//   - join.go: the statements of that table, and why a process is refused
//   - identity.go: the key of connections between members, derived from the key of sessions
//   - hop.go, receive.go: forwarding a request to another member, and answering a forwarded one
//   - owners.go: owners of sessions, deleted sessions, and IDs that may be used once
//   - limits.go: rate limits and calls in flight over all members
//   - sweep.go: deletion of expired rows
//
// # Leases
//
// A member has a row with the time until which it is a member, by the clock of the database. The
// member renews the row, and calls itself a member for a shorter time, by its monotonic clock and
// from before it sent the statement. So a member that was paused, or that lost its connection,
// stops to call itself a member before the row expires, whatever its own time of day is.
//
// An ID is inserted once. A row that was deleted never comes back, and only then another member may
// take what its member had. A row that has expired, and that no other member has deleted, can be
// renewed: an outage of the database ends no session.
package replicas
