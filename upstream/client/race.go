package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// This file connects to a server of unknown era: the handshakes of both eras compete on one
// transport (2026-07-28, basic/versioning).

const (
	// discoverTimeout is the time limit for the answer to server/discover. After it, initialize is
	// sent, too, because some servers never answer.
	discoverTimeout = 5 * time.Second
	// modernGrace is how long the modern answer may come after the legacy one, if both requests
	// waited for the server to start: it answers both, perhaps in another order.
	modernGrace = 200 * time.Millisecond
)

// dialAuto connects to a server of unknown era with a race on one transport. guess is the era that
// the server spoke before; EraAuto if it is unknown.
func (d *Dialer) dialAuto(ctx context.Context, guess Era, p Profile, h Hooks) (Conn, error) {
	b, err := d.openBoth(ctx, h)
	if err != nil {
		return nil, err
	}
	era, c, err := b.race(ctx, guess, p)
	if err == nil {
		d.known.learn(era, TransportAuto)
		return c, nil
	}
	exited := d.options.URL == "" && (b.transport.Ended() || errors.As(err, new(*stdio.ExitError)))
	reason := b.fail(err)
	switch {
	case exited && !b.asked:
		// Some legacy servers exit when they receive an unknown request: start the server again and
		// initialize it.
		return d.dialLegacy(ctx, TransportAuto, p, h)
	case b.asked && d.mayBeSSE(err):
		if c, second := d.dialLegacy(ctx, TransportSSE, p, h); second == nil {
			return c, nil
		}
		return nil, err
	}
	return nil, reason
}

// bothEras is one transport with a conn of each era. Only one of the conns will be used.
type bothEras struct {
	d          *Dialer
	transport  transport.Transport
	modern     *modernConn
	legacy     *legacyConn
	receiver   atomic.Pointer[base] // the conn that gets the server's messages
	handshakes sync.WaitGroup
	// the results of the handshakes; each 1-buffered
	discovered, initialized chan error
	asked                   bool // initialize was sent
}

// openBoth opens the transport. At first, the modern conn receives its messages.
func (d *Dialer) openBoth(ctx context.Context, h Hooks) (*bothEras, error) {
	b := &bothEras{
		d: d, modern: &modernConn{self: d.options.Client}, legacy: newLegacyConn(),
		discovered: make(chan error, 1), initialized: make(chan error, 1),
	}
	b.modern.init(d.options.Log, h, EraModern)
	b.legacy.init(d.options.Log, h, EraLegacy)
	d.share(&b.modern.base)
	d.share(&b.legacy.base)
	b.legacy.ids.Store(b.modern.ids.Load() + 1<<20) // other ids than those of the modern conn on the same transport
	b.receiver.Store(&b.modern.base)
	t, err := d.open(ctx, TransportAuto, func(m *jsonrpc.Message) { b.receiver.Load().receive(m) }, h.Doubted)
	if err != nil {
		b.modern.stop()
		b.legacy.stop()
		return nil, err
	}
	b.transport = t
	b.modern.start(t)
	b.legacy.start(t)
	return b, nil
}

// A handshake is the state of one handshake in a race.
type handshake struct {
	ended bool
	err   error
}

func (h *handshake) succeeded() bool { return h.ended && h.err == nil }

// race sends server/discover. If the answer shows that the server belongs to the legacy era, it also
// sends initialize. A server that does not answer within discoverTimeout may never answer, or may
// still be starting (npx takes long): then race sends initialize, too, and the first good answer
// counts. race returns the era and its conn, or why neither handshake succeeded.
func (b *bothEras) race(ctx context.Context, guess Era, p Profile) (Era, Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer b.handshakes.Wait()
	defer cancel()
	late := time.NewTimer(min(discoverTimeout, b.d.options.ConnectTimeout/2))
	defer late.Stop()
	var modern, legacy handshake
	var grace <-chan time.Time // runs while only the legacy handshake has succeeded
	graceOver := false
	b.handshakes.Go(func() { b.discovered <- b.modern.handshake(ctx) })
	for {
		select {
		case modern.err = <-b.discovered:
			modern.ended = true
		case legacy.err = <-b.initialized:
			legacy.ended = true
		case <-late.C:
			b.initialize(ctx, p)
		case <-grace:
			graceOver = true
		}
		switch {
		case modern.succeeded():
			return EraModern, b.use(&b.modern.base, &b.legacy.base, b.modern), nil
		case modern.ended && !b.asked:
			if err := b.denial(modern.err, guess); err != nil {
				return EraAuto, nil, err
			}
			b.initialize(ctx, p)
		case legacy.succeeded() && (modern.ended || graceOver):
			return EraLegacy, b.use(&b.legacy.base, &b.modern.base, b.legacy), nil
		case legacy.succeeded() && grace == nil:
			grace = time.After(modernGrace)
		case legacy.ended && modern.ended:
			return EraAuto, nil, legacy.err
		}
	}
}

// denial returns nil if the error of server/discover is evidence of the legacy era. Otherwise it
// returns why the race is over.
func (b *bothEras) denial(err error, guess Era) error {
	not, denies := errors.AsType[*notModernError](err)
	switch {
	case !denies:
		return err
	case guess == EraModern && !b.d.known.doubt():
		return fmt.Errorf("the server spoke %s before and denies it now: %w", modernVersion, not.cause)
	}
	return nil
}

// initialize sends initialize, unless it was sent. From now on the legacy conn gets the server's
// messages.
func (b *bothEras) initialize(ctx context.Context, p Profile) {
	if b.asked {
		return
	}
	b.asked = true
	b.receiver.Store(&b.legacy.base)
	b.handshakes.Go(func() { b.initialized <- b.legacy.handshake(ctx, b.d.options.Client, p) })
}

// use gives the transport to the conn that has won the race, and returns the conn.
func (b *bothEras) use(winner, loser *base, c Conn) Conn {
	b.receiver.Store(winner)
	loser.abandon()
	return c
}

// fail closes the transport and both conns, and returns the error to report.
func (b *bothEras) fail(err error) error {
	err = dead(b.transport, err)
	b.modern.stop()
	b.legacy.Close()
	b.modern.tasks.Wait()
	return asRPCError(err)
}
