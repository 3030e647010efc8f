package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// bothAnswers is how long the modern answer may come after the legacy one, where both questions
// waited for the server to start.
const bothAnswers = 200 * time.Millisecond

var errSilent = errors.New("no answer to server/discover")

// dialer opens conns to one upstream, and finds out which era and which wire it speaks (2026-07-28,
// basic/versioning). It remembers what it found out: the era is a property of the server, so one
// odd answer does not change it. It is used by all links of the upstream.
type dialer struct {
	name      string // of the upstream
	config    Config // with defaults
	options   Options
	transport http.RoundTripper                                            // nil for a command
	token     func(ctx context.Context, refused ...string) (string, error) // see HTTPOptions
	log       *slog.Logger
	known     *knowledge
	opened    func() // called when a wire was opened; nil where nobody wants to know
}

// knowledge is what dialing has taught about an upstream. Its mutex guards the fields, and is held
// for no longer than reading or writing them.
type knowledge struct {
	sync.Mutex
	era     Era
	sse     bool // the wire is HTTP+SSE
	against int  // handshakes in a row that spoke against era
}

// stubborn is how often in a row a server must deny the era that it was known to speak before we
// believe it.
const stubborn = 2

// probeTimeout is for the answer to server/discover of a server that may never give one; then the
// legacy handshake is tried beside it.
const probeTimeout = 5 * time.Second

// dial opens a conn for clients of the profile. It returns when the handshake is done.
func (d *dialer) dial(ctx context.Context, p Profile, h hooks) (conn, error) {
	era, sse := d.config.Era, d.config.Transport == TransportSSE
	guess, guessSSE := d.known.recall()
	switch {
	case sse || era == EraLegacy:
		return d.dialLegacy(ctx, sse || guessSSE, p, h)
	case era == EraModern:
		return d.dialModern(ctx, h)
	case guess == EraLegacy:
		c, err := d.dialLegacy(ctx, guessSSE, p, h)
		if err == nil || !d.known.doubt(deniesLegacy(err)) {
			return c, err
		}
	}
	return d.dialAuto(ctx, guess, p, h)
}

// dialLegacy opens a legacy conn; where the configuration leaves the transport open, HTTP+SSE is
// tried when Streamable HTTP is not there.
func (d *dialer) dialLegacy(ctx context.Context, sse bool, p Profile, h hooks) (conn, error) {
	c := new(legacyConn)
	c.init(d.log, h, EraLegacy)
	w, err := d.open(ctx, sse, c.receive)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.start(w)
	if err = c.handshake(ctx, implementation(d.options.Version), p); err == nil {
		d.known.learn(EraLegacy, sse)
		return c, nil
	}
	err = dead(w, err)
	c.close()
	if !sse && d.config.Transport == TransportAuto && d.config.URL != "" && olderTransport(err) {
		if c, second := d.dialLegacy(ctx, true, p, h); second == nil {
			return c, nil
		}
	}
	return nil, asPeerError(err)
}

// errNoAside means that a server that speaks both eras has no use for us in the legacy one.
var errNoAside = errors.New("the server offers no legacy session")

// dialAside opens a legacy conn to a server that speaks both eras. Over HTTP it must have a
// session: without one the server cannot ask anything, which is all that the legacy era is wanted
// for.
func (d *dialer) dialAside(ctx context.Context, p Profile, h hooks) (conn, error) {
	c := new(legacyConn)
	c.init(d.log, h, EraLegacy)
	w, err := d.open(ctx, false, c.receive)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.start(w)
	err = c.handshake(ctx, implementation(d.options.Version), p)
	if err == nil && !w.HasSession() {
		err = errNoAside
	}
	if err != nil {
		err = dead(w, err)
		c.close()
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errNoAside, err)
		}
		return nil, err
	}
	return c, nil
}

func (d *dialer) dialModern(ctx context.Context, h hooks) (conn, error) {
	c := &modernConn{self: implementation(d.options.Version)}
	c.init(d.log, h, EraModern)
	w, err := d.open(ctx, false, c.receive)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.start(w)
	if err := c.handshake(ctx); err != nil {
		err = dead(w, err)
		c.close()
		return nil, asPeerError(err)
	}
	d.known.learn(EraModern, false)
	return c, nil
}

