package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

// outside fetches what the URLs of strangers name: each URL once at a time, and all of them
// together at a bounded pace. Fetches for clients that a user has allowed have a pace of their own,
// so that strangers cannot use it up. newOutside makes one.
type limitedFetcher struct {
	fetch     Fetch
	strangers *rateLimit
	allowed   *rate.Limiter
	now       func() time.Time

	mu   sync.Mutex
	busy map[string]chan struct{} // by URL; closed when the turn has ended
}

func newLimitedFetcher(fetch Fetch, strangers *rateLimit, now func() time.Time) *limitedFetcher {
	return &limitedFetcher{
		fetch: fetch, strangers: strangers, allowed: rate.NewLimiter(20, 200), now: now,
		busy: map[string]chan struct{}{},
	}
}

// errCrowded means that nothing was fetched, because too much was. It says nothing about the URL.
var errTooManyFetches = errors.New("this server reads too many descriptions of apps at the moment; try again in a minute")

// turn gives the caller the only turn at a URL, until done is called. If another caller has it,
// turn waits until that one is done, and returns nil: there may be something new.
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

// get fetches a URL for the caller of ctx. allowed says that a user has allowed the client.
func (o *limitedFetcher) get(ctx context.Context, where string, max int64, allowed bool) (Fetched, error) {
	if allowed && !o.allowed.AllowN(o.now(), 1) || !allowed &&
		o.strangers.pass(callerOf(ctx).from, o.now()) != withinLimit {
		return Fetched{}, errTooManyFetches
	}
	return o.fetch(ctx, where, max)
}

// clientKeySets are the keys of clients that publish them by URL (jwks_uri), of which each is kept
// for an hour. A signature that no key fits has them fetched anew, once a minute; so are those that
// could not be had.
type clientKeySets struct {
	fetcher *limitedFetcher
	now     func() time.Time

	mu   sync.Mutex
	kept map[string]keptKeys // by URL
}

// keptKeys is what is known of a URL.
type keptKeys struct {
	set     *jose.JSONWebKeySet // the last that could be had; nil if none could
	fetched time.Time           // when that was
	bytes   int
	tried   time.Time // when the last fetch began
	failure error     // of the last fetch
}

const (
	maxKeys      = 64 << 10  // bytes of a set
	maxSets      = 200       // that are kept
	maxSetsBytes = 1 << 20   // of all of them, as they were fetched
	keysKept     = time.Hour // without a signature that does not fit
	keysTried    = time.Minute
)

// get returns the keys at a URL on a host. again says that a signature fits none of those that get
// returned before.
func (k *clientKeySets) get(ctx context.Context, where, host string, again bool) (*jose.JSONWebKeySet, error) {
	for {
		if set, settled, err := k.known(where, again); settled {
			return set, err
		}
		done, err := k.fetcher.turn(ctx, where)
		if err != nil {
			return nil, err
		}
		if done == nil {
			continue // another request has fetched them
		}
		defer done()
		if set, settled, err := k.known(where, again); settled {
			return set, err
		}
		return k.load(context.WithoutCancel(ctx), where, host) // others wait for it
	}
}

// known returns what is known of a URL, and whether that is the answer. Keys that were good stay so
// while there are no new ones.
func (k *clientKeySets) known(where string, again bool) (set *jose.JSONWebKeySet, settled bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept, ok := k.kept[where]
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

// load fetches the keys at a URL, and remembers what came of it.
func (k *clientKeySets) load(ctx context.Context, where, host string) (*jose.JSONWebKeySet, error) {
	began := k.now()
	got, err := k.fetcher.get(ctx, where, maxKeys, true)
	set := &jose.JSONWebKeySet{}
	if err == nil && json.Unmarshal(got.Body, set) != nil {
		err = errors.New("it is not a set of keys")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.kept[where]
	if err == nil {
		next.set, next.fetched, next.bytes, next.failure = set, began, len(got.Body), nil
	} else {
		next.failure = &fetchError{host, err.Error()}
	}
	if !errors.Is(err, errTooManyFetches) {
		next.tried = began
		k.kept[where] = next
		k.makeRoom(where)
	}
	if next.set != nil {
		return next.set, nil
	}
	return nil, next.failure
}

// makeRoom forgets the sets that were fetched first, but for the one at a URL.
func (k *clientKeySets) makeRoom(but string) {
	for {
		bytes, oldest := 0, ""
		for where, kept := range k.kept {
			bytes += kept.bytes
			if where != but && (oldest == "" || kept.tried.Before(k.kept[oldest].tried)) {
				oldest = where
			}
		}
		if len(k.kept) <= maxSets && bytes <= maxSetsBytes || oldest == "" {
			return
		}
		delete(k.kept, oldest)
	}
}
