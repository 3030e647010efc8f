package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Options tell how to connect to one server. Either Command or URL is set, never both.
type Options struct {
	// Name is that of the upstream, for the Observer.
	Name string
	// Command starts the server as a child process: the program, then its arguments. Env, Dir and
	// Confine are the environment, the working directory and the sandbox of the process; a nil
	// Confine does not confine it. A nil Watchdog starts one for each process.
	Command  []string
	Env      stdio.Environment
	Dir      string
	Confine  *stdio.Confinement
	Watchdog *stdio.Watchdog
	// URL is the address of a remote server. Headers are sent with each request to its origin, and
	// the token that Token returns; nil for none (see transport.HTTPOptions). Pool opens the
	// HTTP connections; nil makes a pool.
	URL     string
	Headers map[string]string
	Token   func(ctx context.Context, refused ...string) (string, error)
	// TokenOptional means that Token may return "", for a request without a token.
	TokenOptional bool
	Pool          *transport.Pool
	// Transport and Era are the only ones to try; their zero values detect them.
	Transport Transport
	Era       Era
	// ConnectTimeout is the time limit of the caller for Dial. Half of it is the most time that a
	// server has to answer server/discover before initialize is sent, too.
	ConnectTimeout time.Duration
	// Client is the clientInfo (JSON) of handshakes and of modern requests; nil is that of Junction,
	// with Version.
	Client  []byte
	Version string
	// MessageLimit is the most bytes of one message, and Depth that of its arrays and objects.
	MessageLimit, Depth int
	Account             transport.Account // of the memory for handshakes and lists; nil does not limit it
	Observer            Observer          // nil observes nothing
	Log                 *slog.Logger
	Opened              func() // called after a transport was opened; may be nil
}

// Dialer opens conns to one server, and detects the era and the transport of the server
// (2026-07-28, basic/versioning). It remembers the result: the era is a property of the server, so
// one contradicting answer does not change it. All conns to a server should come from one dialer.
type Dialer struct {
	options Options
	known   knowledge
}

// NewDialer returns a dialer that knows nothing of the server yet.
func NewDialer(o Options) *Dialer {
	if o.URL != "" && o.Pool == nil {
		o.Pool = transport.NewPool(o.URL)
	}
	if o.Client == nil {
		o.Client = implementation(o.Version)
	}
	return &Dialer{options: o}
}

// CloseIdle closes the shared HTTP connections that no conn uses.
func (d *Dialer) CloseIdle() {
	if d.options.Pool != nil {
		d.options.Pool.CloseIdleConnections()
	}
}

// knowledge contains the era and the transport of an upstream, as earlier attempts have detected
// them. Its mutex guards the fields, and is held only while they are read or written.
type knowledge struct {
	sync.Mutex
	era       Era
	transport Transport // TransportSSE, or TransportAuto
	against   int       // consecutive handshakes that contradicted era
}

// denialsToForget is the number of consecutive handshakes that must contradict the known era until
// it is forgotten.
const denialsToForget = 2

// Dial opens a conn for clients of the profile. It returns when the handshake is done.
func (d *Dialer) Dial(ctx context.Context, p Profile, h Hooks) (Conn, error) {
	guess, remote := d.known.recall()
	if d.options.Transport == TransportSSE {
		remote = TransportSSE
	}
	switch {
	case d.options.Transport == TransportSSE || d.options.Era == EraLegacy:
		return d.dialLegacy(ctx, remote, p, h)
	case d.options.Era == EraModern:
		return d.dialModern(ctx, h)
	case guess == EraLegacy:
		c, err := d.dialLegacy(ctx, remote, p, h)
		if err == nil || !deniesLegacy(err) || !d.known.doubt() {
			return c, err
		}
	}
	return d.dialAuto(ctx, guess, p, h)
}

// dialLegacy opens a legacy conn. If the configuration does not set the transport, and Streamable
// HTTP fails, it tries HTTP+SSE.
func (d *Dialer) dialLegacy(ctx context.Context, remote Transport, p Profile, h Hooks) (Conn, error) {
	c, err := d.legacy(ctx, remote, p, h)
	if err == nil {
		d.known.learn(EraLegacy, remote)
		return c, nil
	}
	if remote != TransportSSE && d.mayBeSSE(err) {
		if c, second := d.dialLegacy(ctx, TransportSSE, p, h); second == nil {
			return c, nil
		}
	}
	return nil, err
}

