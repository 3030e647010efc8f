// Package streams decides what the streams of notifications get: the GET streams of legacy sessions, and
// subscriptions/listen of the modern era. It keeps the streams (listen.go) and the subscriptions to
// resources (subscriptions.go), and moves both to each new snapshot. It knows no request and writes
// nothing: package proxy answers the requests, and a front writes each stream in the goroutine of its
// request. "A change of a catalog" in the documentation of package proxy has the way of a change.
package streams
