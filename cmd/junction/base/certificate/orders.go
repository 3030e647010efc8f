package certificate

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"time"

	"junction/upstream/pace"
)

// Orders orders the certificate of a host, renews it, and keeps it in a Store. It orders at the start of Run, and
// not at a handshake, so that a client does not wait, and strangers cause no orders.
type Orders struct {
	Host  func() string // may change while Run runs; Wake then
	Store *Store
	Order func(ctx context.Context, account crypto.Signer, host string) (*tls.Certificate, error)
	Kept  *Kept
	Log   *slog.Logger
	Wake  <-chan struct{}

	host    string           // of current
	current *tls.Certificate // nil without one
	unsaved bool             // it is not in the Store yet
	renewal time.Time        // of current
	after   time.Time        // no order before this time
	pause   time.Duration    // after the last failure
}

// Times of orders.
const (
	firstPause = 5 * time.Minute // after a failure; authorities allow few failures in an hour
	mostPause  = time.Hour
	longest    = time.Hour // between two looks at the clock, which may be set, or stand still while a machine sleeps
	maxWait    = 7 * 24 * time.Hour
)

// Load puts the stored certificate of the host in use, if there is one.
func (o *Orders) Load() {
	o.host = o.Host()
	o.current, o.unsaved, o.after, o.pause = nil, false, time.Time{}, 0
	stored, err := o.Store.Certificate(o.host)
	switch {
	case err == nil:
		o.use(stored)
	case !errors.Is(err, fs.ErrNotExist):
		o.Log.Warn("the stored certificate cannot be used, and is ordered again", "host", o.host, "error", err)
	}
	if at := o.Store.Wait(); at.After(time.Now()) {
		o.after = at
	}
}

// use puts a certificate in use. It is renewed when a third of its time is left, or a little later, so that many
// processes do not renew at one time. The certificate decides how much later: a restart changes nothing.
func (o *Orders) use(c *tls.Certificate) {
	o.current = c
	third := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore) / 3
	sum := sha256.Sum256(c.Leaf.Raw)
	later := binary.BigEndian.Uint32(sum[:]) % 1000
	o.renewal = c.Leaf.NotAfter.Add(-third + third/10_000*time.Duration(later))
	o.Kept.Use(c, nil)
}

// Run orders and renews until ctx ends. Call Load first.
func (o *Orders) Run(ctx context.Context) {
	for {
		if o.Host() != o.host {
			o.Load()
		}
		wait := o.step(ctx, time.Now())
		if !pace.Sleep(ctx, min(wait, longest), o.Wake) {
			return
		}
	}
}

// step orders a certificate if it is time, and returns how long to wait for the next step.
func (o *Orders) step(ctx context.Context, now time.Time) time.Duration {
	if o.unsaved {
		o.save()
	}
	if o.current != nil && now.Before(o.renewal) {
		return o.renewal.Sub(now)
	}
	if now.Before(o.after) {
		if o.pause == 0 {
			o.Kept.Use(nil, fmt.Errorf("the authority asked for no order before %s",
				o.after.UTC().Format(time.RFC3339)))
		}
		return o.after.Sub(now)
	}
	o.Log.Info("a certificate is ordered", "host", o.host)
	c, err := o.order(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		o.fail(err, time.Now())
		return time.Until(o.after)
	}
	o.pause, o.after, o.unsaved = 0, time.Time{}, true
	o.use(c)
	o.Log.Info("a certificate was issued", "host", o.host, "expires", c.Leaf.NotAfter)
	o.save()
	return time.Until(o.renewal)
}

// order orders with the account of the store.
func (o *Orders) order(ctx context.Context) (*tls.Certificate, error) {
	account, lost, err := o.Store.Account()
	if lost != nil {
		o.Log.Warn("the account at the authority cannot be used; a new one is made", "error", lost)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot store the account at the authority: %w", err)
	}
	return o.Order(ctx, account, o.host)
}

// save stores the certificate. Until that succeeds, each step tries again.
func (o *Orders) save() {
	err := o.Store.Save(o.host, o.current)
	if o.unsaved = err != nil; err == nil {
		o.Kept.Use(o.current, nil)
		return
	}
	err = fmt.Errorf("the new certificate cannot be stored, so that a restart orders again: %w", err)
	o.Log.Error("a certificate is in use, and not stored", "error", err)
	o.Kept.Use(o.current, nil)
	o.Kept.Use(nil, err)
}

// fail notes why there is no new certificate. The next order has to wait, as long as the authority asks.
func (o *Orders) fail(err error, now time.Time) {
	o.pause = min(max(2*o.pause, firstPause), mostPause)
	o.after = now.Add(o.pause/2 + rand.N(o.pause/2+1))
	restart := ", or at a restart"
	if at := retryAfter(err, now); at.After(o.after) {
		restart = ""
		if o.after = at; at.Sub(now) > maxWait {
			o.after = now.Add(maxWait)
		}
		if err := o.Store.SetWait(o.after); err != nil {
			o.Log.Warn("a restart does not know that the authority asked to wait", "error", err)
		}
	}
	err = fmt.Errorf("the certificate cannot be ordered: %s; next order after %s%s", oneLine(err),
		o.after.UTC().Format(time.RFC3339), restart)
	o.Log.Error("a certificate was not issued", "host", o.host, "error", err)
	o.Kept.Use(nil, err)
}

// oneLine returns the text of an error, which has words of the authority.
func oneLine(err error) string {
	const most = 500
	text := []rune{}
	for _, r := range err.Error() {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		if text = append(text, r); len(text) == most {
			return string(text) + "…"
		}
	}
	return string(text)
}
