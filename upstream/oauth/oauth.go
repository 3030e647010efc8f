// Package oauth signs people in to upstreams that want each of them to sign in, and keeps what they
// are given there.
//
// By file: discover.go finds the authorization server of an upstream; client.go says who we are to
// it; connect.go sends a person there and takes the answer, and takes a connection back; oauth.go
// has the token for each call, and renews it; ask.go is how authorization servers are asked.
//
// What an upstream says of its authorization server is a stranger's word: it is fetched as package
// fetch does. What is at the upstream's own origin the operator has named. The tokens that our own
// clients have never come here, and the tokens that are here go to the upstream that they are for
// alone.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"junction/auth/fetch"
	"junction/auth/store"
)

// Upstream is one that people sign in to, as the file has it.
type Upstream struct {
	URL                    string
	Scopes                 []string // to ask for; none means what the upstream says
	ClientID, ClientSecret string   // that its authorization server knows us by; "" means that we find a way ourselves
	Shared                 bool     // the operator signs in for everyone, with Login
}

// Options is what a Client is made of. Store, URL, Fetch and HTTP are required.
type Options struct {
	Store *store.Store // stays the caller's
	URL   string       // ours, without a path
	Name  string       // ours, as people read it at an authorization server
	// Fetch asks whom an upstream names; HTTP what is at the upstream's own origin, which the
	// operator has named, so that it may be in a private network.
	Fetch *fetch.Fetcher
	HTTP  http.RoundTripper
	// Changed is called when somebody has connected or disconnected an upstream. It must not block.
	// It may be nil.
	Changed func(upstream, principal string)
	Log     *slog.Logger     // nil discards
	Now     func() time.Time // nil is time.Now
}

// Client is our side of the sign-ins of all people at all upstreams. It may be used by several
// goroutines at once. Close it.
type Client struct {
	Options
	own, strangers *http.Client
	once           singleflight.Group // of what is to be asked by one of us, however many need it
	renewing       sync.WaitGroup

	mu        sync.Mutex
	upstreams map[string]Upstream // replaced by Apply; guarded by mu
	known     map[string]*finding // what is at an upstream and at an issuer, by both; guarded by mu
}

const (
	patience = 10 * time.Second // for one answer of an authorization server
	renewal  = 15 * time.Second // for all that renews a token
	claim    = 20 * time.Second // for which nobody else renews it: longer than that, by more than clocks differ
)

// New returns a Client for no upstream yet.
func New(o Options) *Client {
	c := &Client{Options: o, known: map[string]*finding{}}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.strangers = o.Fetch.Client()
	c.own = &http.Client{
		Transport: o.HTTP, Timeout: patience, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return c
}

// Close waits for tokens that are being renewed: an answer that nobody stores would cost a person
// their connection. Nobody calls Token any more.
func (c *Client) Close() { c.renewing.Wait() }

// Apply replaces the upstreams, by their names.
func (c *Client) Apply(upstreams map[string]Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.EqualFunc(c.upstreams, upstreams, func(a, b Upstream) bool { return a.URL == b.URL }) {
		c.known = map[string]*finding{}
	}
	c.upstreams = upstreams
}

// Upstreams returns the names of those that people sign in to, sorted.
func (c *Client) Upstreams() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name, u := range c.upstreams {
		if !u.Shared {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *Client) upstream(name string) (Upstream, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.upstreams[name]
	return u, ok
}

var (
	// ErrNotConnected means that the person has not connected the upstream.
	ErrNotConnected = errors.New("the upstream is not connected")
	// ErrBroken means that they have, and that it is not taken any more.
	ErrBroken = errors.New("the upstream has to be connected again")
)

// early is how long before its end a token is renewed, if it does not live for less than twice
// that.
const early = time.Minute

// fresh reports whether a connection's token is good for a while yet.
func (c *Client) fresh(k store.Connection) bool {
	return k.Expires.IsZero() || c.Now().Add(min(early, k.Expires.Sub(k.Given)/2)).Before(k.Expires)
}

// Token returns the access token of a principal for an upstream. refused are those that the
// upstream has answered 401 to, in the course of one request: another one is got in place of the
// first; if that one is refused too, the connection is broken. The error is ErrNotConnected or
// ErrBroken if the person has to do something; with any other one nothing has changed.
func (c *Client) Token(ctx context.Context, upstream, principal string, refused ...string) (string, error) {
	u, ok := c.upstream(upstream)
	if !ok {
		return "", ErrNotConnected
	}
	k, err := c.connection(ctx, upstream, principal)
	switch {
	case err != nil:
		return "", err
	// the file has another URL by now: what was given for the old one is none of the new one's
	// business
	case !covers(k.Resource, u.URL):
		return "", ErrNotConnected
	case slices.Contains(refused, k.Access) && len(refused) > 1:
		c.Log.Warn("an upstream refuses a token that was got just now", "upstream", upstream, "principal", principal)
		return "", c.breakOff(ctx, k)
	case !slices.Contains(refused, k.Access) && c.fresh(k):
		return k.Access, nil
	}
	renewed, err := c.renew(ctx, u, k)
	if err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrNotConnected) &&
		!slices.Contains(refused, k.Access) && c.Now().Before(k.Expires) {
		return k.Access, nil // it is good for a moment yet
	}
	return renewed, err
}

// connection returns a connection that can be used.
func (c *Client) connection(ctx context.Context, upstream, principal string) (store.Connection, error) {
	k, err := c.Store.Connection(ctx, upstream, principal)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return k, ErrNotConnected
	case err == nil && k.Broken:
		return k, ErrBroken
	}
	return k, err
}

