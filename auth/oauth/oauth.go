// Package oauth signs users in to upstreams that require each user's own sign-in, and keeps and
// renews their tokens. The operator can also sign in for all users (Upstream.Shared).
//
//   - discover.go asks an upstream for a sign-in, and finds its authorization servers.
//   - metadata.go reads what an authorization server publishes; issuer.go compares issuers.
//   - prepare.go chooses one of them, and what to request there.
//   - endpoints.go decides which of its endpoints may be used together.
//   - client.go gets the client_id of this server there; expiry.go has the expiry of its secret.
//   - connect.go sends a user there, redeems the answer, and disconnects.
//   - flow.go signs in a person whose browser returns to a program on the same machine.
//   - login.go signs the operator in with a Flow, and stores the tokens.
//   - oauth.go returns the token for each call, and renews it.
//   - own.go gets the tokens that belong to Junction itself (client credentials).
//   - methods.go has the methods by which a client proves what it is; assertion.go signs as a client
//     with a key, and publishes the public keys.
//   - ask.go sends the requests.
//
// Servers differ from the specification, and from each other. What they may differ in is in
// auth/README.md; shapes_test.go has a server of each kind. Nothing is tried again after an error with
// less protection: a server could cause that error.
//
// The authorization server is named by the upstream, so it is untrusted: requests to it are
// restricted as in package fetch. The upstream's own origin is configured by the operator. Tokens
// of our own clients never reach this package, and each token is sent only to the upstream that it
// was issued for.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"junction/auth/fetch"
	"junction/auth/store"
	"junction/upstream/client"
	"junction/upstream/pace"
)

// Upstream is the configuration of an upstream that users sign in to.
type Upstream struct {
	URL                    string
	Scopes                 []string // to request; if empty, those that the upstream names
	ClientID, ClientSecret string   // at Issuer; if "", this server registers itself
	Issuer                 string   // the only authorization server to use; "" is the one that the upstream names
	Permitted              Pair     // the only endpoints to use; see Endpoints.Check
	Mode                   string   // auth.mode, for the lines of the configuration in errors
	Shared                 bool     // the operator signs in for everyone, with Login
	// Own states that Junction itself is the client and owner of the token (client credentials grant). It
	// needs ClientID, Issuer, Shared, and ClientSecret, KeyFile or Certificate.
	Own bool
	// KeyFile has the private key with which the client signs instead of sending a secret (private_key_jwt).
	// KeyID names it; "" is its thumbprint. ToEndpoint addresses the signed text to the token endpoint instead
	// of the issuer.
	KeyFile, KeyID string
	ToEndpoint     bool
	// Certificate is shown to the token endpoint instead of sending a secret (tls_client_auth); nil for none.
	Certificate Certificate
	Audience    string // sent in requests for an Own token; "" for none
	// OneOrigin states that all URLs of the authorization server must have one origin, because no
	// user confirms its hosts before a sign-in.
	OneOrigin bool
	// Resource is sent as resource indicator instead of the resource of the upstream; ResourceNone sends
	// none. It needs ClientID and Issuer: without an indicator, only the scopes bind a token.
	Resource string
	// Params are added to the authorization request. They replace none of its own parameters.
	Params map[string]string
	// Headers, Transport and Era are the proxy's settings for connections; see package upstream/client.
	Headers   map[string]string
	Transport client.Transport
	Era       client.Era
}

// Options configures New. Fetch and HTTP are required, and for everything except Flow and Renew also
// Store and URL.
type Options struct {
	Store *store.Store // New does not take ownership
	URL   string       // of this server, without a path
	Name  string       // of this server, as shown at authorization servers
	// Fetch sends requests to servers that an upstream names. HTTP sends those to the upstream's
	// own origin, which may be in a private network.
	Fetch *fetch.Fetcher
	HTTP  http.RoundTripper
	// Probe asks an upstream without a token; nil is client.Probe.
	Probe func(ctx context.Context, u Upstream) *client.Probed
	// Changed is called when a principal has connected or disconnected an upstream. It must not
	// block. It may be nil.
	Changed func(upstream, principal string)
	// Other returns the ClientSecret that an upstream with Own has now, after the authorization server has
	// rejected the client with sent. It may wait until the secret is read again. It may be nil.
	Other func(ctx context.Context, upstream, sent string) string
	Log   *slog.Logger     // nil discards
	Now   func() time.Time // nil is time.Now
}

