package credentials

import (
	"context"
	"slices"
	"sync"

	"junction/upstream"
)

// A trier is a Source that gets a credential without the database.
type trier interface {
	Try(ctx context.Context, name string) (upstream.Credential, error)
}

// Trial is upstream.Credentials for the check of one upstream by a command that does not open the database: a
// credential that the source can get is got once, and not stored. Other credentials are those of Sources.
type Trial struct {
	Sources *Sources

	mu  sync.Mutex
	got *upstream.Credential // guarded by mu, also while it is being got
}

// Apply implements upstream.Credentials.
func (t *Trial) Apply(ctx context.Context, c upstream.Caller, refused ...string) (upstream.Credential, error) {
	source, ok := t.Sources.byMode[c.Mode].(trier)
	if !ok {
		return t.Sources.Apply(ctx, c, refused...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.got == nil {
		got, err := source.Try(ctx, c.Upstream)
		if err != nil {
			return upstream.Credential{}, err
		}
		t.got = &got
	}
	if slices.Contains(refused, t.got.Token) && len(refused) > 1 {
		return upstream.Credential{}, &upstream.LackError{Upstream: c.Upstream, Mode: c.Mode, Again: true}
	}
	return *t.got, nil
}

// Tries reports whether a command without the database can get the credential of a mode.
func (s *Sources) Tries(mode upstream.AuthMode) bool {
	_, ok := s.byMode[mode].(trier)
	return ok
}