// breakOff notes that a connection is of no use any more.
func (c *Client) breakOff(ctx context.Context, k store.Connection) error {
	if err := c.Store.BreakConnection(ctx, k); err != nil {
		return err
	}
	return ErrBroken
}

// renew returns another token in place of that of k. All who need it here wait for one, and all
// replicas for the one of them that has claimed it: a refresh token that is used twice may cost a
// person their connection. It goes on when its caller does not wait any more.
func (c *Client) renew(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	type outcome struct {
		token string
		err   error
	}
	result := make(chan outcome, 1)
	c.renewing.Go(func() {
		token, err, _ := c.once.Do("renew "+k.Upstream+" "+k.Principal+" "+k.Access, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewal)
			defer cancel()
			return c.renewOnce(ctx, u, k)
		})
		text, _ := token.(string)
		result <- outcome{text, err}
	})
	select {
	case r := <-result:
		return r.token, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// renewOnce renews a connection, or waits until another replica has.
func (c *Client) renewOnce(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	for {
		switch err := c.Store.ClaimConnection(ctx, k, claim); {
		case err == nil:
			return c.refresh(ctx, u, k)
		case errors.Is(err, store.ErrUsed):
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return "", err
			}
		case !errors.Is(err, store.ErrNotFound):
			return "", err
		}
		now, err := c.connection(ctx, k.Upstream, k.Principal)
		if err != nil || now.Access != k.Access {
			return now.Access, err
		}
		k = now
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refresh renews a connection that is claimed.
func (c *Client) refresh(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	// The answer may have used the refresh token up, so that it is stored whatever time is left.
	keep, done := context.WithTimeout(context.WithoutCancel(ctx), renewal)
	defer done()
	if k.Refresh == "" {
		return "", c.breakOff(keep, k)
	}
	token, err := c.exchange(ctx, u, k, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {k.Refresh}})
	no, refused := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, errOtherClient), refused && no.code == "invalid_grant":
		c.Log.Info("a person has to connect an upstream again", "upstream", k.Upstream, "principal", k.Principal,
			"error", err)
		return "", c.breakOff(keep, k)
	case refused && no.code == "invalid_client" && c.forgetClient(keep, u, k) == nil:
		return "", c.breakOff(keep, k)
	case err != nil:
		if failed := c.Store.ReleaseConnection(keep, k); failed != nil {
			c.Log.Debug("a claim was not given back", "error", failed)
		}
		return "", fmt.Errorf("renew at %s: %w", k.Issuer, err)
	}
	k.Access, k.Expires = token.Access, token.expires(c.Now())
	if token.Refresh != "" { // one that is not replaced stays good (RFC 6749, section 6)
		k.Refresh = token.Refresh
	}
	if token.Scope != "" {
		k.Scope = token.Scope
	}
	// the person was quicker: nobody has what was got just now
	if err := c.Store.RenewConnection(keep, k); errors.Is(err, store.ErrNotFound) {
		if err := c.revoke(keep, u, k); err != nil {
			c.Log.Debug("tokens that nobody has could not be taken back", "upstream", k.Upstream, "error", err)
		}
		now, err := c.connection(keep, k.Upstream, k.Principal)
		return now.Access, err
	} else if err != nil {
		return "", err
	}
	return k.Access, nil
}