// Client is the OAuth client for all users and upstreams. It may be used by several goroutines.
// Close it.
type Client struct {
	Options
	direct, guarded *http.Client
	flights         singleflight.Group // requests that concurrent callers share
	renewing        sync.WaitGroup

	mu        sync.Mutex
	upstreams map[string]Upstream       // replaced by Apply; guarded by mu
	refused   map[string]string         // why the last sign-in was refused, by upstream; guarded by mu
	notes     map[string]string         // what is unusual, for the operator, by upstream; guarded by mu
	compared  map[string]bool           // whether Notes has compared issuers, by upstream; guarded by mu
	cache     map[string]cachedMetadata // metadata by upstream and issuer; guarded by mu
	rejects   map[string]time.Time      // until when an issuer counts as one that refuses us; guarded by mu
	attempts  map[string]failure        // the last failed request for an Own token; guarded by mu
	figures   map[string]Figures        // by upstream; guarded by mu
	public    publicKeys                // of Keys; guarded by mu
	ahead     map[string]bool           // running early renewals of Own tokens; guarded by mu
	mute      map[string]time.Time      // of the first mute refusal, by upstream and principal; guarded by mu
}

const (
	answerTimeout = 10 * time.Second // for one answer of an authorization server
	renewTimeout  = 15 * time.Second // for the whole renewal of a token
	claimTime     = 20 * time.Second // of a claim: longer than a renewal, by more than clocks differ
)

