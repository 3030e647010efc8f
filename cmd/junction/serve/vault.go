package serve

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/signins"
	"junction/upstream/pace"
)

// vault holds the tokens of the upstreams that Junction signs in to: the operator's and those of
// users.
type vault struct {
	store *store.Store
	keys  *seal.Ring
	oauth *oauth.Client
}

// storage is the database. events.go writes the events in it to the audit.
type storage struct {
	*common
	vault     atomic.Pointer[vault] // nil if no token is stored; a reload may open it
	stored    chan struct{}         // 1-buffered: this process has stored an event
	recording *recording
	measuring *measuring
	upstreams *upstreams
}

// Open opens the vault if the configuration needs one.
func (s *storage) Open(c *config.Config) error {
	next, err := s.Prepare(c)
	next.commit()
	return err
}

// Prepare opens the vault if the configuration needs one and none is open. The vault stays open
// until the program ends.
func (s *storage) Prepare(next *config.Config) (prepared, error) {
	if s.vault.Load() != nil || !next.Stores() {
		return prepared{}, nil
	}
	v, err := s.openVault(next)
	if err != nil {
		return prepared{}, err
	}
	return prepared{use: func() { s.vault.Store(v) }, release: v.close}, nil
}

// Close writes the last events to the audit, and closes the vault: only now, another process can
// open it.
func (s *storage) Close() {
	s.fileEvents(context.Background(), lastEvents)
	s.vault.Load().close()
}

// openVault opens a vault for a configuration.
func (s *storage) openVault(c *config.Config) (*vault, error) {
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return nil, err
	}
	keys, err := s.ring(c.Storage)
	if err != nil {
		return nil, err
	}
	dsn, err := c.Storage.Place(s.getenv)
	if err != nil {
		return nil, err
	}
	if c.Storage.DSN == "" {
		if err := os.MkdirAll(filepath.Dir(dsn), 0o700); err != nil {
			return nil, fmt.Errorf("there is no place for the sign-ins (storage.dsn): %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := store.Open(ctx, store.Config{Driver: c.Storage.Driver, DSN: dsn, Keys: keys, Log: s.log,
		Audited: func() { pace.Wake(s.stored) }, Took: s.measuring.telemetry.Store,
		Upstreams: s.upstreams.inForce.names})
	if err != nil {
		return nil, fmt.Errorf("open the storage of sign-ins: %w", err)
	}
	name := ""
	if c.Auth.OAuth != nil {
		name = c.Auth.OAuth.Name
	}
	return &vault{store: db, keys: keys, oauth: oauth.New(oauth.Options{
		Store: db, URL: c.PublicURL, Name: cmp.Or(name, "Junction"), Fetch: fetcher, HTTP: config.Trusting(fetcher),
		Log:     s.log,
		Changed: func(upstream, principal string) { s.upstreams.set.Renew(principal, upstream) },
		Other:   s.upstreams.inForce.otherSecret,
	})}, nil
}

// store returns the storage of sign-ins; nil if no vault is open.
func (s *storage) store() *store.Store {
	if v := s.vault.Load(); v != nil {
		return v.store
	}
	return nil
}

// close waits for in-flight token refreshes.
func (v *vault) close() {
	if v == nil {
		return
	}
	v.oauth.Close()
	_ = v.store.Close()
}

// ring reads the master keys, and creates the first one if there is no key file.
func (s *storage) ring(c config.Storage) (*seal.Ring, error) {
	ring, made, err := signins.MasterKeys(c, s.getenv)
	if made != "" {
		s.log.Warn("a master key was made: keep a copy of it, since without it what is stored cannot be read", "file",
			made)
	}
	return ring, err
}
