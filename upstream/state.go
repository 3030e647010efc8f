package upstream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/pace"
	"junction/upstream/stdio"
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
	// StateDegraded: there is a connection, and the server answers neither calls nor pings over it: calls
	// are rejected. Or the server rejects the session, and gives no other one that works (suspect.go):
	// calls are sent. Next: ready, when the server answers; each other state.
	StateDegraded
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
	// StateWaiting: the server works in the folder of a client (isolation: folder), has ended in an empty one,
	// and no client has brought a permitted one yet. An attempt comes with the first that does. Next:
	// starting or closed.
	StateWaiting
	// StateClosed: unconfigured, unused for long, or shutting down. It is the end of a link; the
	// next call opens a new one.
	StateClosed
)

// stateRows has a row for each State.
var stateRows = [...]stateRow{
	StateStarting: {word: "starting"},
	StateReady:    {word: "ready"},
	StateDegraded: {word: "degraded", broken: true},
	StateRetrying: {word: "retrying", failed: true, broken: true},
	StateBlocked:  {word: "blocked", failed: true, broken: true},
	StateSignIn:   {word: "needs sign-in", failed: true, broken: true},
	StateWaiting:  {word: "waits for a folder"},
	StateClosed:   {word: "idle"},
}

// A stateRow has the facts of a state.
type stateRow struct {
	word string // that people read, in the log and on every page
	// failed means that the last attempt to connect failed, or the conn ended. broken means that a person has
	// to look at the server.
	failed, broken bool
}

// States returns all states.
func States() (list []State) {
	for s := range stateRows {
		list = append(list, State(s))
	}
	return list
}

// Failed reports whether the last attempt to connect failed, or the conn ended.
func (s State) Failed() bool { return stateRows[s].failed }

// Broken reports whether a person has to look at the server.
func (s State) Broken() bool { return stateRows[s].broken }

// String returns the word that people read, in the log and on every page.
func (s State) String() string { return stateRows[s].word }

// Status describes an upstream for the operator.
type Status struct {
	Name string
	// of the link that reads the catalog; StateClosed means that the upstream is stopped until the
	// next call. After a failure the state stays until an attempt succeeds.
	State   State
	Since   time.Time // when State began
	Retry   time.Time // when the next attempt, or ping, is due; zero if it is in progress, or none is due
	Err     string    // why it is not ready, in one line; "" when it is
	Era     client.Era
	Version string // of the protocol
	Tools   int    // listed now
	Stored  bool   // the tools are those that an earlier process has listed
	Left    []LeftOut
	Links   int
	// links over which the server does not work: see StateDegraded
	Degraded int
	Awaited  Awaited // a ping without an answer, before a link is degraded
	Stuck    []Stuck // those of Degraded that do not read the catalog, the oldest first
	// of links that some callers have for themselves, since the start of the upstream: those that failed
	// or ended by themselves, and those that ended to make room for others
	Crashes, Evictions int64
	Advice             string // what a person can do about Err; "" if that is not known
	// the line of the file with which calls would not have failed because the server could not send
	// requests to the client; "" if none did
	Unasked string
	// the server asks for the folders of its client, and the entry gives it none: isolation: folder does
	Rootless bool
	// principals and sessions whose calls go to a second process that no line of the file starts
	Seconds int
	// names of the tools, prompts and resources whose calls are known to ask the client on a stream that names
	// no call, sorted: each call has a connection for itself
	Asks      []string
	Processes []Process        // that run for a command, the latest first
	Reported  []stdio.Reported // by the process of the link that reads the catalog
	// why a process of the attempt in progress has ended; "" if none has. Another one is started for the
	// legacy era
	Exited string
	// how far the kernel enforces the sandbox: command.Enforced, or what it does not, and why; ""
	// without a sandbox
	Sandbox string
}

// Process is a running process of a command.
type Process struct {
	PID     int // it leads the session of its children
	Started time.Time
	Lists   bool // it reads the lists that all callers share
	// User is the principal whose calls alone the process takes, or without authentication the program; "" if
	// it takes those of all callers. Principal is "" without authentication, too.
	User, Principal string
	Folder          string // of the client for whose calls it runs (isolation: folder); "" for none
}

// process describes the process of a link.
func (l *link) process(c stdio.Child) Process {
	p := Process{PID: c.PID(), Started: c.Started(), Lists: l.readsShared}
	p.User, p.Principal = l.callers()
	if l.folders != nil {
		p.Folder = l.folders.Path()
	}
	return p
}

