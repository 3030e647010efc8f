package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Options tell how to connect to one server. Either Command or URL is set, never both.
type Options struct {
	// Name is the name of the upstream, for the Observer.
	Name string
	// Command starts the server as a child process: the program, then its arguments. Env, Dir and
	// Confine are the environment, the working directory and the sandbox of the process; a nil
	// Confine does not confine it. Folder is that of the client for which the process starts; nil for
	// none. A nil Watchdog starts one for each process.
	Command  []string
	Env      stdio.Environment
	Dir      string
	Confine  *stdio.Confinement
	Folder   *stdio.Folder
	Watchdog *stdio.Watchdog
	// URL is the address of a remote server. Headers are sent with each request to its origin, and
	// the token that Token returns; nil for none (see transport.HTTPOptions). Pool opens the
	// HTTP connections; nil makes a pool.
	URL     string
	Headers map[string]string
	// Forward are the names of Headers that calls do not have: each has Call.Forwarded instead.
	Forward []string
	Token   func(ctx context.Context, refused ...string) (string, error)
	// Others returns the values that Headers have now; nil for none (see transport.HTTPOptions).
	Others func(ctx context.Context, sent map[string]string) map[string]string
	// TokenOptional means that Token may return "", for a request without a token.
	TokenOptional bool
	Carrier       transport.Carrier // of the token
	Pool          *transport.Pool
	// Transport and Era are the only ones to try; their zero values detect them.
	Transport Transport
	Era       Era
	// ConnectTimeout is the time limit of the caller for Dial. Half of it is the most time that a
	// server has to answer server/discover before initialize is sent, too. Zero sets no limit.
	ConnectTimeout time.Duration
	// Client is the clientInfo (JSON) of handshakes and of modern requests; nil means Junction's, with
	// Version.
	Client  []byte
	Version string
	// MessageLimit is the most bytes of one message, and Depth the deepest nesting of its arrays and objects.
	MessageLimit, Depth int
	Account             transport.Account // of the memory for handshakes and lists; nil does not limit it
	Observer            Observer          // nil observes nothing
	Log                 *slog.Logger
	Clean               func(words string) string // for Log: see stdio.Options; may be nil
	Opened              func()                    // called after a transport was opened; may be nil
	// Again is called when the process of a command has ended during the handshake, and another one is started
	// for the legacy era; may be nil.
	Again func(reason error)
}

// Dialer opens conns to one server, and detects the era and the transport of the server
// (2026-07-28, basic/versioning). It remembers the result: the era is a property of the server, so
// one contradicting answer does not change it. All conns to a server should come from one dialer.
type Dialer struct {
	options Options
	kind    *ServerKind
	known   *knowledge
	// of the token of the server, which all conns use
	renewals *transport.Renewals
	callers  []HeaderField // all requests are of callers with these headers; nil for others
}

// NewDialer returns a dialer that knows nothing of the server yet.
func NewDialer(o Options) *Dialer {
	kind := ServerKindOf(o.Command, o.URL)
	if kind.HTTP && o.Pool == nil {
		o.Pool = transport.NewPool(o.URL)
	}
	if o.Client == nil {
		o.Client = implementation(o.Version)
	}
	return &Dialer{options: o, kind: kind, known: new(knowledge), renewals: new(transport.Renewals)}
}

// With returns a dialer for callers who have sent these headers: all requests have them, and none of the Headers
// with a name in Options.Forward. It shares what is known of the server, and its HTTP connections.
func (d *Dialer) With(callers []HeaderField) *Dialer {
	own := *d
	own.options.Headers = maps.Clone(d.options.Headers)
	maps.DeleteFunc(own.options.Headers, func(name, _ string) bool {
		return slices.ContainsFunc(d.options.Forward, func(of string) bool { return strings.EqualFold(name, of) })
	})
	own.callers = callers
	return &own
}

// CloseIdle closes the shared HTTP connections that no conn uses.
func (d *Dialer) CloseIdle() {
	if d.options.Pool != nil {
		d.options.Pool.CloseIdleConnections()
	}
}

