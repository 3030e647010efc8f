package upstream

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/command"
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
	Era     client.Era
	Version string // of the protocol
	Tools   int    // listed now
	Stored  bool   // the tools are those that an earlier process has listed
	Left    []LeftOut
	Links   int
	Advice  string // what a person can do about Err; "" if that is not known
	// ids of the processes that run for a command, each of which leads the session of its children
	Processes []int
	Reported  []transport.Reported // by the process of the link that reads the catalog
	// how far the kernel enforces the sandbox: command.Enforced, or what it does not, and why; ""
	// without a sandbox
	Sandbox string
}

// describe makes one line of an error, for logs and for the table of upstreams. The server may have
// written a part of it, of any length.
func describe(err error) string {
	if err == nil {
		return ""
	}
	return transport.OneLine(err.Error())
}

// shownError is an error whose text may be logged and displayed.
type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// shown returns the reason why a connection failed, with a text that may be shown.
func (p *pool) shown(err error) error {
	if err == nil {
		return nil
	}
	return &shownError{p.cleaned(err.Error()), err}
}

// cleaned returns words of the server as one line, and without the secrets that the server was given.
// The words can repeat these, and no policy redacts them, because they belong to no caller.
func (p *pool) cleaned(words string) string {
	for _, secret := range p.secrets() {
		words = strings.ReplaceAll(words, secret, "…")
	}
	return transport.OneLine(words)
}

// leastSecret is the least length of a secret: shorter values may be part of other words.
const leastSecret = 8

// secrets returns what the server was given to authenticate Junction, the longest ones first.
func (p *pool) secrets() []string {
	list := command.Secrets(p.connConfig.environment())
	for _, value := range p.connConfig.Headers {
		_, credentials, _ := strings.Cut(value, " ") // after the scheme, such as Bearer
		list = append(list, value, credentials)
	}
	if u, err := url.Parse(p.connConfig.URL); err == nil {
		for _, values := range u.Query() {
			list = append(list, values...)
		}
	}
	if token := p.given.Load(); token != nil {
		list = append(list, *token)
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < leastSecret })
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// stateAfter returns the state after a failure. Only a person can solve the problem if the server
// rejects the credentials, or the command must not run without a sandbox.
func stateAfter(err error) State {
	status, answered := errors.AsType[*transport.StatusError](err)
	confined, sandboxed := errors.AsType[*transport.SandboxError](err)
	switch {
	case errors.As(err, new(*SignInError)), errors.As(err, new(*LoginError)),
		answered && status.WantsOAuth(): // auth.mode is not set
		return StateSignIn
	case sandboxed && confined.Permanent,
		answered && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return StateBlocked
	}
	return StateRetrying
}

// signIn reports whether the user of the link, or the operator, has to sign in before there is a
// token. It is false if the server rejects the token for lack of a scope.
func signIn(err error) bool {
	login, ok := errors.AsType[*LoginError](err)
	return ok && !login.Lacks || errors.As(err, new(*SignInError))
}

// lookEvery is how often a link with a sign-in checks whether the user has signed in or out
// elsewhere. The check does not involve the server.
const lookEvery = 5 * time.Second