// callers returns whose calls alone the link takes: Process.User and Process.Principal.
func (l *link) callers() (user, principal string) {
	if l.folders != nil {
		return l.key.user, strings.TrimPrefix(l.key.holder, folderHolder(l.folders, ""))
	}
	return l.key.user, l.key.user
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
	pool *pool
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }

// Clean implements transport.Cleaner. The secrets go first: a policy may remove a part of one, and the rest
// would not be found.
func (e *shownError) Clean(clean func(string) string) string {
	return e.pool.line(e.err, func(words string) string { return clean(e.pool.withoutSecrets(words)) })
}

// shown returns the reason why a connection failed, with a text that may be shown.
func (p *pool) shown(err error) error {
	if err == nil {
		return nil
	}
	return &shownError{p.line(err, p.withoutSecrets), err, p}
}

// line returns the text of an error as one line. clean is applied before the words of the server are
// shortened.
func (p *pool) line(err error, clean func(string) string) string {
	return transport.CleanLine(transport.Clean(err, clean), clean)
}

// cleaned returns words of the server as one line, and without the secrets that the server was given.
// The words can repeat these, and no policy redacts them, because they belong to no caller.
func (p *pool) cleaned(words string) string { return transport.OneLine(p.withoutSecrets(words)) }

func (p *pool) withoutSecrets(words string) string {
	for _, secret := range p.secrets() {
		words = strings.ReplaceAll(words, secret, "…")
	}
	return words
}

// leastSecret is the least length of a secret: shorter values may be part of other words.
const leastSecret = 8

