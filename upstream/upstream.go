package upstream

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Options are the settings that all upstreams of a Set share.
type Options struct {
	Defaults     Defaults
	MessageLimit Size          // of one message; 0 is 64 MiB
	Depth        int           // of arrays and objects in one message; 0 is 256
	Items        int           // the most that one upstream may list; 0 is 10000
	Refresh      time.Duration // of catalogs whose changes are not announced, half as often of others; 0 is 5m
	Grace        time.Duration // time until the items of a lost upstream disappear; 0 is 30s
	Version      string        // of Junction, in handshakes
	// the executable that replaces the program name "junction" in a command; "" replaces nothing
	Self string
	// the folder with a private folder for each command with a sandbox; "" gives each process a
	// private folder that is deleted when the process ends
	Sandboxes   string
	Log         *slog.Logger // nil discards
	Hooks       Hooks
	Observer    client.Observer // nil observes nothing
	Credentials Credentials     // of users; nil has none
	// Identity returns a signed statement about a caller, a JWT for an audience; "" for none. nil has none.
	Identity func(audience string, of Identified) (string, error)
	Roots    *x509.CertPool // that servers may have; nil are those of the system
	Store    Store          // keeps the last catalog of each upstream for the next process; nil keeps none
	// Memory returns the account of an upstream for its handshakes and lists; nil does not limit them.
	Memory func(upstream string) client.Account

	// Writable are paths that confined commands may change, besides those that Apply finds in its
	// configurations. Set.Check finds none.
	Writable []string
	// Folders returns the permitted folders of clients. A command with a sandbox and isolation: folder may
	// change those of its clients. It is called before each start of a confined command; nil has none.
	Folders func() []string

	checks   *checks         // of an earlier pool, or of other users; nil for none
	writable func() []string // of the Set: Writable, and what the Applies found
	watchdog *stdio.Watchdog // of the Set; nil starts one for each process
	seats    *seats          // of the users of the upstream together; nil has no bound
	// renew starts the upstream of a user again, if it still has the pool; nil outside of a Set
	renew  func(user, name string, stale *pool)
	kernel func() sandbox.Support // returns what the kernel can enforce
}

// Hooks are callbacks for changes. Each may be nil. They are called one at a time per upstream,
// must not block, and must not call back into it.
type Hooks struct {
	// StateChanged is called when the link that reads the catalog changes its state. It is not
	// called for upstreams that each user signs in to.
	StateChanged func(Change)
	// CatalogChanged is called when Catalog has changed.
	CatalogChanged func(name string)
	// ResourceUpdated is called when a resource with a subscription, or a part of it, has changed.
	// It is also called after a time in which the upstream could not report changes.
	ResourceUpdated func(Update)
	// OwnChanged is called when the catalog of some callers has changed: that of a user's own
	// upstream, or of a connection of their own (isolation, questions: exact).
	OwnChanged func(name string)
	// Refused is called when the server has answered 401, so that its secrets are read again.
	Refused func(name string)
}

// Change is a change of the state of an upstream.
type Change struct {
	Name  string
	State State
	Err   error // why it is not ready; while starting, why the last attempt failed
	Tools int   // number of tools that the server lists
	Again bool  // the server answers again over the connection that was ready before it was degraded
}

// Update is the notification that a resource may have changed.
type Update struct {
	Upstream string
	User     string // the user that the upstream belongs to; only this user is notified; "" for shared upstreams
	URI      string // as the upstream names it
	Source   Source // the connection that delivered it; the zero value is any connection

	matches func(uri string) bool // reports whether it was sent for that subscription; nil for all
}

// Of reports whether the update was sent for a subscription to this resource over that connection.
// If several subscriptions match, the server sends an update for each of them, and each subscriber
// receives only the update of its own. An update without a subscription ID is for all subscriptions
// of the connection.
func (u Update) Of(from Source, uri string) bool {
	return (u.Source == Source{} || u.Source == from) && (u.matches == nil || u.matches(uri))
}

