// Package replicas implements the interface of package members: several processes with one Postgres
// answer requests about each other's sessions. Each process is a member; users read replica.
//
//   - member.go: Member, which is this process, and the list of the other members
//   - lease.go: joins, and renews the lease of this process on a connection of its own
//   - join.go: the SQL of the table members, and the reasons to refuse a process
//   - identity.go: TLS between members, with a key that is derived from sessions.key_file
//   - forward.go, receive.go: send a request to another member, and answer such a request
//   - owners.go: owners of sessions, deleted sessions, and IDs that may be used once
//   - limits.go: rate limits and calls in flight of all members together
//   - statements.go: the SQL of both
//   - sweep.go: deletes expired rows
//   - metrics.go: numbers for package telemetry
//
// # Trust
//
// All members have the key in sessions.key_file. The owner of a session authenticates a forwarded
// request again, by its token. But it takes the address of the client from the member that forwards
// the request (Junction-Hop), and applies auth.trusted_proxies to this address. A process that has
// the key can therefore choose the address by which policies and keys decide.
//
// # Leases
//
// Each member has a row in the table members. The row expires by the clock of the database, and the
// member renews it in time. The member itself counts a shorter time, by its monotonic clock, from
// the moment before it sent the statement. So a member that is paused or has no connection stops
// acting as a member before its row expires. Its time of day does not matter.
//
// A member joins with a new ID. It loses its sessions only when another member deletes its row,
// which is allowed after the row has expired. A deleted row never comes back. If the row was not
// deleted, the member can still renew it. So an outage of the database ends no session.
package replicas
