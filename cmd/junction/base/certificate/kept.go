package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"junction/upstream/pace"
	"junction/upstream/prose"
)

// Kept is the certificate in use. A replacement that fails leaves it as it is. The zero value has none.
type Kept struct {
	// Changed receives after each Use, so that the state of health is not that of before; nil is told nothing.
	Changed chan struct{}

	mu      sync.Mutex
	current *tls.Certificate
	failed  error // of the last replacement
}

// Use replaces the certificate, if err is nil, or notes why it could not be replaced.
func (k *Kept) Use(c *tls.Certificate, err error) {
	defer pace.Wake(k.Changed)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err; err == nil {
		k.current = c
	}
}

// errNone is the error of a handshake before the first certificate.
var errNone = errors.New("there is no certificate yet")

// Certificate is a GetCertificate of package tls. It returns the certificate for every name that a client sends:
// the client compares it with the host that it asked for.
func (k *Kept) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil, errNone
	}
	return k.current, nil
}

// Left returns how long the certificate is still valid. It is negative after that, and 0 without one.
func (k *Kept) Left(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return 0
	}
	return k.current.Leaf.NotAfter.Sub(now)
}

// InUse describes the certificate in use.
type InUse struct {
	Expires time.Time `json:"expires"`
	Issuer  string    `json:"issuer"` // the name that its authority has
}

// InUse returns the certificate in use; nil if there is none.
func (k *Kept) InUse() *InUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil
	}
	return &InUse{k.current.Leaf.NotAfter.UTC(), issuerOf(k.current.Leaf)}
}

// Sentence says for people until when the certificate is valid; "" for one that has expired, of which Check tells.
func (u *InUse) Sentence(now time.Time) string {
	if u == nil || !now.Before(u.Expires) {
		return ""
	}
	return fmt.Sprintf("The certificate is valid until %s (%s), and is from %s.",
		u.Expires.Format("2006-01-02 15:04 UTC"), prose.Age(u.Expires.Sub(now)), prose.Flat(u.Issuer))
}

// Check is the check of a part of health: it returns why clients reject the certificate, or why a newer one is
// not in use.
func (k *Kept) Check(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	expired := k.current != nil && time.Now().After(k.current.Leaf.NotAfter)
	var expiry error
	if expired {
		expiry = fmt.Errorf("the certificate expired on %s, and clients reject it",
			k.current.Leaf.NotAfter.UTC().Format(time.RFC3339))
	} else if k.current == nil {
		expiry = errNone
	}
	switch {
	case k.failed != nil && expiry != nil:
		return fmt.Errorf("%w; %w", expiry, k.failed)
	case k.failed != nil:
		return fmt.Errorf("%w; the old certificate is in use until %s", k.failed,
			k.current.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return expiry
}
