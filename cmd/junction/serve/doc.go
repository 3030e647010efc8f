// Package serve is a running Junction.
//
// # Parts
//
// A running proxy consists of parts (parts.go). Each part owns its fields: the parts that it reads
// are among them, and it writes none of theirs. program.go has the list of the parts. Start, reload
// and stop walk through it:
//
//   - start opens each part with the configuration (Open), and then puts the configuration in force
//     as a reload does;
//   - a reload prepares the new configuration in each part (Prepare). Only if all could open what
//     they need, it puts the configuration in force in each part (commit). Otherwise each part
//     releases what it has prepared (drop), and is as it was;
//   - while the program serves, each part that has a method Run runs in a goroutine;
//   - stop closes the parts, the last one first (Close).
//
// The parts in the order of the list. All have what they have in common (common.go): options, screen and log.
//
//	part        file          owns                                    reads
//	place       place.go      the record of where the process serves  contents listening inForce
//	terminal    common.go     the log, the first screen               -
//	contents    contents.go   the file; programs that print secrets   recording
//	certified   certified.go  the certificate of TLS                  -
//	listening   listen.go     the listeners                           certified inForce
//	pinned      pinned.go     the content of the pins file            -
//	recording   audit.go      the audit, its second receiver          revoked
//	sealing     sealing.go    the key of sessions and its folder      -
//	revoked     revoked.go    the API keys that the file had          contents sealing
//	measuring   telemetry.go  metrics and traces                      listening
//	storage     vault.go      the database with its lease             recording measuring
//	                                                                  upstreams
//	signIns     signin.go     sign-ins of users; credentials for      storage inForce measuring
//	                          upstreams                               upstreams revoked
//	inForce     inforce.go    configuration, policy and guard in      contents listening pinned
//	                          force                                   recording measuring signIns
//	membership  members.go    this process as one of several          sealing storage signIns
//	                                                                  serving
//	checks      probes.go     what the proxy depends on; the          contents certified listening
//	                          supervisor                              inForce recording storage
//	                                                                  signIns membership
//	serving     serving.go    the proxy itself; pages for clients     sealing listening inForce
//	                                                                  recording measuring signIns
//	                                                                  membership
//	upstreams   upstreams.go  the servers behind it; their catalogs   sealing inForce measuring
//	                                                                  signIns serving
//
// The order decides four things. A process whose address is taken opens nothing else. The
// upstreams end before their credentials and the storage. The storage is closed before the audit,
// which gets its last events, and before the place: another process that waits for this one finds
// everything free. A configuration comes into force after its audit and its storage.
//
// # Other files
//
// start.go waits for another process that is ending. serve.go is the time between open and close.
// reload.go notices a changed configuration file (package config). pages.go has what the admin
// address shows (packages diagnose and pages). hooks.go writes the log and the audit of calls
// (package record), events.go the events of the storage. identities.go signs who calls, for servers that
// get that. expiry.go warns of API keys that expire.
// machine.go logs what this machine lacks. installed.go notices that the program on disk was replaced.
//
// own.go has the other ways to serve: as a service, and for one client. login.go signs the operator
// in to upstreams, with the same storage.
package serve
