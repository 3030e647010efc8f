package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Providers are the authorization servers of other parties, with their state. It lives as long as
// the program: entries that a reload has not changed keep their keys and their answers. It may be
// used by several goroutines.
type Providers struct {
	// Untrusted fetches the keys of an issuer whose metadata names a URL on another host. That host
	// is not configured by the operator, so it must not reach private networks. If it is nil, the
	// other client is used. Set it before the first use.
	Untrusted *http.Client

	client *http.Client
	now    func() time.Time
	ctx    context.Context
	end    context.CancelFunc

	fetching fetches

	mu             sync.Mutex
	issuers        map[string]*issuer // by fingerprint; those in use
	introspections map[string]*introspection
	keys           *keyring // in force; nil before the first configuration
}

// NewProviders returns providers that send requests through client without following redirects; if
// client is nil, they have their own. Close it.
func NewProviders(client *http.Client) *Providers {
	if client == nil {
		client = &http.Client{}
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := &Providers{client: &own, now: time.Now}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Close cancels all fetches and waits for them. Tokens that need a fetch cannot be verified
// afterwards.
func (p *Providers) Close() {
	p.end()
	p.fetching.close()
}

// fetches are the running requests to authorization servers. None can start after close. The zero
// value is ready.
type fetches struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter counts a request, unless they are closed. The caller calls leave if it returns true.
func (f *fetches) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Add(1)
	}
	return !f.closed
}

func (f *fetches) leave() { f.running.Done() }

func (f *fetches) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
}

// Revoked names keys that earlier processes have seen revoked, so that the records of a rejected request say
// whose key it was. Call it before the first configuration.
func (p *Providers) Revoked(list []RevokedKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = newKeyring(nil, p.keys, p.now)
	p.keys.revoked = map[Hash]revokedKey{}
	for _, k := range list {
		p.keys.revoked[k.Hash] = revokedKey{k.Name, k.At}
	}
}

// keyring returns the Verifier of the keys of a configuration. It remembers the keys that were in the
// configuration before; nil Providers remember none.
func (p *Providers) keyring(list []Key) *keyring {
	if p == nil {
		return newKeyring(list, nil, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = newKeyring(list, p.keys, p.now)
	return p.keys
}

// tokens returns the Verifier of a section. It starts to fetch the keys of new issuers, and does
// not wait for them.
func (p *Providers) tokens(c *Config, keys *keyring, own Verifier) *tokens {
	users, _ := own.(Directory)
	t := &tokens{keys: keys, own: own, users: users, issuers: map[string]*issuer{}, cache: map[Hash]*cachedToken{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	issuers, introspections := map[string]*issuer{}, map[string]*introspection{}
	for n := range c.JWT {
		entry := fingerprint(&c.JWT[n])
		i := p.issuers[entry]
		if i == nil {
			i = newIssuer(&c.JWT[n], p)
			for _, before := range p.issuers { // the keys are the same even if the rest of the entry differs
				if before.keys.issuer == i.keys.issuer && before.keys.fixed == i.keys.fixed {
					i.keys = before.keys
				}
			}
			i.keys.renew()
		}
		issuers[entry], t.issuers[i.Issuer], t.order = i, i, append(t.order, i)
	}
	if c.Introspection != nil {
		entry := fingerprint(c.Introspection)
		if t.introspection = p.introspections[entry]; t.introspection == nil {
			t.introspection = newIntrospection(c.Introspection, p)
		}
		introspections[entry] = t.introspection
	}
	p.issuers, p.introspections = issuers, introspections
	return t
}

// fingerprint returns a fingerprint of a configuration entry.
func fingerprint(entry any) string {
	text, err := json.Marshal(entry)
	if err != nil {
		text = fmt.Appendf(nil, "%#v", entry) // entries can always be marshalled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ProviderStatus is the state of an authorization server.
type ProviderStatus struct {
	Issuer string `json:"issuer"`
	// Usable means that its keys are known, or that it answered the last introspection. It is also
	// false if nothing was needed of it yet.
	Usable bool   `json:"usable"`
	Err    string `json:"error,omitempty"`
}

// Status returns the state of each server, sorted by issuer. It does not block, but starts another
// attempt to reach servers that failed.
func (p *Providers) Status() []ProviderStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []ProviderStatus
	for _, i := range p.issuers {
		i.keys.renew()
		all = append(all, i.keys.status())
	}
	for _, i := range p.introspections {
		all = append(all, i.status())
	}
	slices.SortFunc(all, func(a, b ProviderStatus) int { return strings.Compare(a.Issuer, b.Issuer) })
	return all
}
