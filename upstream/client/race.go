package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
func (a *attempt) dialAuto(ctx context.Context, guess Era) (Conn, error) {
	b, err := a.openBoth(ctx)
	if err != nil {
		return nil, err
	}
	era, c, err := b.race(ctx, guess)
	if err == nil {
		found := b.basis(era)
		c.Info().Proven = found == proven
		a.known.learn(era, a.remote(), found)
		return c, nil
	}
	command := a.kind.Process
	exited := command && (b.transport.Ended() || errors.As(err, new(*stdio.ExitError)))
	reason := b.fail(err)
	if command && guess != EraModern && b.proof() == provesNothing {
		a.known.initializeAlone()
	}
	switch {
	case exited && !b.asked:
		// Some legacy servers exit when they receive an unknown request: start the server again and
		// initialize it. The first process has ended.
		if a.options.Again != nil {
			a.options.Again(reason)
		}
		return a.dialLegacy(ctx, a.remote(), assumed)
	case b.asked && a.mayBeSSE(err):
		c, second := a.dialLegacy(ctx, a.remote().row().next, b.basis(EraLegacy))
		if second == nil {
			return c, nil
		}
		if !a.tokens.hasFailed() {
			return nil, rejectedOverSSE(rejected(b.discover, reason), second)
		}
	}
	if b.asked && !a.tokens.hasFailed() {
		return nil, rejected(b.discover, reason)
	}
	return nil, handshakeError(reason)
}

// bothEras is one transport with a conn of each era. Only one of the conns will be used.
type bothEras struct {
	*attempt
	transport  transport.Transport
	modern     *modernConn
	legacy     *legacyConn
	receiver   atomic.Pointer[base] // the conn that gets the server's messages
	handshakes sync.WaitGroup
	// the results of the handshakes; each 1-buffered
	discovered, initialized chan error
	asked                   bool  // initialize was sent
	discover                error // the answer to server/discover; nil for none
}

// openBoth opens the transport. At first, the modern conn receives its messages.
func (a *attempt) openBoth(ctx context.Context) (*bothEras, error) {
	b := &bothEras{
		attempt: a, modern: &modernConn{self: a.options.Client}, legacy: newLegacyConn(),
		discovered: make(chan error, 1), initialized: make(chan error, 1),
	}
	b.modern.init(a.options.Log, a.hooks, EraModern)
	b.legacy.init(a.options.Log, a.hooks, EraLegacy)
	a.share(&b.modern.base)
	a.share(&b.legacy.base)
	b.legacy.ids.Store(b.modern.ids.Load() + 1<<20) // other ids than the modern conn on the same transport has
	b.receiver.Store(&b.modern.base)
	t, err := a.open(ctx, a.remote(), func(m *jsonrpc.Message) { b.receiver.Load().receive(m) }, a.hooks.Doubted)
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

// race sends server/discover. If the answer does not show that the server belongs to the modern era,
// race also sends initialize. A server that does not answer within discoverTimeout may never answer,
// or may still be starting (npx takes long): then race sends initialize, too, and the first good
// answer counts. race returns the era and its conn, or why neither handshake succeeded.
func (b *bothEras) race(ctx context.Context, guess Era) (Era, Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer b.handshakes.Wait()
	defer cancel()
	patience := discoverTimeout
	if limit := b.options.ConnectTimeout; limit > 0 {
		patience = min(patience, limit/2)
	}
	due := time.NewTimer(patience) // for initialize
	defer due.Stop()
	var modern, legacy handshake
	var grace <-chan time.Time // runs while only the legacy handshake has succeeded
	graceOver := false
	var stopped <-chan struct{} // the end of ctx, while no handshake waits for it
	b.handshakes.Go(func() { b.discovered <- b.modern.handshake(ctx) })
	for {
		select {
		case modern.err = <-b.discovered:
			modern.ended = true
			if ctx.Err() == nil {
				b.discover = modern.err
			}
			if modern.err != nil && !b.asked {
				pause, err := b.denial(ctx, modern.err, guess)
				if err != nil {
					return EraAuto, nil, err
				}
				due.Reset(pause)
				stopped = ctx.Done()
			}
		case legacy.err = <-b.initialized:
			legacy.ended = true
		case <-due.C:
			stopped = nil
			b.initialize(ctx)
		case <-stopped:
			return EraAuto, nil, context.Cause(ctx)
		case <-grace:
			graceOver = true
		}
		switch {
		case modern.succeeded():
			return EraModern, b.use(&b.modern.base, &b.legacy.base, b.modern), nil
		case legacy.succeeded() && (modern.ended || graceOver):
			return EraLegacy, b.use(&b.legacy.base, &b.modern.base, b.legacy), nil
		case legacy.succeeded() && grace == nil:
			grace = time.After(modernGrace)
		case legacy.ended && modern.ended:
			return EraAuto, nil, legacy.err
		}
	}
}

// denial decides about an error of server/discover. It returns the pause before initialize, which
// decides about the era, or why the race is over.
func (b *bothEras) denial(ctx context.Context, err error, guess Era) (time.Duration, error) {
	status, _ := errors.AsType[*transport.StatusError](err)
	switch proof := verdictOf(err); {
	case ctx.Err() != nil, b.transport.Ended(), b.tokens.hasFailed(), proof == notAsked, proof == provesModern:
		return 0, err
	case guess == EraModern && proof == provesNothing:
		return 0, err
	case guess == EraModern && !b.known.doubt():
		not, _ := errors.AsType[*notModernError](err)
		return 0, fmt.Errorf("the server spoke %s before and denies it now: %w", modernVersion, not.cause)
	case status == nil || status.Status != http.StatusTooManyRequests:
		return 0, nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= status.RetryAfter { // there is no time for initialize
		return 0, err
	}
	return status.RetryAfter, nil
}

// proof returns what the server has answered to server/discover. Silence proves nothing.
func (b *bothEras) proof() verdict {
	if b.discover == nil || b.transport.Ended() && verdictOf(b.discover) == notAsked {
		return provesNothing
	}
	return verdictOf(b.discover)
}

// basis returns the basis of the era of a race that has succeeded. The legacy era of a command is
// remembered also if the answer proved nothing: it may cost a process to find it again. So is that
// of a server that was silent: it costs discoverTimeout.
func (b *bothEras) basis(era Era) basis {
	switch {
	case era == EraModern || b.discover != nil && b.proof() == provesLegacy:
		return proven
	case b.discover == nil || b.kind.Process:
		return assumed
	}
	return provisional
}

// initialize sends initialize, unless it was sent. From now on the legacy conn gets the server's
// messages.
func (b *bothEras) initialize(ctx context.Context) {
	if b.asked {
		return
	}
	b.asked = true
	b.receiver.Store(&b.legacy.base)
	b.handshakes.Go(func() { b.initialized <- b.legacy.handshake(ctx, b.options.Client, b.profile) })
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
	return err
}