// New returns a Client without upstreams.
func New(o Options) *Client {
	c := &Client{Options: o, cache: map[string]cachedMetadata{}, refused: map[string]string{},
		notes: map[string]string{}, compared: map[string]bool{},
		attempts: map[string]failure{}, figures: map[string]Figures{}, ahead: map[string]bool{},
		rejects: map[string]time.Time{}, mute: map[string]time.Time{}}
	if c.Probe == nil {
		c.Probe = c.probe
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.guarded = o.Fetch.Client()
	c.direct = &http.Client{
		Transport: o.HTTP, Timeout: answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close waits for running renewals: losing an answer could cost a user their connection. Do not
// call Token afterwards.
func (c *Client) Close() { c.renewing.Wait() }

// ApplyMode replaces the upstreams of a mode.
func (c *Client) ApplyMode(mode string, upstreams map[string]Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]Upstream{}
	for name, u := range c.upstreams {
		if u.Mode != mode {
			all[name] = u
		}
	}
	maps.Copy(all, upstreams)
	c.apply(all)
}

// Apply replaces the upstreams, by their names.
func (c *Client) Apply(upstreams map[string]Upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apply(upstreams)
}

// apply is Apply; c.mu is held.
func (c *Client) apply(upstreams map[string]Upstream) {
	if !reflect.DeepEqual(c.upstreams, upstreams) { // it decides which metadata are accepted
		c.cache = map[string]cachedMetadata{}
		clear(c.rejects)
		clear(c.attempts)
		c.public = publicKeys{}
	}
	c.upstreams = upstreams
	maps.DeleteFunc(c.figures, func(name string, _ Figures) bool { _, there := upstreams[name]; return !there })
	clear(c.refused) // the configuration may permit it now
	clear(c.notes)
	clear(c.compared)
}

// Refused returns why the last sign-in at an upstream was refused: the two hosts, and the line of
// the configuration that permits them. It is "" if the last sign-in was not refused.
func (c *Client) Refused(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[name]
}

// Notes returns what is unusual about the authorization server of an upstream, as the last sign-in has
// found it: sentences for the operator. It is "" if there is nothing. If the configuration has an
// issuer, the first call has it looked at, and a later call has the result. Do not call Notes after
// Close.
func (c *Client) Notes(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u, there := c.upstreams[name]; there && u.Issuer != "" && !c.compared[name] {
		c.compared[name] = true
		c.renewing.Go(func() { c.compare(name, u) })
	}
	return c.notes[name]
}

// compare notes whether an upstream names another issuer than the configuration, and whether the
// metadata of the configured one lack S256.
func (c *Client) compare(name string, u Upstream) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	at, err := url.Parse(u.URL)
	if err != nil {
		return
	}
	var found []string
	if where, err := resourcePlaces(name, at, ""); err == nil {
		if p, err := c.firstResource(ctx, u, where); err == nil {
			found = append(found, p.differs(name, u))
		}
	}
	if s, err := c.discoverServer(ctx, u, u.Issuer); err == nil {
		found = append(found, s.unlisted())
	}
	text := strings.Join(slices.DeleteFunc(found, func(s string) bool { return s == "" }), "; ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != "" && c.notes[name] == "" && reflect.DeepEqual(c.upstreams[name], u) {
		c.notes[name] = text
	}
}

// Upstreams returns the sorted names of the upstreams that users sign in to.
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

// Upstream returns the upstream of a name, and whether there is one.
func (c *Client) Upstream(name string) (Upstream, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.upstreams[name]
	return u, ok
}

var (
	// ErrNotConnected means that the user has not connected the upstream.
	ErrNotConnected = errors.New("the upstream is not connected")
	// ErrBroken means that the user's connection no longer works and must be renewed by them.
	ErrBroken = errors.New("the upstream must be connected again")
)

// renewEarly is how long before its expiry a token is renewed, unless its lifetime is shorter than
// twice that.
const renewEarly = time.Minute

// fresh reports whether the token of a connection need not be renewed yet.
func (c *Client) fresh(k store.Connection) bool {
	return k.Expires.IsZero() || c.Now().Add(min(renewEarly, k.Expires.Sub(k.Given)/2)).Before(k.Expires)
}

// current reports whether the token of a connection has not expired.
func (c *Client) current(k store.Connection) bool {
	return k.Expires.IsZero() || c.Now().Before(k.Expires)
}

// Token returns the access token of a principal for an upstream. refused are the tokens that the
// upstream has answered with 401 during one request: the first one is renewed, and a second one
// breaks the connection. A token that cannot be renewed is returned again. ErrNotConnected or
// ErrBroken means that the user must act; any other error changes nothing.
func (c *Client) Token(ctx context.Context, upstream, principal string, refused ...string) (string, error) {
	u, ok := c.Upstream(upstream)
	if !ok {
		return "", ErrNotConnected
	}
	switch {
	case u.Own != (principal == Own): // the caller has another configuration
		return "", ErrNotConnected
	case u.Own:
		return c.ownToken(ctx, upstream, u, refused)
	}
	k, err := c.connection(ctx, upstream, principal)
	c.noteExpiry(upstream, u, k.Expires)
	switch {
	case err != nil:
		return "", err
	// the configured URL has changed: the tokens of the old one must not go to the new one
	case !covers(k.Resource, u.URL):
		return "", ErrNotConnected
	case slices.Contains(refused, k.Access) && len(refused) > 1:
		c.Log.Warn("the upstream rejected a token that was just renewed", "upstream", upstream, "principal", principal)
		return "", c.breakOff(ctx, k)
	case !slices.Contains(refused, k.Access) && c.fresh(k):
		return k.Access, nil
	case k.Refresh == "" && c.current(k): // one refusal may concern the request, not the token
		return k.Access, nil
	}
	renewed, err := c.renew(ctx, u, k)
	if err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrNotConnected) &&
		!slices.Contains(refused, k.Access) && c.Now().Before(k.Expires) {
		return k.Access, nil // not expired yet
	}
	return renewed, err
}

// connection returns a connection that is not broken.
func (c *Client) connection(ctx context.Context, upstream, principal string) (store.Connection, error) {
	k, err := c.Store.Connection(ctx, upstream, principal)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && k.Issuer == store.KeyIssuer:
		return store.Connection{}, ErrNotConnected
	case err == nil && k.Broken:
		return k, ErrBroken
	}
	return k, err
}

// breakOff marks a connection as broken, and returns ErrBroken.
func (c *Client) breakOff(ctx context.Context, k store.Connection) error {
	if err := c.Store.BreakConnection(ctx, k); err != nil {
		return err
	}
	return ErrBroken
}