// dialAuto asks a server of unknown era who it is: server/discover first, and initialize on the
// same wire when the answer is evidence of the legacy era. No answer in time may mean that the
// server is silent or that it is still starting (npx takes long); then both questions wait, and the
// first good answer counts.
func (d *dialer) dialAuto(ctx context.Context, guess Era, p Profile, h hooks) (conn, error) {
	var speaker atomic.Pointer[base]
	m, l := &modernConn{self: implementation(d.options.Version)}, new(legacyConn)
	m.init(d.log, h, EraModern)
	l.init(d.log, h, EraLegacy)
	l.ids.Store(1 << 20) // apart from m's on the same wire
	speaker.Store(&m.base)
	w, err := d.open(ctx, false, func(msg *jsonrpc.Message) { speaker.Load().receive(msg) })
	if err != nil {
		m.stop()
		l.stop()
		return nil, err
	}
	m.start(w)
	l.start(w)
	fail := func(err error) (conn, error) {
		err = dead(w, err)
		m.stop()
		l.close()
		m.tasks.Wait()
		return nil, asPeerError(err)
	}

	ctx, cancel := context.WithCancel(ctx)
	modern, legacy := make(chan error, 1), make(chan error, 1)
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	defer cancel()
	handshakes.Go(func() { modern <- m.handshake(ctx) })
	probe := time.NewTimer(min(probeTimeout, d.config.ConnectTimeout/2))
	defer probe.Stop()
	denied := error(nil) // the modern era was, and why
	select {
	case err := <-modern:
		var not *notModernError
		switch {
		case err == nil:
			l.abandon()
			d.known.learn(EraModern, false)
			return m, nil
		case errors.As(err, &not):
			denied = not.cause
		case d.config.URL == "" && (w.Ended() || errors.As(err, new(*transport.ExitError))):
			// Some legacy servers end at a request that they do not know: once more, in their own
			// era.
			fail(err)
			return d.dialLegacy(ctx, false, p, h)
		default:
			return fail(err)
		}
		if guess == EraModern && !d.known.doubt(true) {
			return fail(fmt.Errorf("the server spoke %s before and denies it now: %w", modernVersion, denied))
		}
	case <-probe.C:
	}

	asModern := func() (conn, error) {
		speaker.Store(&m.base)
		l.abandon()
		d.known.learn(EraModern, false)
		return m, nil
	}
	speaker.Store(&l.base)
	handshakes.Go(func() { legacy <- l.handshake(ctx, implementation(d.options.Version), p) })
	for pending := 2; ; {
		select {
		case err = <-legacy:
			if err == nil && denied == nil && pending == 2 {
				// A server that was only slow to start answers both, and the question that came
				// first may be answered second.
				select {
				case late := <-modern:
					denied = late
				case <-time.After(bothAnswers):
					denied = errSilent
				}
				if denied == nil {
					return asModern()
				}
			}
			if err == nil {
				m.abandon()
				d.known.learn(EraLegacy, false)
				return l, nil
			}
		case late := <-modern:
			if late == nil {
				return asModern()
			}
		}
		if pending--; pending == 0 || denied != nil {
			break
		}
	}
	if d.config.Transport == TransportAuto && d.config.URL != "" && olderTransport(err) {
		fail(err)
		if c, second := d.dialLegacy(ctx, true, p, h); second == nil {
			return c, nil
		}
		return nil, err
	}
	return fail(err)
}

// open opens the wire that the configuration names.
func (d *dialer) open(ctx context.Context, sse bool, in transport.Receiver) (transport.Transport, error) {
	w, err := d.openWire(ctx, sse, in)
	if err == nil && d.opened != nil {
		d.opened()
	}
	return w, err
}

func (d *dialer) openWire(ctx context.Context, sse bool, in transport.Receiver) (transport.Transport, error) {
	if d.config.URL == "" {
		return transport.OpenStdio(transport.StdioOptions{
			Command: d.options.resolve(d.config.Command), Env: d.config.Env, Inherit: d.config.InheritEnv, Reserved: d.config.Reserved, Dir: d.config.Dir, Confine: d.confinement(),
			MessageLimit: int(d.options.MessageLimit), Depth: d.options.Depth, Watchdog: d.options.watchdog, Log: d.log,
		}, in)
	}
	o := transport.HTTPOptions{
		URL: d.config.URL, Headers: d.config.Headers, Pool: d.transport, Token: d.token,
		MessageLimit: int(d.options.MessageLimit), Depth: d.options.Depth, Log: d.log,
	}
	if sse {
		return transport.OpenSSE(ctx, o, in)
	}
	return transport.OpenHTTP(o, in), nil
}