func (o Options) withDefaults() Options {
	o.MessageLimit = cmp.Or(o.MessageLimit, 64<<20)
	o.Depth = cmp.Or(o.Depth, 256)
	o.Items = cmp.Or(o.Items, 10000)
	o.Refresh = cmp.Or(o.Refresh, 5*time.Minute)
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.kernel == nil {
		o.kernel = sandbox.Kernel
	}
	return o
}

// Upstream is one configured server: the settings of its entry about calls, and the pool of its
// links. Except for the pool it is immutable.
type Upstream struct {
	*pool
	given  Config // as configured
	config Config // with defaults
	slots  *pace.Slots
}

// start returns an upstream that connects in the background. The catalog before is served until the
// upstream has listed its own. user is the principal that the upstream belongs to; "" if all users
// share it. Close ends it.
func start(name, user string, c resolved, o Options, before *Catalog) *Upstream {
	if user != "" {
		o.Log = o.Log.With("person", user)
	}
	return newUpstream(c, startPool(name, user, c.connConfig(), o, before))
}

// adapt returns an upstream with that configuration. This is u if nothing differs, and an upstream
// with the same pool if only settings for calls differ. Otherwise adapt starts another one with the
// catalog of u, because the server most likely offers the same items.
func (u *Upstream) adapt(c resolved, o Options) *Upstream {
	o.checks, o.seats = u.lists.checks, u.options.seats
	switch {
	case u.serves(c, o) && reflect.DeepEqual(u.config, c.Config):
		return u
	case u.serves(c, o):
		return newUpstream(c, u.pool)
	case u.user != "" && c.URL != u.config.URL: // the user has no token for the new server yet
		return start(u.name, u.user, c, o, &Catalog{})
	}
	return start(u.name, u.user, c, o, u.Catalog())
}

func newUpstream(c resolved, p *pool) *Upstream {
	p.separate.Store(c.Separate)
	p.stateful.Store(c.Stateful != nil && *c.Stateful)
	return &Upstream{pool: p, given: c.given, config: c.Config, slots: pace.New(c.Concurrency)}
}

// Config returns the entry of the upstream, without defaults.
func (u *Upstream) Config() Config { return u.given }

// Load returns the numbers of calls in progress and of calls that wait for a slot (concurrency).
func (u *Upstream) Load() (calls, waiting int) { return u.slots.Load() }

// Call is one client's request on its way to an upstream. It belongs to the caller again when
// (*Upstream).Call returns.
type Call struct {
	// Call is the request. Its Profile, its Principal and its Session decide which connection the call
	// may use. (*Upstream).Call sets AsTask.
	client.Call
	// Era is the era of the client.
	Era client.Era
	// Folders are those of the client, for isolation: folder; nil for none.
	Folders *Folders
	// Caller is who calls, for a server with identity; the zero value if that is not known.
	Caller Identified
	// Rooted are the keys of requests for roots in the input_required result that the call answers. Junction has
	// answered them itself, and adds the answers. (*Upstream).Call sets it for the next round.
	Rooted []string
	// Window stands for the Session of a client that has none, with isolation: session: see WindowIn. "" for none.
	Window string
	// Guard is asked before the call is sent, also before it is sent again; nil permits it.
	Guard Guard
	// Continues states that the call answers an input_required result. Its params have the state of the
	// modern connection, so it uses that one.
	Continues bool
	// Account is the caller that the call counts for in the concurrency of the upstream: Principal,
	// or what distinguishes callers without authentication.
	Account string
	// End ends the context of the call. If it is nil, the call creates a context of its own, and
	// ends it when the time of the call is over.
	End context.CancelCauseFunc
}

// A Guard decides whether a call may still be sent that has waited: the caller may have lost the right meanwhile.
type Guard interface {
	// Still returns why the call may not be sent, which (*Upstream).Call returns as it is. It must not block.
	Still() error
}

// session returns what decides with isolation: session about the connection of the call: its session, or what
// stands for one.
func (c *Call) session() string {
	if c.Session != "" {
		return c.Session
	}
	return c.Window
}

// Coming returns what decides about the connection of later calls of a client.
func Coming(p client.Profile, session, principal string) *Call {
	return &Call{Call: client.Call{Profile: p, Session: session, Principal: principal}}
}

