package proxy

import "time"

// Hooks report what happens. Each may be nil. They must not block.
type Hooks struct {
	// CallDone is called once for each call, after its answer was written.
	CallDone func(CallInfo)
	// Problems is called with all items that are not offered, and why, when a new view has others than the one before.
	Problems func([]Problem)
}

// CallInfo is what there is to know of a call, none of it secret: neither arguments nor results.
type CallInfo struct {
	Client   string // the name that the client gave itself; anybody can claim any
	Era      string
	Endpoint string // "" is the merged one
	Upstream string // "" when the name was unknown
	Method   string
	Name     string // as the client called it
	Took     time.Duration
	Sent     int // bytes of the request's body
	Received int // bytes of the result
	// Outcome is ok, error (the upstream's own), or the kind of our error.
	Outcome string
	Err     error
}