// renew returns a new token in place of k's. Concurrent callers share one renewal, and replicas
// coordinate by a claim: using a refresh token twice could cost a user their connection. The
// renewal continues if its caller leaves.
func (c *Client) renew(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	type outcome struct {
		token string
		err   error
	}
	result := make(chan outcome, 1)
	c.renewing.Go(func() {
		token, err, _ := c.flights.Do("renew "+k.Upstream+" "+k.Principal+" "+k.Access, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
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

// renewOnce renews a connection, or waits for another replica to do so.
func (c *Client) renewOnce(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	for {
		if u.Own { // a caller may have come here while the last request failed
			if err := c.paused(k.Upstream); err != nil {
				return "", err
			}
		}
		switch err := c.Store.ClaimConnection(ctx, k, claimTime); {
		case err == nil:
			token, err := c.refresh(ctx, u, k)
			c.count(k.Upstream, err)
			return token, err
		case errors.Is(err, store.ErrUsed):
			if !pace.Sleep(ctx, 100*time.Millisecond, nil) {
				return "", context.Cause(ctx)
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

// refresh renews a connection that this process has claimed.
func (c *Client) refresh(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	// The answer may have replaced the refresh token, so it is stored even if ctx ends.
	keep, done := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer done()
	if u.Own {
		return c.grant(keep, u, k)
	}
	if k.Refresh == "" {
		return "", c.breakOff(keep, k)
	}
	t, err := c.exchange(ctx, u, k, u.indicator(k.Resource), url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {k.Refresh}})
	no, refused := errors.AsType[*errorAnswer](err)
	switch {
	case refused && c.secretEnded(keep, u, k): // asked nevertheless, since some servers do not enforce it
		c.Log.Info("a user must connect an upstream again, because the client secret has expired",
			"upstream", k.Upstream, "principal", k.Principal, "error", err)
		return "", c.breakOff(keep, k)
	case errors.Is(err, errOtherClient), errors.Is(err, errMoved), refused && no.endsGrant():
		c.Log.Info("a user must connect an upstream again", "upstream", k.Upstream, "principal", k.Principal,
			"error", err)
		return "", c.breakOff(keep, k)
	case refused && no.code == "invalid_client" && c.forgetClient(keep, u, k) == nil,
		refused && no.mute() && c.insists(k):
		return "", c.breakOff(keep, k)
	case err != nil:
		if failed := c.Store.ReleaseConnection(keep, k); failed != nil {
			c.Log.Debug("cannot release the claim on a connection", "error", failed)
		}
		text := ""
		if refused {
			text = u.hint(k.Upstream, no.code)
		}
		return "", fmt.Errorf("renew the token at %s: %w%s", k.Issuer, err, text)
	}
	c.mu.Lock()
	delete(c.mute, k.Upstream+" "+k.Principal)
	c.mu.Unlock()
	t.put(&k, c.Now())
	// the user has reconnected in the meantime: revoke the renewed tokens, which are not stored
	if err := c.Store.RenewConnection(keep, k); errors.Is(err, store.ErrNotFound) {
		if err := c.revoke(keep, u, k); err != nil {
			c.Log.Debug("cannot revoke unused tokens", "upstream", k.Upstream, "error", err)
		}
		now, err := c.connection(keep, k.Upstream, k.Principal)
		return now.Access, err
	} else if err != nil {
		return "", err
	}
	return k.Access, nil
}

// muteTime is how long an authorization server must refuse a renewal without an error code.
const muteTime = 30 * time.Second

// insists reports whether an authorization server that refuses the renewal of a connection without an
// error code has done so before, for a while. Some servers refuse an ended refresh token so, and a
// server in front of others refuses so for a moment.
func (c *Client) insists(k store.Connection) bool {
	key := k.Upstream + " " + k.Principal
	c.mu.Lock()
	defer c.mu.Unlock()
	first, before := c.mute[key]
	if !before {
		if len(c.mute) >= mostRejects {
			clear(c.mute)
		}
		c.mute[key] = c.Now()
		return false
	}
	if c.Now().Before(first.Add(muteTime)) {
		return false
	}
	delete(c.mute, key)
	return true
}
