package serve

import (
	"bytes"
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/junction/base/certificate"
	"junction/cmd/junction/base/config"
	"junction/cmd/watch"
	"junction/upstream/pace"
)

// certified is the certificate of TLS.
type certified struct {
	*console
	kept certificate.Kept
	on   bool                             // no reload changes it
	pair atomic.Pointer[certificate.Pair] // its files, which no reload changes, and its host
	look chan struct{}                    // receives when the files are to be read
}

// Open reads the files. A certificate that clients would reject is a mistake.
func (s *certified) Open(c *config.Config) error {
	if s.on = c.TLS.On(); !s.on {
		return nil
	}
	s.look = make(chan struct{}, 1)
	next, err := s.Prepare(c)
	if err == nil {
		next.commit()
	}
	return err
}

// Prepare reads the files if the host is another one, which the certificate must be for.
func (s *certified) Prepare(next *config.Config) (prepared, error) {
	if !s.on {
		return prepared{}, nil
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

// Run reads the files again when they change, until ctx ends.
func (s *certified) Run(ctx context.Context) error {
	if !s.on {
		return nil
	}
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
			return nil
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
