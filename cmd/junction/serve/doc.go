// Package serve is a running Junction.
//
// start.go waits for another process that is ending. program.go opens the parts of a running proxy, and
// closes them; serve.go is the time between. reload.go applies a changed configuration file, which
// contents.go reads (package config). rules.go has the configuration in force.
//
// The parts: listen.go opens the listeners (package listeners). state.go has the key of sessions.
// vault.go has the storage, and events.go writes the events in it to the audit. signin.go has the
// sign-ins of users and the credentials for upstreams, and members.go adds the process to others (package
// replicas). serving.go answers clients, and upstreams.go has the servers behind them, whose catalogs are
// stored (package stored). expiry.go warns of API keys that expire.
//
// A running proxy reports in these ways: audit.go and hooks.go write the lines of the log and of the
// audit (package record). telemetry.go sends metrics and traces (package telemetry). Package diagnose
// answers at the admin address, and pages.go serves the pages (package pages). probes.go checks what the
// proxy depends on (package health). Package screen prints the first screen. Package runfile tells the
// commands where the proxy serves. Package prose formats text for people, and package build has the
// version of the program.
//
// own.go has the other ways to serve: as a service, and for one client. login.go signs the operator in to
// upstreams, with the same storage.
package serve
