// Package replicas implements the interface of package members: several processes with one Postgres
// answer requests about each other's sessions. Each process is a member; users read replica.
//
//   - member.go: Member, which is this process, and the list of the other members
//   - lease.go: joins, and renews the lease of this process on a connection of its own
//   - join.go: the SQL of the table members, and the reasons to refuse a process
//   - numbers.go: which configuration is in force, by its number
//   - compare.go: compares the configuration of this process with those of the other members
//   - identity.go: TLS between members, with keys that are derived from sessions.key_file
//   - rules.go: has each forwarded request judged by the policies of both members
//   - forward.go, receive.go: send a request to another member, and answer such a request
//   - frozen.go: recognises a member that does not run, so that requests for it need not wait
//   - await.go: has requests wait for the end of a member, with one reader of the table members
//   - owners.go: owners of sessions, claimed in batches; deleted sessions; IDs that may be used once
//   - limits.go: rate limits and calls in flight of all members together, by the shares of this process
//   - shares.go: takes shares of a limit from the table limit_shares, and gives them back
//   - state.go: owners of the states of servers
//   - statements.go: the SQL of owners.go, and what all statements have in common
//   - outage.go: outages that all members have, and members of another database
//   - sweep.go: deletes expired rows
//   - metrics.go: numbers for package telemetry
//
// # Trust
//
// All members have keys of sessions.key_file. The owner of a session authenticates a forwarded
// request again, by its token. But it takes the address of the client from the member that forwards
// the request (Junction-Hop), and applies auth.trusted_proxies to this address. A process that has
// the key can therefore choose the address by which policies and keys decide.
//
// A message about a call of a server with a state (Send, proxy/stateful) has the credentials of the
// client, too, and the owner of the state authenticates it. The owner judges the call by its own policies
// (Sent in proxy/sent.go), and takes from the sender what the item is called, and that the user has approved
// the call: a process that has the key could make a call for a client whose request it has, against the
// policies of the others.
//
// # Keys
//
// Each file of keys is a set with an order: a member uses its first key, and accepts all. Its row has the
// fingerprints of its keys of sessions, and of its master keys. A process joins while each living member
// has its first keys, and it has theirs. So each step of a rotation can be rolled out beside the step
// before: the new key as the last one, then as the first one, then alone. The digests in a row are made
// with the first key of its member, which each other one has; so another key changes none of them.
//
// # Configurations
//
// The row of a member has a digest for each key of its configuration, and a mark that says whether members
// may differ in the key (config.Config.Shared). A process does not join beside a member that differs in a hard
// key. A member that was told to stop says so in its row, and keeps nobody out. A change of a row is told to
// the others at once. What differs is named, with the time since when this process has seen it (compare.go).
//
// A forwarded request has a digest of the policies of the member that forwards it (Junction-Rules). The owner
// compares it with that of its own policies. Before its first request with a digest, a member sends the
// policies themselves, which the owner compiles, and keeps for the last 16 digests. If the two digests differ,
// the owner judges the request by both policies (policy.Both). So members with equal files pay one header, and
// no reading of the table, which may be late, decides.
//
// Of two configurations that differ in a hard key, the one with the higher number serves (numbers.go). The table
// configurations has the numbers, by a digest of the hard keys, and each row of a member has its own one. A
// process whose number is higher than that of the members that keep it out stores that it waits. Each of those
// gives its lease back when it reads that, so the process joins without waiting for their leases. A member
// keeps its number in memory, and writes it again when it joins: so a restored database makes no older
// configuration the first one. A configuration whose processes were not stopped may come back: another one
// that serves meanwhile keeps its lower number for driftTime.
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
//
// A statement can be held up on its way for longer than a lease, and arrive after an outage before the
// renewals of members that live. So a statement that deletes a row of members, or that counts a member
// as ended, does so only if the lease of its sender has not expired and the statement is not late by
// the clock of the database (sender in statements.go). In addition, a member whose own last renewal is
// overdue takes no other member for ended, because the database may not have answered the others
// either (asSender).
//
// # Gone or unreachable
//
// Three things can be true of a member to which no connection can be made. Its lease has ended: then it
// is gone, and so are its parked calls. Or it has renewed its lease after the connection failed: then
// it lives, and requests for it are refused until there is a way again. Otherwise its state is unknown,
// and requests wait for one of the two, for at most the rest of its lease. While they wait, one
// goroutine reads the table once a second, for all of them.
//
// A member whose process is frozen renews nothing, and connections to it are accepted. Requests that it has not
// begun are refused at once (frozen.go).
//
// # States of servers
//
// A state has an owner from the first call on: the member that inserts its row. While the owner holds its
// lease, all members know it from memory. A member whose claim replaces an owner that has ended, or has
// given the state up, is told so (Took), and only one caller: the state is lost. The owner deletes the
// row when the process of the server has ended, and answers ErrReleased to members that still know it. A
// member that gets a new ID ends its processes with a state, because others may have the states now.
//
// # Limits
//
// Each limit of a principal is divided into shares, and each member makes calls with the shares that it
// holds, without a statement. A share of concurrent is one call in flight. A rate has at most twelve
// shares, each with its part of the rate and of the burst. The row in the table limit_shares has the
// shares of all members, and the requests of those that no member has; a statement replaces the row if
// it is still the one that was read. So the sum of all shares is never more than the limit, also if a
// reply is lost. A member takes its fair part with the first call, and more when its shares do not
// suffice. If none are free, it asks the holders (askBack), over the connections for forwarded
// requests: each gives back what it does not use, of a rate in use half. So concurrent: 1 moves with its
// caller: the member that gets the next call asks the one that had the last. A call that finds no share
// waits for at most 20 ms for such an attempt, with all others that wait; a rate is refused at once until
// the next attempt, which is once a second.
//
// Shares that were not used for a minute go back to the table, and those of a rate when the process stops.
// The shares of a member that has ended are free, without the requests that it could still have made.
// A principal whose policies give it different limits of concurrent in different places has at most so
// many calls as the largest of them, and each call counts for all.
//
// # Members of another database
//
// The ID of a member begins with a digest that identifies the database and the table. So a process
// recognises a session ID or a requestState of a process with the same key and another database. It
// refuses these if they were made after it has joined. Older ones can be from the time before the
// database was moved: then their members have ended, and the sessions are taken over.
package replicas