// Call makes the call of a client and returns the result. The error is a *jsonrpc.Error if the
// server returned one, a *SignInError if the user has to sign in first, and an *Error otherwise.
// The call is sent again only if the server certainly did not carry it out.
func (u *Upstream) Call(ctx context.Context, c *Call) (client.Result, error) {
	u.begin()
	defer u.end()
	if err := u.frozen(c); err != nil {
		return client.Result{}, err
	}
	limits, tool := u.limits(c)
	whole := ctx
	ctx, clock := client.NewClock(ctx, c.End, limits.timeout, limits.max)
	defer clock.Stop()
	if limits.given {
		clock.OnlyProgress()
	}
	shares := u.config.Separate && c.Principal != "" && u.user == ""
	waited, err := u.slots.Take(ctx, c.Account, shares, &clock.Slot, func() (<-chan struct{}, error) {
		again := u.nextFreeze()
		return again, u.frozen(c)
	})
	if frozen, ok := errors.AsType[*Error](err); ok {
		return client.Result{}, frozen
	}
	if err != nil {
		return client.Result{}, u.unavailable(ctx, &Error{u.name, client.KindBusy, err})
	}
	defer clock.Slot.Free()
	if waited {
		clock.Advance() // the wait does not count as silence of the server
		if err := u.frozen(c); err != nil {
			return client.Result{}, err
		}
	}
	answered := 0 // rounds of a modern server that has asked for roots
	for second := false; ; second = true {
		t, err := u.acquire(ctx, c)
		if err != nil {
			return client.Result{}, u.unavailable(ctx, err)
		}
		l, cn := t.link, t.conn
		if c.Guard != nil { // the call may have waited for its server
			if err := c.Guard.Still(); err != nil {
				t.end()
				return client.Result{}, err
			}
		}
		if len(c.Rooted) > 0 && l.roots != nil {
			if err := c.giveRoots(l.roots()); err != nil {
				t.end()
				return client.Result{}, &Error{u.name, client.KindInvalid, err}
			}
		}
		call, err := u.options.signed(u.own(&c.Call, tool), &u.config, c.Caller)
		if err != nil {
			t.end()
			return client.Result{}, &Error{u.name, client.KindUnavailable, err}
		}
		result, err := cn.Call(ctx, call, clock)
		l.answered(cn, result, err)
		result, err = u.explainQuestion(c, cn, result, err)
		if err == nil {
			l.silence.answered()
			again := false
			switch {
			case l.roots == nil:
			case c.Method == methodTasksGet:
				again, err = u.answerTask(ctx, cn, c, clock, l.roots(), &result)
			default:
				again, err = c.takeRoots(&result)
			}
			t.end()
			if answered++; again && answered > mostRootRounds {
				err = errRootRounds
			}
			switch {
			case err != nil:
				return client.Result{}, &Error{u.name, client.KindInvalid, err}
			case again:
				continue
			}
			return u.inTime(whole, clock, result)
		}
		u.tellRefused(err)
		f := u.failureOf(ctx, c, cn.Info().Era, l.suspect(ctx, cn, err), second)
		l.noteAnswer(c, cn, clock, &f)
		if f.broken != nil {
			l.fail(cn, f.broken)
		}
		if f.stale {
			if _, newer := u.limits(c); newer == tool { // the lists were not read since
				u.Reread(ctx, c.Profile, c.session(), c.Principal)
			}
			_, tool = u.limits(c)
		}
		t.end()
		if f.again {
			continue
		}
		if f.abandoned {
			clock.Slot.Abandon(clock.Left())
		}
		return client.Result{}, f.err
	}
}

// noteAnswer notes whether a call that failed was answered.
func (l *link) noteAnswer(c *Call, cn client.Conn, clock *client.Clock, f *failure) {
	ours, _ := errors.AsType[*Error](f.err)
	_, answered := errors.AsType[*jsonrpc.Error](f.err)
	// in the legacy era, a control question finds out more about a status
	gateway := ours != nil && !l.losesSessions(cn) && l.pool.connConfig.Kind().HTTP && unanswered(ours)
	switch {
	case answered, ours != nil && ours.Kind == client.KindInvalid && !gateway:
		l.silence.answered()
	case f.abandoned && ours != nil && (ours.Kind == client.KindTimeout || ours.Kind == client.KindCancelled):
		l.silence.abandoned(c.Account, clock)
	case ours == nil || f.broken != nil || !l.pool.connConfig.Kind().HTTP:
	case errors.Is(ours, transport.ErrOthers) && errors.Is(ours, syscall.ECONNREFUSED):
		l.silence.doubt()
	case ours.Kind == client.KindLost, errors.Is(ours, transport.ErrOthers), gateway:
		l.silence.failed()
	}
}

