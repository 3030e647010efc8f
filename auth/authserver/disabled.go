package authserver

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"junction/auth"
)

// This file implements auth.Directory: a user whom the operator has disabled cannot use a token of another
// authorization server either. Our own tokens end with their grants.

// directory has the disabled users in memory, so that a token costs no query.
type directory struct {
	asked atomic.Bool                     // a caller has asked; until then the users are not read
	known atomic.Pointer[map[string]bool] // the IDs of their principals; nil before the first reading
	first singleflight.Group              // callers who wait for the first reading
	mu    sync.Mutex                      // held while the store is read, so that the newest result stays
}

// Disabled implements auth.Directory. It asks the store if nothing is known yet. After that, poll renews
// what is known, and an outage of the store changes nothing.
func (srv *Server) Disabled(ctx context.Context, user string) (bool, error) {
	if srv.disabled.known.Load() == nil {
		srv.disabled.asked.Store(true)
		read := srv.disabled.first.DoChan("", func() (any, error) {
			return nil, srv.findDisabled(context.WithoutCancel(ctx))
		})
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case result := <-read:
			if result.Err != nil {
				return false, result.Err
			}
		}
	}
	return (*srv.disabled.known.Load())[user], nil
}

// KnownDisabled implements auth.Directory.
func (srv *Server) KnownDisabled(user string) bool {
	known := srv.disabled.known.Load()
	if known == nil {
		srv.disabled.asked.Store(true) // another replica has verified the token
		return false
	}
	return (*known)[user]
}

// findDisabled asks the store which users are disabled. It does nothing until a caller has asked for one. When
// it returns nil, Disabled and KnownDisabled know each user who was disabled before the call.
func (srv *Server) findDisabled(ctx context.Context) error {
	if !srv.disabled.asked.Load() {
		return nil
	}
	srv.disabled.mu.Lock()
	defer srv.disabled.mu.Unlock()
	users, err := srv.store.DisabledUsers(ctx)
	if err != nil {
		return err
	}
	next := make(map[string]bool, len(users))
	for _, u := range users {
		next[auth.UserID(u.Issuer, u.Subject)] = true
	}
	before := srv.disabled.known.Swap(&next)
	for id := range next {
		if (before == nil || !(*before)[id]) && srv.ended != nil {
			srv.ended()
			break
		}
	}
	return nil
}
