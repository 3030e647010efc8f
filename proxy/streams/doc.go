// Package streams decides what the streams of notifications get: the GET streams of legacy
// sessions, and subscriptions/listen of the modern era. It keeps the streams and the subscriptions
// to resources, and moves both to each new snapshot. It knows no request and writes nothing:
// package proxy answers the requests (subscribe.go there), and a front writes each stream in the
// goroutine of its request.
//
//	listeners.go    all streams and subscribers of a process
//	listener.go     one stream: its queue, and its messages
//	subscriber.go   the subscriptions of a stream or a session, and the account that pays for them
//	subscribe.go    subscribes at the upstreams
//	updated.go      which subscribers get notifications/resources/updated
//	renew.go        after a change: what each caller may get from now on, and list_changed
//	follow.go       after a reload: subscriptions of replaced upstreams
//
// "A change of a catalog" in the documentation of package proxy has the way of a change, with its
// locks.
package streams