// inTime returns the result of a call. An input_required result is an error if the client's request
// (context whole) has ended, because the client cannot be asked any more.
func (u *Upstream) inTime(whole context.Context, clock *client.Clock, result client.Result) (client.Result, error) {
	if result.Type != client.TypeInputRequired {
		return result, nil
	}
	if clock.Stop(); whole.Err() != nil {
		err := context.Cause(whole)
		return client.Result{}, &Error{u.name, client.KindOf(err), err}
	}
	return result, nil
}

// A failure is the decision about the error of a call.
type failure struct {
	err       error // for the caller
	again     bool  // the server did not carry out the call: send it once more, instead of returning err
	broken    error // why the connection cannot be used for other calls; nil if it can
	stale     bool  // the definition of the tool has changed: read the catalog again
	abandoned bool  // the server may still be busy with the call
}

// failureOf decides how to handle err. era is the era of the connection. second means that the call was sent
// a second time.
func (u *Upstream) failureOf(ctx context.Context, c *Call, era client.Era, err error, second bool) failure {
	login, err := u.lacking(err)
	rpcErr, rejected := errors.AsType[*jsonrpc.Error](err)
	need, signIn := errors.AsType[*SignInError](err)
	_, answered := errors.AsType[*transport.StatusError](err)
	_, oldToken := errors.AsType[*oldTokenError](err)
	ended, unsent := ctx.Err() != nil && !answered, errors.Is(err, transport.ErrNotSent)
	switch {
	case signIn && need.Lacks: // other calls work
		return failure{err: need}
	case signIn:
		u.lists.publish(signedOut) // first, because the client may read the list when it gets the error
		return failure{err: need, broken: err}
	case login != nil && login.Lacks: // other calls work
		return failure{err: &Error{u.name, client.KindUnavailable, err}}
	case login != nil:
		return failure{err: &Error{u.name, client.KindUnavailable, err}, broken: err}
	case rejected && (second || era != client.EraModern): // in the legacy era, any code may be the server's own
		return failure{err: rpcErr}
	case rejected && rpcErr.Code == mcp.HEADER_MISMATCH && c.Method == string(mcp.MethodToolsCall):
		// the definition that our headers were made from has changed (2026-07-28,
		// streamable-http#client-behavior); the headers of other requests depend on no definition
		return failure{again: true, stale: true}
	case rejected && rpcErr.Code == mcp.UNSUPPORTED_PROTOCOL_VERSION:
		return failure{again: true, broken: err}
	case rejected:
		return failure{err: rpcErr}
	case ended: // the end of ctx is the reason, also if the connection has ended with the call
		err = context.Cause(ctx)
		return failure{err: &Error{u.name, client.KindOf(err), err}, abandoned: !unsent}
	case oldToken && !second:
		return failure{err: &Error{u.name, client.KindOf(err), err}, again: true}
	case unsent && errors.Is(err, transport.ErrOthers): // the other connections work
	case unsent:
		return failure{err: &Error{u.name, client.KindOf(err), err}, again: !second, broken: err}
	}
	return failure{err: &Error{u.name, client.KindOf(err), err}}
}

// own returns the call with the changes for the settings and the tool; c itself if there are none.
func (u *Upstream) own(c *client.Call, tool *Tool) *client.Call {
	silent, placed := !u.config.Questions.Asks(), u.ByFolder()
	if !silent && !placed && (tool == nil || !tool.TaskOnly && len(tool.Params) == 0) {
		return c
	}
	own := *c
	if silent {
		own.Profile = client.Profile{}
	}
	if placed { // Junction answers them itself
		own.Profile.Roots = true
	}
	if tool != nil {
		own.AsTask = tool.TaskOnly
		arguments, _ := c.Params.Object("arguments")
		// if the client has sent the same field, the one of the definition counts
		own.Header = append(c.Header[:len(c.Header):len(c.Header)], definition.EncodeHeaders(tool.Params, arguments)...)
	}
	return &own
}