// Expect makes the dialer remember an era that an earlier process has proven (Info.Proven).
func (d *Dialer) Expect(era Era) { d.known.learn(era, TransportAuto, proven) }

// Dial opens a conn for clients of the profile. It returns when the handshake is done.
func (d *Dialer) Dial(ctx context.Context, p Profile, h Hooks) (Conn, error) {
	a := d.attempt(p, h)
	defer a.tokens.end()
	guess, known, found := d.known.recall()
	remote := cmp.Or(known, a.remote())
	switch {
	case d.options.Transport.OnlyLegacy() || d.options.Era == EraLegacy:
		return a.dialLegacy(ctx, remote, assumed)
	case d.options.Era == EraModern:
		return a.dialModern(ctx)
	case guess == EraLegacy:
		c, err := a.dialLegacy(ctx, remote, found)
		if err == nil || !refused(err) || !d.known.doubt() || !deniesLegacy(err) {
			return c, err
		}
	case guess == EraAuto && d.known.takeAlone():
		return a.dialLegacy(ctx, a.remote(), assumed)
	}
	a.tokens.expect(guess)
	return a.dialAuto(ctx, guess)
}

// dialLegacy opens a legacy conn. If the configuration does not set the transport, and Streamable
// HTTP fails, it tries HTTP+SSE, the next transport of the row. found is the basis of the era.
func (a *attempt) dialLegacy(ctx context.Context, remote Transport, found basis) (Conn, error) {
	c, err := a.legacy(ctx, remote)
	if err == nil {
		c.info.Proven = found == proven
		a.known.learn(EraLegacy, remote, found)
		return c, nil
	}
	if next := remote.row().next; next != "" && a.mayBeSSE(err) {
		c, second := a.dialLegacy(ctx, next, found)
		if second == nil {
			return c, nil
		}
		err = rejectedOverSSE(err, second)
	}
	return nil, err
}

// legacy opens a transport and initializes a session on it.
func (a *attempt) legacy(ctx context.Context, remote Transport) (*legacyConn, error) {
	c := newLegacyConn()
	c.init(a.options.Log, a.hooks, EraLegacy)
	a.share(&c.base)
	return c, a.connect(ctx, remote, &c.base, func() error {
		return c.handshake(ctx, a.options.Client, a.profile)
	})
}

// share gives a conn what all conns of the dialer have in common. Over HTTP its ids begin at a random
// number: if a server writes an answer twice, the second one has no id of another conn.
func (d *Dialer) share(b *base) {
	if d.kind.HTTP {
		b.ids.Store(rand.Uint64N(maxFirstID))
	}
	b.account = d.options.Account
	b.observed = observed{d.options.Observer, d.options.Name, d.options.URL, d.kind}
}

// maxFirstID bounds the first id of a conn, so that ids stay small numbers for servers.
const maxFirstID = 1<<30 - 1<<20

// connect opens the transport of a conn and does the handshake. After an error, the conn is closed.
func (a *attempt) connect(ctx context.Context, remote Transport, b *base, handshake func() error) error {
	t, err := a.open(ctx, remote, b.receive, b.hooks.Doubted)
	if err != nil {
		b.stop()
		return err
	}
	b.start(t)
	if err := handshake(); err != nil {
		err = dead(t, err)
		b.Close()
		return handshakeError(err)
	}
	return nil
}

// ErrNoLegacySession means that a server of the modern era offers no useful legacy connection.
var ErrNoLegacySession = errors.New("the server offers no legacy session")

// DialLegacySession opens a legacy conn to a server of the modern era. server/discover does not tell
// whether the server has one: several SDKs that serve both eras list only the modern version there.
// Over HTTP the conn must have a session. Without a session the server cannot send requests, and then
// the connection has no use. After other errors than ErrNoLegacySession, another attempt may succeed.
func (d *Dialer) DialLegacySession(ctx context.Context, p Profile, h Hooks) (Conn, error) {
	c, err := d.dialOtherEra(ctx, p, h)
	switch {
	case err == nil && c.transport.HasSession():
		return c, nil
	case err == nil:
		c.Close()
		err = ErrNoLegacySession
	case ctx.Err() == nil && (d.kind.Process || refused(err)):
		err = fmt.Errorf("%w: %w", ErrNoLegacySession, err)
	}
	return nil, err
}

