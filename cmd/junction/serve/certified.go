package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/build"
	"junction/cmd/junction/base/certificate"
	"junction/cmd/junction/base/config"
	"junction/cmd/watch"
	"junction/upstream/pace"
)

// certified is the certificate of TLS: that of files, or one that an authority issues.
type certified struct {
	*common
	kept certificate.Kept
	on   bool          // no reload changes it
	look chan struct{} // receives when the files are to be read, or the host has changed

	pair atomic.Pointer[certificate.Pair] // the files, which no reload changes, and the host

	authority *certificate.Authority // nil with files
	orders    *certificate.Orders    // nil with files
	host      atomic.Pointer[string] // of public_url, for orders
	folder    string                 // of orders; "" with files
}

// Open reads the files, or what an authority has issued. A certificate that clients would reject is a mistake.
func (s *certified) Open(c *config.Config) error {
	if s.on = c.TLS.On(); !s.on {
		return nil
	}
	s.look, s.kept.Changed = make(chan struct{}, 1), make(chan struct{}, 1)
	if c.TLS.ACME != nil {
		return s.openOrders(c)
	}
	next, err := s.Prepare(c)
	if err == nil {
		next.commit()
	}
	return err
}

var errNoCertificates = errors.New("tls.acme: there is no folder for certificates; set HOME or XDG_STATE_HOME")

// openOrders opens the store of certificates, which must be writable.
func (s *certified) openOrders(c *config.Config) error {
	s.folder = config.OrderedDir(c, s.getenv)
	if s.folder == "" {
		return errNoCertificates
	}
	store, err := certificate.OpenStore(s.folder, c.TLS.ACME.DirectoryURL())
	if err != nil {
		return err
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	s.host.Store(new(c.Host()))
	s.authority = &certificate.Authority{Directory: c.TLS.ACME.DirectoryURL(), Email: c.TLS.ACME.Email,
		Binding: c.TLS.ACME.Binding(),
		Agent:   "junction/" + build.Read().Version, HTTP: &http.Client{Transport: config.Trusting(fetcher)}}
	s.orders = &certificate.Orders{Host: func() string { return *s.host.Load() }, Store: store,
		Order: s.authority.Order, Kept: &s.kept, Log: s.log, Wake: s.look}
	s.orders.Load()
	return nil
}

// certificate returns the certificate for a handshake (GetCertificate of package tls).
func (s *certified) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.authority != nil {
		if answer, is, err := s.authority.Challenge(hello); is {
			return answer, err
		}
	}
	return s.kept.Certificate(hello)
}

// protocols returns the protocols of connections that are not those of clients.
func (s *certified) protocols() []string {
	if s.authority == nil {
		return nil
	}
	return []string{certificate.Protocol}
}

// Prepare reads the files if the host is another one, which the certificate must be for. An authority gets a new
// order when the host is in force.
func (s *certified) Prepare(next *config.Config) (prepared, error) {
	switch {
	case !s.on:
		return prepared{}, nil
	case s.orders != nil:
		return prepared{use: func() {
			s.host.Store(new(next.Host()))
			pace.Wake(s.look)
		}}, nil
	}
	pair, before := next.Pair(), s.pair.Load()
	if before != nil && before.Host == pair.Host {
		return prepared{use: func() { pace.Wake(s.look) }}, nil
	}
	loaded, err := pair.Load(time.Now())
	if err != nil {
		return prepared{}, err
	}
	return prepared{use: func() {
		s.pair.Store(&pair)
		s.kept.Use(loaded, nil)
	}}, nil
}

// Close does nothing.
func (s *certified) Close() {}

// Run replaces the certificate until ctx ends.
func (s *certified) Run(ctx context.Context) error {
	switch {
	case s.orders != nil:
		s.orders.Run(ctx)
	case s.on:
		s.follow(ctx)
	}
	return nil
}

// follow reads the files again when they change, until ctx ends.
func (s *certified) follow(ctx context.Context) {
	pair := *s.pair.Load()
	cert, key := filepath.Base(pair.Cert), filepath.Base(pair.Key)
	var changed <-chan struct{}
	// Certbot and Kubernetes replace a link, whose event may have another name.
	files, err := watch.New(func(e fsnotify.Event, waiting bool) bool {
		base := filepath.Base(e.Name)
		return base == cert || base == key || !waiting && !e.Has(fsnotify.Write) && !e.Has(fsnotify.Chmod)
	})
	if err == nil {
		defer files.Close()
		changed = files.Changed
		for _, file := range []string{pair.Cert, pair.Key} {
			if err == nil {
				err = files.Add(file)
			}
		}
	}
	if err != nil {
		s.log.Warn("a changed certificate is noticed on SIGHUP only", "error", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-s.look:
		}
		s.reload()
	}
}

// reload reads the files. If they have a mistake, the old certificate stays in use.
func (s *certified) reload() {
	old, _ := s.kept.Certificate(nil)
	next, err := s.pair.Load().Load(time.Now())
	switch {
	case err != nil:
		s.log.Error("the certificate is not replaced; the old one stays in use", "error", err)
	case bytes.Equal(next.Leaf.Raw, old.Leaf.Raw):
	default:
		s.log.Info("the certificate is replaced", "expires", next.Leaf.NotAfter)
	}
	s.kept.Use(next, err)
}
