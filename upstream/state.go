package upstream

import (
	"errors"
	"net/http"
	"time"

	"junction/upstream/transport"
)

// State is the state of a link.
type State int

const (
	// StateStarting: the transport is being opened, the handshake done, the catalog read. Next: each
	// other state.
	StateStarting State = iota
	// StateReady: calls can be made. Next: each other state; starting when a call found the
	// connection broken.
	StateReady
	// StateRetrying: the last attempt failed, or the conn ended. The next attempt comes by itself, and
	// sooner when a call needs the server. Next: starting or closed.
	StateRetrying
	// StateBlocked: a person has to change something: the entry of the upstream, its credentials, or
	// the sandbox that the kernel cannot enforce. Attempts come once a minute, but none for a
	// mistake in the entry. Next: starting or closed.
	StateBlocked
	// StateSignIn: a person has to sign in to the server (OAuth). The sign-in is noticed within
	// seconds. Next: starting or closed.
	StateSignIn
	// StateClosed: unconfigured, unused for long, or shutting down. It is the end of a link; the
	// next call opens a new one.
	StateClosed
)

// Failed reports whether the last attempt to connect failed, or the conn ended.
func (s State) Failed() bool { return s == StateRetrying || s == StateBlocked || s == StateSignIn }

// String returns the word that people read, in the log and on every page.
func (s State) String() string {
	switch s {
	case StateStarting:
		return "starting"
	case StateReady:
		return "ready"
	case StateRetrying:
		return "retrying"
	case StateBlocked:
		return "blocked"
	case StateSignIn:
		return "needs sign-in"
	}
	return "idle"
}

// Status describes an upstream for the operator.
type Status struct {
	Name string
	// of the link that reads the catalog; StateClosed means that the upstream is stopped until the
	// next call. After a failure the state stays until an attempt succeeds.
	State   State
	Since   time.Time // when State began
	Retry   time.Time // when the next attempt is due; zero if it is in progress, or none is due
	Err     string    // why it is not ready, in one line; "" when it is
	Era     Era
	Version string // of the protocol
	Tools   int    // listed now
	Stored  bool   // the tools are those that an earlier process has listed
	Left    []LeftOut
	Links   int
	Advice  string // what a person can do about Err; "" if that is not known
	// ids of the processes that run for a command, each of which leads the session of its children
	Processes []int
	// how far the kernel enforces the sandbox: command.Enforced, or what it does not, and why; ""
	// without a sandbox
	Sandbox string
}

// stateAfter returns the state after a failure. Only a person can solve the problem if the server
// rejects the credentials, or the command must not run without a sandbox.
func stateAfter(err error) State {
	var status *transport.StatusError
	var confined *transport.SandboxError
	switch {
	case errors.As(err, new(*SignInError)), needsLogin(err):
		return StateSignIn
	case errors.As(err, &confined) && confined.Permanent, errors.As(err, &status) &&
		(status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return StateBlocked
	}
	return StateRetrying
}

// configError is the reason why an upstream cannot be used as configured (Config.Blocked).
type configError struct{ why string }

func (e *configError) Error() string { return e.why }

// signIn reports whether the user of the link, or the operator, has to sign in before there is a
// token. It is false if the server rejects the token for lack of a scope.
func signIn(err error) bool {
	login, ok := errors.AsType[*LoginError](err)
	return ok && !login.Lacks || errors.As(err, new(*SignInError))
}

// lookEvery is how often a link with a sign-in checks whether the user has signed in or out
// elsewhere. The check does not involve the server.
const lookEvery = 5 * time.Second
