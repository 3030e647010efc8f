package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"

	"junction/auth/fetch"
	"junction/upstream/bounded"
)

// limitedFetcher fetches URLs that clients supply, at a limited rate, and each URL once at a time.
// Fetches for clients that a user has allowed have a rate of their own, which others cannot use up.
// Make it with newLimitedFetcher.
type limitedFetcher struct {
	fetch      Fetch
	unapproved *rateLimit
	allowed    *rate.Limiter
	now        func() time.Time

	mu   sync.Mutex
	busy map[string]chan struct{} // by URL; closed when the turn has ended
}

func newLimitedFetcher(fetch Fetch, strangers *rateLimit, now func() time.Time) *limitedFetcher {
	return &limitedFetcher{
		fetch: fetch, unapproved: strangers, allowed: rate.NewLimiter(20, 200), now: now,
		busy: map[string]chan struct{}{},
	}
}

// errTooManyFetches means that the rate limit prevented a fetch. It says nothing about the URL.
var errTooManyFetches = errors.New("this server fetches too many documents at the moment; try again in a minute")

// turn gives the caller the exclusive turn to fetch a URL, until done is called. If another caller
// has the turn, it waits for that caller and returns nil: the result may be there now.
func (o *limitedFetcher) turn(ctx context.Context, where string) (done func(), err error) {
	o.mu.Lock()
	busy := o.busy[where]
	if busy == nil {
		busy = make(chan struct{})
		o.busy[where] = busy
		o.mu.Unlock()
		return func() {
			o.mu.Lock()
			delete(o.busy, where)
			o.mu.Unlock()
			close(busy)
		}, nil
	}
	o.mu.Unlock()
	select {
	case <-busy:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// once returns what is known of a URL, and loads it if that does not settle it. Of several callers
// one loads, and the others wait for its result.
func once[T any](ctx context.Context, o *limitedFetcher, where string, known func() (v T, settled bool, err error),
	load func() (T, error)) (v T, err error) {
	for {
		if v, settled, err := known(); settled {
			return v, err
		}
		done, err := o.turn(ctx, where)
		if err != nil {
			return v, err
		}
		if done == nil {
			continue // another caller has loaded it
		}
		defer done()
		if v, settled, err := known(); settled { // another caller had loaded it before this turn began
			return v, err
		}
		return load()
	}
}

// get fetches a URL for the request of ctx. allowed means that a user has allowed the client.
func (o *limitedFetcher) get(ctx context.Context, where string, max int64, allowed bool) (fetch.Document, error) {
	if allowed && !o.allowed.AllowN(o.now(), 1) || !allowed &&
		o.unapproved.pass(callerOf(ctx).from, o.now()) != withinLimit {
		return fetch.Document{}, errTooManyFetches
	}
	d, err := o.fetch(ctx, where, max)
	if fetchErr, ok := errors.AsType[*fetch.Error](err); ok {
		err = errors.New(string(fetchErr.Class)) // the rest is about the network
	}
	return d, err
}

// clientKeySets caches the keys that clients publish at a URL (jwks_uri) for an hour. If no key
// fits a signature, or the last fetch failed, the keys are fetched again, at most once a minute.
type clientKeySets struct {
	fetcher *limitedFetcher
	now     func() time.Time

	room bounded.Room
	kept bounded.Cache[string, keptKeys] // by URL
}

// keptKeys is the cache entry of a URL.
type keptKeys struct {
	set     *jose.JSONWebKeySet // the last that was fetched; nil if none was
	fetched time.Time           // when set was fetched
	bytes   int                 // of set, as it was fetched
	tried   time.Time           // when the last fetch began
	failure error               // of the last fetch
}

const (
	maxKeys      = 64 << 10  // bytes of a set
	maxSetsBytes = 1 << 20   // of all cached sets
	perSet       = 5 << 10   // bytes that each set counts in addition
	keysKept     = time.Hour // unless a signature fits no key
	keysTried    = time.Minute
)

func newClientKeySets(f *limitedFetcher, now func() time.Time) *clientKeySets {
	k := &clientKeySets{fetcher: f, now: now}
	k.room.Max, k.kept.Room = maxSetsBytes, &k.room
	return k
}

// get returns the keys at a URL. again means that no key of the last result fits a signature.
func (k *clientKeySets) get(ctx context.Context, where, host string, again bool) (*jose.JSONWebKeySet, error) {
	return once(ctx, k.fetcher, where,
		func() (*jose.JSONWebKeySet, bool, error) { return k.known(where, again) },
		func() (*jose.JSONWebKeySet, error) { return k.load(context.WithoutCancel(ctx), where, host) })
}

// known returns the cached result for a URL. settled is false if the keys must be fetched. Valid
// keys stay in use while new ones cannot be fetched.
func (k *clientKeySets) known(where string, again bool) (set *jose.JSONWebKeySet, settled bool, err error) {
	kept, ok := k.kept.Get(where)
	now := k.now()
	switch {
	case !ok:
		return nil, false, nil
	case now.Before(kept.tried.Add(keysTried)), kept.set != nil && !again && now.Before(kept.fetched.Add(keysKept)):
		if kept.set == nil {
			return nil, true, kept.failure
		}
		return kept.set, true, nil
	}
	return nil, false, nil
}

// load fetches the keys at a URL and caches the result. The caller has the turn of the URL.
func (k *clientKeySets) load(ctx context.Context, where, host string) (*jose.JSONWebKeySet, error) {
	began := k.now()
	got, err := k.fetcher.get(ctx, where, maxKeys, true)
	set := &jose.JSONWebKeySet{}
	if err == nil && json.Unmarshal(got.Body, set) != nil {
		err = errors.New("it is not a JSON Web Key Set")
	}
	next, _ := k.kept.Get(where)
	if err == nil {
		next.set, next.fetched, next.bytes, next.failure = set, began, len(got.Body), nil
	} else {
		next.failure = &fetchError{host, err.Error()}
	}
	if !errors.Is(err, errTooManyFetches) {
		next.tried = began
		k.kept.Put(where, next, next.bytes+perSet)
	}
	if next.set != nil {
		return next.set, nil
	}
	return nil, next.failure
}