// dead returns why the wire ended, which says more than that a request on it failed.
func dead(w transport.Transport, err error) error {
	if w.Ended() {
		if reason := w.Wait(); reason != nil {
			return reason
		}
	}
	return err
}

// probed returns a *notModernError when the answer to server/discover is evidence of a legacy
// server (2026-07-28, basic/versioning), and err otherwise: 401, 403, 429, 5xx, redirects and
// network failures say nothing about the era.
func probed(err error) error {
	var status *transport.StatusError
	if errors.As(err, &status) {
		switch {
		case status.Status == 401, status.Status == 403, status.Status == 407, status.Status == 408, status.Status == 429,
			status.Status >= 500, status.Status < 400:
			return err
		case status.Message == nil:
			return &notModernError{err}
		}
		err = asPeerError(err)
	}
	var peer *jsonrpc.Error
	if !errors.As(err, &peer) {
		return err
	}
	switch peer.Code {
	case codeHeaderMismatch, codeMissingCapability:
		return err
	case codeUnsupportedVersion:
		if supported, ok := supportedVersions(peer); ok && !slices.ContainsFunc(supported, mcp.IsModernProtocol) {
			return &notModernError{err}
		}
		return err
	}
	return &notModernError{err}
}

// Codes of 2026-07-28, basic/index#error-codes.
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// supportedVersions reads what a server says it supports; ok is false when it does not say.
func supportedVersions(e *jsonrpc.Error) (versions []string, ok bool) {
	v, err := raw.Get(e.Data, "supported")
	if err != nil {
		return nil, false
	}
	list, err := raw.Elements(v)
	if err != nil {
		return nil, false
	}
	for _, item := range list {
		if s, err := raw.String(item); err == nil {
			versions = append(versions, s)
		}
	}
	return versions, len(versions) > 0
}

// deniesLegacy reports whether the failed handshake is the word of a server that speaks the modern
// era only.
func deniesLegacy(err error) bool {
	var peer *jsonrpc.Error
	return errors.As(asPeerError(err), &peer) &&
		(peer.Code == codeUnsupportedVersion || peer.Code == codeHeaderMismatch || peer.Code == mcp.METHOD_NOT_FOUND)
}

// olderTransport reports whether the failed initialize is a reason to try HTTP+SSE (2026-07-28,
// streamable-http#httpsse-transport).
func olderTransport(err error) bool {
	var status *transport.StatusError
	return errors.As(err, &status) && status.Message == nil && (status.Status == 400 || status.Status == 404 || status.Status == 405)
}

// asPeerError returns the JSON-RPC error that came with an HTTP status, where the server's word
// counts more than the status: not where the status is about us.
func asPeerError(err error) error {
	var status *transport.StatusError
	if errors.As(err, &status) && status.Message != nil && status.Message.Error != nil &&
		status.Status != 401 && status.Status != 403 && status.Status != 407 && !errors.Is(err, transport.ErrSessionGone) {
		return status.Message.Error
	}
	return err
}

// recall returns the era and wire that the server was last known to speak; EraAuto when it is not
// known.
func (k *knowledge) recall() (Era, bool) {
	k.Lock()
	defer k.Unlock()
	return k.era, k.sse
}

func (k *knowledge) learn(era Era, sse bool) {
	k.Lock()
	defer k.Unlock()
	k.era, k.sse, k.against = era, sse, 0
}

// doubt counts a handshake that spoke against the known era, if it did, and reports whether there
// were enough of them to forget it.
func (k *knowledge) doubt(against bool) bool {
	k.Lock()
	defer k.Unlock()
	if !against {
		return false
	}
	if k.against++; k.against < stubborn {
		return false
	}
	k.era, k.sse, k.against = EraAuto, false, 0
	return true
}

// resolve replaces the program name "junction" by our own executable.
func (o Options) resolve(command []string) []string {
	if o.Self != "" && command[0] == "junction" {
		return append([]string{o.Self}, command[1:]...)
	}
	return command
}

// describe makes one line of an error, for the table of upstreams.
func describe(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