// secrets returns what the server was given to authenticate Junction, as transport.Written does.
func (p *pool) secrets() []string {
	list := command.Secrets(p.connConfig.environment())
	values := slices.Collect(maps.Values(p.connConfig.Headers))
	if renewed := p.renewed.Load(); renewed != nil {
		values = slices.AppendSeq(values, maps.Values(*renewed))
	}
	for _, value := range values {
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
	return transport.Written(slices.DeleteFunc(list, func(s string) bool { return len(s) < leastSecret }))
}

// stateAfter returns the state after a failure. Only a person can solve the problem if the server
// rejects the credentials, or the command must not run without a sandbox.
func stateAfter(err error) State {
	status, answered := errors.AsType[*transport.StatusError](err)
	confined, sandboxed := errors.AsType[*stdio.SandboxError](err)
	lack, lacks := errors.AsType[*LackError](err)
	asks := false
	if answered {
		_, asks = askedMode(status)
	}
	switch {
	case errors.As(err, new(*SignInError)), lacks && lack.Mode.Row().SignIn, asks: // auth.mode is not set
		return StateSignIn
	case lacks:
		return StateBlocked
	case errors.As(err, new(*WaitingError)):
		return StateWaiting
	case sandboxed && confined.Permanent,
		answered && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return StateBlocked
	}
	return StateRetrying
}

// signIn reports whether the user of the link, or the operator, has to act before there is a token: to
// sign in, or to replace a credential. It is false if the server rejects the token for lack of a scope.
func signIn(err error) bool {
	login, ok := errors.AsType[*LackError](err)
	need, user := errors.AsType[*SignInError](err)
	return ok && !login.Lacks || user && !need.Lacks
}

// noRetry is the time until the next attempt of a link that only a call, or the operator, connects again.
const noRetry = 365 * 24 * time.Hour

// lookEvery is how often a link with a sign-in checks whether the user has signed in or out
// elsewhere. The check does not involve the server.
const lookEvery = 5 * time.Second

// An outcome is how an attempt to connect has failed, or how its conn has ended.
type outcome struct {
	state        State // until the next attempt
	err          error
	retry        time.Time // see Status
	failed       bool      // no conn was made
	refusedUntil time.Time // see linkState
}

// outcomeOf decides about the end of connectAndServe, and returns the time until the next attempt.
func (l *link) outcomeOf(lived time.Duration, err error, pause *pace.Backoff) (outcome, time.Duration) {
	refused, later := refusedBy(err), min(client.RetryAfter(err), mostRetryAfter)
	_, err = l.pool.lacking(err)
	err = l.pool.shown(err)
	// after the end of a working conn, calls wait for the next attempt
	o := outcome{state: stateAfter(err), err: err, failed: lived == 0}
	acts, signsIn := signIn(err), o.state == StateSignIn
	// the source of a mode without a sign-in has the token that was refused as long as nobody replaces it
	if o.failed && (refused || acts && !signsIn) {
		o.refusedUntil = time.Now().Add(refusedPause)
	}
	if lived > 30*time.Second {
		pause.Reset()
	}
	if o.state != StateRetrying {
		pause.Begin(pace.Longest)
	}
	if acts && signsIn { // only the sign-in is looked for: without it, an attempt does not involve the server
		pause.Begin(lookEvery)
		return o, pause.Next()
	}
	if o.state == StateWaiting { // another attempt in an empty folder would end alike
		if l.pool.lent.Load() != nil { // a client has come during this one
			return o, 0
		}
		return o, noRetry
	}
	rest := max(pause.Next(), later)
	if o.failed && later > 0 {
		o.refusedUntil = time.Now().Add(later)
	}
	o.retry = time.Now().Add(rest)
	return o, rest
}

// apply is a change for (*link).update.
func (o outcome) apply(s *linkState) bool {
	s.dead = o.failed && o.state != StateWaiting && !errors.Is(o.err, errNoConnection)
	if o.failed {
		s.attempts++
	}
	s.state, s.conn, s.err, s.retry, s.refusedUntil = o.state, nil, o.err, o.retry, o.refusedUntil
	return true
}

// linkChanged is called after a change of state of the link that reads the catalog. Concurrent calls
// see the same, latest state.
func (p *pool) linkChanged(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	now := l.linkState
	l.mu.Unlock()
	p.apply(p.transitionTo(now))
}

// A transition is what a new state of the link that reads the catalog means for its pool.
type transition struct {
	state  State
	err    error  // why the link is not ready
	status Status // to show from now on
	// what happens to the catalog: it belonged to a user who has to sign in again, it stays for
	// Options.Grace only, or it stays
	signedOut, lost, restored bool
	first                     bool // the first attempt to connect has ended
	logged, reported          bool // the change is logged; the hook StateChanged is called
	again                     bool // see Change
}

// transitionTo computes the transition to the state of the link; p.mu is held.
func (p *pool) transitionTo(now linkState) transition {
	t := transition{state: now.state, err: now.err, status: p.status}
	t.status.Retry = now.retry
	// an attempt after a failure does not hide the failure
	if shown := t.status.State; shown != now.state && !(now.state == StateStarting && shown.Failed()) {
		t.status.State, t.status.Since = now.state, now.since
	}
	_, signIn := errors.AsType[*SignInError](now.err)
	switch {
	case signIn && now.state == StateSignIn:
		t.status.Err, t.signedOut = describe(now.err), true
	case now.state == StateReady:
		t.status.Err, t.status.Advice, t.restored = "", "", true
	case now.state == StateDegraded:
		t.status.Err, t.status.Advice = describe(now.err), p.connConfig.Kind().Frozen
		if frozen, ok := errors.AsType[*frozenError](now.err); ok {
			t.status.Err = frozen.reason()
			if frozen.failed != nil {
				t.status.Advice = cmp.Or(advice(frozen.failed, p.name, &p.connConfig), t.status.Advice)
			}
		} else {
			t.status.Advice = sessionAdvice
		}
	case now.state == StateWaiting:
		t.status.Err, t.status.Advice, t.restored = describe(now.err), waitingAdvice, true
	case now.state.Failed():
		t.status.Err, t.status.Advice, t.lost = describe(now.err), advice(now.err, p.name, &p.connConfig), true
	}
	t.first = now.state != StateStarting && !p.Tried()
	// StateChanged is not called for pools of one user; a missing sign-in is not logged
	changed := p.last != now.state && !p.closed
	t.again = p.last == StateDegraded && now.state == StateReady && !now.another
	t.reported = changed && p.user == ""
	t.logged = changed && p.user != "" && !signIn && now.state != StateStarting
	return t
}

// apply carries out a transition; p.mu is held.
func (p *pool) apply(t transition) {
	p.last, p.status = t.state, t.status
	switch {
	case t.signedOut:
		p.lists.publish(signedOut)
	case t.restored:
		p.lists.found()
	case t.lost:
		p.lists.lost()
	}
	if t.first { // after the other changes: waiting callers read them at once
		close(p.met)
		if p.user != "" && !p.closed {
			p.lists.tell()
		}
	}
	if t.logged {
		level := slog.LevelInfo
		if t.state.Failed() || t.state == StateDegraded {
			level = slog.LevelWarn
		}
		p.log.Log(context.Background(), level, "upstream "+t.state.String(), "error", t.status.Err)
	}
	if t.reported && p.options.Hooks.StateChanged != nil {
		p.options.Hooks.StateChanged(Change{p.name, t.state, t.err, len(p.Catalog().Tools), t.again})
	}
}