// legacy opens a transport and initializes a session on it.
func (d *Dialer) legacy(ctx context.Context, remote Transport, p Profile, h Hooks) (*legacyConn, error) {
	c := newLegacyConn()
	c.init(d.options.Log, h, EraLegacy)
	d.share(&c.base)
	return c, d.connect(ctx, remote, &c.base, func() error {
		return c.handshake(ctx, d.options.Client, p)
	})
}

// share gives a conn what all conns of the dialer have in common. Over HTTP its ids begin at a random
// number: if a server writes an answer twice, the second one has no id of another conn.
func (d *Dialer) share(b *base) {
	if d.options.URL != "" {
		b.ids.Store(rand.Uint64N(maxFirstID))
	}
	b.account = d.options.Account
	b.observed = observed{d.options.Observer, d.options.Name, d.options.URL}
}

// maxFirstID bounds the first id of a conn, so that ids stay small numbers for servers.
const maxFirstID = 1<<30 - 1<<20

// connect opens the transport of a conn and does the handshake. After an error, the conn is closed.
func (d *Dialer) connect(ctx context.Context, remote Transport, b *base, handshake func() error) error {
	t, err := d.open(ctx, remote, b.receive, b.hooks.Doubted)
	if err != nil {
		b.stop()
		return err
	}
	b.start(t)
	if err := handshake(); err != nil {
		err = dead(t, err)
		b.Close()
		return asRPCError(err)
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
	c, err := d.legacy(ctx, TransportAuto, p, h)
	switch {
	case err == nil && c.transport.HasSession():
		return c, nil
	case err == nil:
		c.Close()
		err = ErrNoLegacySession
	case ctx.Err() == nil && (d.options.URL == "" || refused(err)):
		err = fmt.Errorf("%w: %w", ErrNoLegacySession, err)
	}
	return nil, err
}

// refused reports whether the server has answered initialize, and will give the same answer again.
func refused(err error) bool {
	if status, ok := errors.AsType[*transport.StatusError](err); ok && !mayDeny(status.Status) {
		return false
	}
	_, said := errors.AsType[*jsonrpc.Error](err)
	return said || errors.Is(err, transport.ErrInvalid) || errors.As(err, new(*transport.StatusError))
}

// mayDeny reports whether an HTTP error with this status is evidence of an era. 401, 403, 429, 5xx
// and redirects are none.
func mayDeny(status int) bool {
	switch status {
	case 401, 403, 407, 408, 429:
		return false
	}
	return status >= 400 && status < 500
}

func (d *Dialer) dialModern(ctx context.Context, h Hooks) (Conn, error) {
	c := &modernConn{self: d.options.Client}
	c.init(d.options.Log, h, EraModern)
	d.share(&c.base)
	if err := d.connect(ctx, TransportAuto, &c.base, func() error { return c.handshake(ctx) }); err != nil {
		return nil, err
	}
	d.known.learn(EraModern, TransportAuto)
	return c, nil
}

// mayBeSSE reports whether the error of initialize is a reason to try HTTP+SSE (2026-07-28,
// streamable-http#httpsse-transport).
func (d *Dialer) mayBeSSE(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return d.options.Transport == TransportAuto && d.options.URL != "" && ok && status.Message == nil &&
		(status.Status == 400 || status.Status == 404 || status.Status == 405)
}

// open opens the transport, and calls Opened.
func (d *Dialer) open(ctx context.Context, remote Transport, in transport.Receiver, doubted func()) (
	transport.Transport, error,
) {
	t, err := d.openTransport(ctx, remote, in, doubted)
	if err == nil && d.options.Opened != nil {
		d.options.Opened()
	}
	return t, err
}

func (d *Dialer) openTransport(ctx context.Context, remote Transport, in transport.Receiver, doubted func()) (
	transport.Transport, error,
) {
	o := &d.options
	if o.URL == "" {
		return stdio.Open(stdio.Options{
			Command: o.Command, Env: o.Env, Dir: o.Dir, Confine: o.Confine, Watchdog: o.Watchdog,
			MessageLimit: o.MessageLimit, Depth: o.Depth, Log: o.Log, Account: o.Account,
		}, in)
	}
	h := transport.HTTPOptions{
		URL: o.URL, Headers: o.Headers, Pool: o.Pool, Token: o.Token, TokenOptional: o.TokenOptional,
		MessageLimit: o.MessageLimit, Depth: o.Depth, Log: o.Log, Account: o.Account, Doubted: doubted,
	}
	if remote == TransportSSE {
		return transport.OpenSSE(ctx, h, in)
	}
	return transport.OpenHTTP(h, in), nil
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

// classifyDiscoverError returns a *notModernError if the answer to server/discover shows that the
// server belongs to the legacy era (2026-07-28, basic/versioning). Otherwise it returns err: 401,
// 403, 429, 5xx, redirects and network failures are no evidence of an era.
func classifyDiscoverError(err error) error {
	if status, ok := errors.AsType[*transport.StatusError](err); ok {
		switch {
		case !mayDeny(status.Status):
			return err
		case status.Message == nil:
			return &notModernError{err}
		}
		err = asRPCError(err)
	}
	rpcErr, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return err
	}
	switch rpcErr.Code {
	case mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY:
		return err
	case mcp.UNSUPPORTED_PROTOCOL_VERSION:
		if list := supportedVersions(rpcErr); len(list) > 0 && !slices.ContainsFunc(list, mcp.IsModernProtocol) {
			return &notModernError{err}
		}
		return err
	}
	return &notModernError{err}
}

// supportedVersions returns the versions that the error lists as supported; nil for none.
func supportedVersions(e *jsonrpc.Error) (versions []string) {
	v, _ := raw.Get(e.Data, "supported")
	list, _ := raw.Elements(v)
	for _, item := range list {
		if s, err := raw.String(item); err == nil {
			versions = append(versions, s)
		}
	}
	return versions
}

// deniesLegacy reports whether the handshake error shows that the server supports only the modern
// era.
func deniesLegacy(err error) bool {
	said, ok := errors.AsType[*jsonrpc.Error](asRPCError(err))
	return ok && (said.Code == mcp.UNSUPPORTED_PROTOCOL_VERSION || said.Code == mcp.HEADER_MISMATCH ||
		said.Code == mcp.METHOD_NOT_FOUND)
}

// asRPCError returns the JSON-RPC error in the body of an HTTP error. It returns err itself for
// 401, 403, 407 and an ended session.
func asRPCError(err error) error {
	status, ok := errors.AsType[*transport.StatusError](err)
	if ok && status.Message != nil && status.Message.Error != nil &&
		status.Status != 401 && status.Status != 403 && status.Status != 407 &&
		!errors.Is(err, transport.ErrSessionGone) {
		return status.Message.Error
	}
	return err
}

// unlessAnswered returns the error of a request whose answer is not of interest; nil if the server
// has answered with an error.
func unlessAnswered(err error) error {
	if _, answered := errors.AsType[*jsonrpc.Error](asRPCError(err)); answered {
		return nil
	}
	return err
}

// recall returns the last known era and transport of the server. The era is EraAuto if it is
// unknown.
func (k *knowledge) recall() (Era, Transport) {
	k.Lock()
	defer k.Unlock()
	return k.era, k.transport
}

// learn sets the era and the transport after a successful handshake.
func (k *knowledge) learn(era Era, remote Transport) {
	k.Lock()
	defer k.Unlock()
	k.era, k.transport, k.against = era, remote, 0
}

// doubt counts a handshake that contradicted the known era. After the last one of denialsToForget,
// it forgets the era and returns true.
func (k *knowledge) doubt() bool {
	k.Lock()
	defer k.Unlock()
	if k.against++; k.against < denialsToForget {
		return false
	}
	k.era, k.transport, k.against = EraAuto, TransportAuto, 0
	return true
}
