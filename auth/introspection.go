package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

	queries singleflight.Group // by hash

	mu      sync.Mutex
	answers map[Hash]*answer
	err     error // of the last query; nil if it was answered
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
	askedAgain   = 40 * time.Second
	maxAnswers   = 10_000
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

// verify returns the principal of a token, from the cache or from the server.
func (i *introspection) verify(ctx context.Context, token string, hash Hash) (*Principal, error) {
	i.mu.Lock()
	a := i.answers[hash]
	i.mu.Unlock()
	if a != nil && i.now().Before(a.until) {
		return a.principal, a.err
	}
	if len(token) > maxToken {
		return nil, errUnknownToken
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case asked := <-i.begin(token, hash):
		if asked.Err != nil {
			return nil, asked.Err
		}
		a = asked.Val.(*answer)
		return a.principal, a.err
	}
}

// begin returns where the *answer about a token arrives. It starts a query unless one is running,
// which outlives its first caller, since others wait for it.
func (i *introspection) begin(token string, hash Hash) <-chan singleflight.Result {
	return i.queries.DoChan(string(hash[:]), func() (any, error) {
		if !i.p.fetching.enter() {
			return nil, &unavailableError{i.Issuer, context.Canceled} // shutting down
		}
		defer i.p.fetching.leave()
		return i.ask(token, hash)
	})
}

// maxToken is the largest token to ask about, in bytes.
const maxToken = 8 << 10

// ask queries the server. The error means that the query failed; the answer holds the server's
// decision.
func (i *introspection) ask(token string, hash Hash) (*answer, error) {
	ctx, cancel := context.WithTimeout(i.p.ctx, fetchTimeout)
	defer cancel()
	if !i.places.TryAcquire(1) {
		return nil, &unavailableError{i.Issuer, errors.New("too many concurrent queries")}
	}
	defer i.places.Release(1)
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
	bounded.Put(&i.answers, maxAnswers, hash, a, func(old *answer) bool { return !i.now().Before(old.until) })
	return a, nil
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
	i.mu.Lock()
	a := i.answers[p.hash]
	i.mu.Unlock()
	now := i.now()
	switch {
	case !p.Expires.IsZero() && !now.Before(p.Expires), a == nil, a.principal == nil,
		now.After(a.asked.Add(5 * positiveKept)):
		return false
	case now.After(a.asked.Add(askedAgain)):
		i.begin(a.token, p.hash)
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