// DialLegacy opens a legacy conn to a server of the modern era, to read its lists there. The dialer
// does not remember the era. The error is ErrNoLegacySession if the server has rejected initialize.
func (d *Dialer) DialLegacy(ctx context.Context, p Profile, h Hooks) (Conn, error) {
	c, err := d.dialOtherEra(ctx, p, h)
	if err == nil {
		return c, nil
	}
	if ctx.Err() == nil && refused(err) {
		err = fmt.Errorf("%w: %w", ErrNoLegacySession, err)
	}
	return nil, err
}

// dialOtherEra opens a legacy conn, whatever the dialer knows of the server.
func (d *Dialer) dialOtherEra(ctx context.Context, p Profile, h Hooks) (*legacyConn, error) {
	a := d.attempt(p, h)
	defer a.tokens.end()
	return a.legacy(ctx, a.remote())
}

func (a *attempt) dialModern(ctx context.Context) (Conn, error) {
	c := &modernConn{self: a.options.Client}
	c.init(a.options.Log, a.hooks, EraModern)
	a.share(&c.base)
	if err := a.connect(ctx, a.remote(), &c.base, func() error { return c.handshake(ctx) }); err != nil {
		return nil, err
	}
	c.info.Proven = true
	a.known.learn(EraModern, a.remote(), proven)
	return c, nil
}

// mayBeSSE reports whether the error of initialize is a reason to try HTTP+SSE (2026-07-28,
// streamable-http#httpsse-transport).
func (d *Dialer) mayBeSSE(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return d.options.Transport.row().next != "" && d.kind.HTTP && ok && status.Message == nil &&
		(status.Status == 400 || status.Status == 404 || status.Status == 405)
}

// open opens the transport, and calls Opened.
func (a *attempt) open(ctx context.Context, remote Transport, in transport.Receiver, doubted func(error)) (
	transport.Transport, error,
) {
	t, err := a.kind.open(a, ctx, remote, in, doubted)
	if err == nil && a.options.Opened != nil {
		a.options.Opened()
	}
	return t, err
}

// openProcess is the open of a command.
func (a *attempt) openProcess(_ context.Context, _ Transport, in transport.Receiver, _ func(error)) (
	transport.Transport, error,
) {
	o := &a.options
	return stdio.Open(stdio.Options{
		Command: o.Command, Env: o.Env, Dir: o.Dir, Confine: o.Confine, Folder: o.Folder, Watchdog: o.Watchdog,
		MessageLimit: o.MessageLimit, Depth: o.Depth, Log: o.Log, Clean: o.Clean, Account: o.Account,
	}, in)
}

// openRemote is the open of a server with a URL.
func (a *attempt) openRemote(ctx context.Context, remote Transport, in transport.Receiver, doubted func(error)) (
	transport.Transport, error,
) {
	o := &a.options
	h := transport.HTTPOptions{
		URL: o.URL, Headers: o.Headers, Pool: o.Pool, TokenOptional: o.TokenOptional,
		MessageLimit: o.MessageLimit, Depth: o.Depth, Log: o.Log, Account: o.Account, Doubted: doubted,
		Renewals: a.renewals, Forward: o.Forward, Callers: a.callers, Others: o.Others,
	}
	if a.tokens != nil {
		h.Renews = a.tokens.renews
	}
	if o.Token != nil {
		h.Token, h.Carrier = a.tokens.token, o.Carrier
	}
	return remote.row().open(ctx, h, in)
}

// dead returns the reason why the transport ended, or err if it has not ended.
func dead(t transport.Transport, err error) error {
	if t.Ended() {
		if reason := t.Wait(); reason != nil {
			return reason
		}
	}
	return err
}
