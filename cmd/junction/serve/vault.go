package serve

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/signins"
	"junction/upstream/pace"
)

// vault holds the tokens of the upstreams that Junction signs in to: the operator's and those of users.
type vault struct {
	store *store.Store
	keys  *seal.Ring
	oauth *oauth.Client
}

// openVault opens the vault if the configuration needs one and none is open. The vault stays open
// until the program ends.
func (p *program) openVault(c *config.Config) error {
	if p.vault.Load() != nil || !c.Stores() {
		return nil
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	keys, err := p.ring(c.Storage)
	if err != nil {
		return err
	}
	dsn, err := c.Storage.Place(p.getenv)
	if err != nil {
		return err
	}
	if c.Storage.DSN == "" {
		if err := os.MkdirAll(filepath.Dir(dsn), 0o700); err != nil {
			return fmt.Errorf("there is no place for the sign-ins (storage.dsn): %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := store.Open(ctx, store.Config{Driver: c.Storage.Driver, DSN: dsn, Keys: keys, Log: p.log,
		Audited: func() { pace.Wake(p.events) }, Took: p.measuring.telemetry.Store})
	if err != nil {
		return fmt.Errorf("open the storage of sign-ins: %w", err)
	}
	name := ""
	if c.Auth.OAuth != nil {
		name = c.Auth.OAuth.Name
	}
	p.vault.Store(&vault{store: s, keys: keys, oauth: oauth.New(oauth.Options{
		Store: s, URL: c.PublicURL, Name: cmp.Or(name, "Junction"), Fetch: fetcher, HTTP: config.Trusting(fetcher),
		Log:     p.log,
		Changed: func(upstream, principal string) { p.set.Renew(principal, upstream) },
	})})
	return nil
}

// storage returns the storage of sign-ins; nil if no vault is open.
func (p *program) storage() *store.Store {
	if v := p.vault.Load(); v != nil {
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
func (p *program) ring(c config.Storage) (*seal.Ring, error) {
	ring, made, err := signins.MasterKeys(c, p.getenv)
	if made != "" {
		p.log.Warn("a master key was made: keep a copy of it, since without it what is stored cannot be read", "file",
			made)
	}
	return ring, err
}
