package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"junction/upstream/bounded"
)

// introspection asks an authorization server about tokens (RFC 7662), and caches its answers.
type introspection struct {
	claimRules
	entry  *Introspection
	p      *Providers
	places *semaphore.Weighted // limits concurrent queries
	// unknown limits the queries about tokens that were not valid before, since a stranger can
	// invent tokens: the other places stay free for tokens that were.
	unknown turns

	queries singleflight.Group // by hash

	mu      sync.Mutex
	valid   map[Hash]*answer // kept for as long as open streams may use it
	invalid map[Hash]*answer // apart, so that invented tokens remove no valid one
	err     error            // of the last query; nil if it was answered
	asked   bool
}

// answer is the cached answer about a token.
type answer struct {
	principal *Principal // nil if the token is invalid
	err       error
	asked     time.Time
	until     time.Time // end of the cache entry
	token     string    // to ask again; never logged
}

const (
	positiveKept = time.Minute
	negativeKept = 10 * time.Second
	// askedAgain is the age at which the token of an open stream is checked again, before its entry
	// expires.
	askedAgain = 40 * time.Second
	// outlasted is the age of an answer at which open streams end if the server cannot be reached.
	outlasted    = 5 * time.Minute
	maxValid     = 10_000
	maxInvalid   = 1000
	maxQuestions = 64
)

// newIntrospection returns the introspection of a validated configuration entry.
func newIntrospection(c *Introspection, p *Providers) *introspection {
	return &introspection{
		claimRules: newRules(c.TokenRules, fingerprint(c), p.now),
		entry:      c,
		p:          p,
		places:     semaphore.NewWeighted(maxQuestions),
	}
}

// verify returns the principal of a token, from the cache or from the server. from is the address that
// a query counts for.
func (i *introspection) verify(ctx context.Context, token string, hash Hash, from netip.Addr) (*Principal, error) {
	a := i.answer(hash)
	if a != nil && i.now().Before(a.until) {
		return a.principal, a.err
	}
	if len(token) > maxToken {
		return nil, errUnknownToken
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case asked := <-i.begin(token, hash, from):
		if asked.Err != nil {
			return nil, asked.Err
		}
		a = asked.Val.(*answer)
		return a.principal, a.err
	}
}

// answer returns the last known answer about a token, which may be too old to use; nil for none.
func (i *introspection) answer(hash Hash) *answer {
	i.mu.Lock()
	defer i.mu.Unlock()
	if a := i.valid[hash]; a != nil {
		return a
	}
	return i.invalid[hash]
}

// begin returns where the *answer about a token arrives. It starts a query unless one is running,
// which outlives its first caller, since others wait for it.
func (i *introspection) begin(token string, hash Hash, from netip.Addr) <-chan singleflight.Result {
	return i.queries.DoChan(string(hash[:]), func() (any, error) {
		if !i.p.fetching.enter() {
			return nil, &unavailableError{i.Issuer, context.Canceled} // shutting down
		}
		defer i.p.fetching.leave()
		return i.ask(token, hash, from)
	})
}

// maxToken is the largest token to ask about, in bytes.
const maxToken = 8 << 10

// ask queries the server. The error means that the query failed; the answer holds the server's
// decision. It waits for its turn, for queueTime at most.
func (i *introspection) ask(token string, hash Hash, from netip.Addr) (*answer, error) {
	if a := i.answer(hash); a == nil || a.principal == nil {
		leave, err := i.unknown.enter(i.p.ctx, from, i.now())
		if err != nil {
			return nil, &unavailableError{i.Issuer, err}
		}
		defer leave()
	}
	if err := i.acquire(); err != nil {
		return nil, &unavailableError{i.Issuer, err}
	}
	defer i.places.Release(1)
	ctx, cancel := context.WithTimeout(i.p.ctx, fetchTimeout)
	defer cancel()
	began := i.now()
	text, err := i.post(ctx, token)
	var c claims
	if err == nil && (json.Unmarshal(text, &c) != nil || c == nil) {
		err = errors.New("its introspection answer is not a JSON object")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = true
	if i.err = err; err != nil {
		return nil, &unavailableError{i.Issuer, err}
	}
	a := &answer{asked: began, until: began.Add(negativeKept)}
	if a.principal, a.err = i.judged(c, hash); a.err == nil {
		a.until, a.token = began.Add(positiveKept), token
		if end := a.principal.Expires; !end.IsZero() && end.Before(a.until) {
			a.until = end
		}
	}
	if a.principal == nil {
		delete(i.valid, hash)
		bounded.Put(&i.invalid, maxInvalid, hash, a, func(old *answer) bool { return !i.now().Before(old.until) })
	} else {
		i.unknown.learn(from, i.now())
		delete(i.invalid, hash)
		bounded.Put(&i.valid, maxValid, hash, a, i.outlived)
	}
	return a, nil
}

// acquire waits for a place among all queries.
func (i *introspection) acquire() error {
	ctx, cancel := context.WithTimeoutCause(i.p.ctx, queueTime, errTooManyQueries)
	defer cancel()
	if i.places.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// outlived reports whether a valid answer is too old for open streams, too.
func (i *introspection) outlived(a *answer) bool {
	now, end := i.now(), a.principal.Expires
	return !end.IsZero() && !now.Before(end) || now.After(a.asked.Add(outlasted))
}

func (i *introspection) post(ctx context.Context, token string) ([]byte, error) {
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.entry.Endpoint, strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	id, secret := url.QueryEscape(i.entry.ClientID), url.QueryEscape(i.entry.ClientSecret) // RFC 6749, section 2.3.1
	req.SetBasicAuth(id, secret)
	text, err := exchange(i.p.client, req)
	if err != nil {
		return nil, fmt.Errorf("introspection failed: %w", err)
	}
	return text, nil
}

var errInactive = fmt.Errorf("%w: its issuer says that it is not active", ErrInvalidToken)

// judged returns the principal of a token by the server's answer.
func (i *introspection) judged(c claims, hash Hash) (*Principal, error) {
	if string(c["active"]) != "true" {
		return nil, errInactive
	}
	if iss, err := c.text("iss"); err != nil || iss != "" && iss != i.Issuer {
		return nil, errIssuer
	}
	return i.principal(c, hash)
}

// still reports from the cache whether the token of a principal is valid, and starts another query
// in time. While the server cannot be reached, open streams go on for a while.
func (i *introspection) still(p *Principal) bool {
	a, now := i.answer(p.hash), i.now()
	switch {
	case !p.Expires.IsZero() && !now.Before(p.Expires), a == nil, a.principal == nil,
		now.After(a.asked.Add(outlasted)):
		return false
	case now.After(a.asked.Add(askedAgain)):
		i.begin(a.token, p.hash, p.Address)
	}
	return true
}

func (i *introspection) status() ProviderStatus {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := ProviderStatus{Issuer: i.Issuer, Usable: i.asked && i.err == nil}
	if i.err != nil {
		s.Err = i.err.Error()
	}
	return s
}
