// Package serve is a running Junction.
//
// start.go waits for another process that is ending.
// program.go has the parts of a running proxy and their lifetimes: listen.go opens the listeners
// (package listeners), and members.go adds the process to others (package replicas). signin.go,
// people.go and vault.go have the sign-ins of users, and state.go has the key of sessions and the
// stored catalogs (package stored). loops.go puts changed catalogs and sign-ins in force, and expiry.go
// warns of API keys that expire.
//
// Package config reads the configuration file; reload.go applies a changed one. Package prose
// formats text for people. Packages yamlread and yamledit read and change YAML with its lines and
// comments. Package build has the version of the program.
//
// A running proxy reports in these ways: hooks.go and events.go write the lines of the log and of
// the audit (package record). telemetry.go sends metrics and traces (package telemetry). Package
// diagnose answers at the admin address, and pages.go serves the pages (package pages). probes.go
// checks what the proxy depends on (package health). Package screen prints the first screen.
// Package runfile tells the commands where the proxy serves.
//
// own.go has the other ways to serve: as a service, and for one client. login.go signs the operator in to
// upstreams, with the same storage.
package serve
