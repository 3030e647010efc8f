package upstream

import "time"

// State is the state of a link.
type State int

const (
	// StateConnecting: the transport is being opened, the handshake done, the catalog read. Next:
	// ready, waiting, blocked or closed.
	StateConnecting State = iota
	// StateReady: calls can be made. Next: waiting, blocked or closed, and connecting when a call
	// found the connection broken.
	StateReady
	// StateWaiting: the last attempt failed, or the conn ended; the next attempt comes by itself,
	// and sooner when a call wants it. Next: connecting or closed.
	StateWaiting
	// StateBlocked: the server refuses us until a person does something, or the kernel cannot
	// enforce the sandbox that a command requires. An attempt still comes now and then by itself.
	// Next: connecting or closed.
	StateBlocked
	// StateClosed: unconfigured, unused for long, or shutting down. It is the end of a link; the
	// next call opens a new one.
	StateClosed
)

func (s State) String() string {
	switch s {
	case StateConnecting:
		return "connecting"
	case StateReady:
		return "ready"
	case StateWaiting:
		return "waiting"
	case StateBlocked:
		return "blocked"
	}
	return "idle"
}

// Status describes an upstream for the operator.
type Status struct {
	Name string
	// of the link that reads the catalog; StateClosed means that the upstream is stopped until the
	// next call
	State   State
	Since   time.Time
	Err     string // why it is not ready, in one line; "" when it is
	Era     Era
	Version string // of the protocol
	Tools   int    // listed now
	Stored  bool   // the tools are those that an earlier process has listed
	Left    []LeftOut
	Links   int
	Advice  string // what a person can do about Err; "" if that is not known
	// processes that run for a command; 0 for a URL
	Processes int
	Sandbox   string // how far the kernel enforces the sandbox: command.Enforced, or what it does not, and why; "" without a sandbox
}