// limits returns the time limits of a call, and its tool; nil if the catalog has none.
func (u *Upstream) limits(c *Call) (limits, *Tool) {
	if c.Method != string(mcp.MethodToolsCall) {
		return u.config.toolLimits(""), nil
	}
	return u.config.toolLimits(c.Name), u.CatalogFor(c.Profile, c.session(), c.Principal).Tool(c.Name)
}

// unavailable returns the error of a call that got no connection.
func (u *Upstream) unavailable(ctx context.Context, err error) error {
	known, ours := errors.AsType[*Error](err)
	need, signIn := errors.AsType[*SignInError](err)
	switch {
	case signIn:
		return need
	case errors.Is(context.Cause(ctx), context.Canceled):
		return &Error{u.name, client.KindCancelled, context.Cause(ctx)}
	case ours:
		return known
	}
	return &Error{u.name, client.KindUnavailable, err}
}

// Ready is SignedIn with the time limits of a call.
func (u *Upstream) Ready(ctx context.Context) error {
	ctx, clock := client.NewClock(ctx, nil, u.config.Timeout, u.config.MaxTimeout)
	defer clock.Stop()
	return u.SignedIn(ctx)
}

// SignedIn waits while the upstream tries to connect, and returns nil if it is connected. The error
// is a *SignInError if the user has to sign in first, and an *Error otherwise.
func (u *Upstream) SignedIn(ctx context.Context) error {
	u.begin()
	defer u.end()
	l, _, err := u.take(ctx, u.reading(), waiter{})
	if err != nil {
		return u.unavailable(ctx, err)
	}
	l.release()
	return nil
}

// Error is a failure of Junction or of the connection. An error that the server returned is a
// *jsonrpc.Error instead.
type Error struct {
	Upstream string
	Kind     client.Kind
	Err      error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %v", e.Upstream, e.Err) }

// Public returns the text for the client. It does not contain the last output of a child process;
// the log and the table of upstreams show that output.
func (e *Error) Public() string {
	if own, ok := errors.AsType[*ownError](e.Err); ok {
		return (&Error{e.Upstream, e.Kind, own.err}).Public() + "; " + own.hint()
	}
	if errors.As(e.Err, new(*WaitingError)) {
		return fmt.Sprintf("upstream %s: %s", e.Upstream, waitsForFolder)
	}
	if noise, ok := errors.AsType[*stdio.NoiseError](e.Err); ok {
		return fmt.Sprintf("upstream %s: %s", e.Upstream, noise.Public())
	}
	if exit, ok := errors.AsType[*stdio.ExitError](e.Err); ok {
		text := fmt.Sprintf("upstream %s: %s", e.Upstream, exit.How)
		if exit.Stderr != "" {
			text += "; ask the operator of Junction, whose log has its last output"
		}
		return text
	}
	return e.Error()
}

// Clean returns Public for one reader, as transport.Clean does.
func (e *Error) Clean(clean func(string) string) string {
	if own, ok := errors.AsType[*ownError](e.Err); ok {
		return (&Error{e.Upstream, e.Kind, own.err}).Clean(clean) + "; " + own.hint()
	}
	if errors.As(e.Err, new(*stdio.ExitError)) || errors.As(e.Err, new(*stdio.NoiseError)) {
		return clean(e.Public())
	}
	return clean("upstream " + e.Upstream + ": " + transport.Clean(e.Err, clean))
}

func (e *Error) Unwrap() error { return e.Err }

// ownError is the error of a second process, for one principal or session, while the server's first
// process runs.
type ownError struct{ err error }

func (e *ownError) hint() string {
	return "this was a second process of the server, for this user alone; a server that can run only once needs " +
		"isolation: shared"
}

func (e *ownError) Error() string { return e.err.Error() + "; " + e.hint() }

func (e *ownError) Unwrap() error { return e.err }
