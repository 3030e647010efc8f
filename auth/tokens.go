package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// tokens is a Verifier that finds out by the look of a token who knows it. It is immutable but for what it remembers, and is replaced at a reload.
type tokens struct {
	keys          Verifier // jct_key_; nil for none
	own           Verifier // jct_at_; nil for none
	issuers       map[string]*issuer
	order         []*issuer      // as in the file
	introspection *introspection // nil for none

	mu   sync.RWMutex
	seen map[Hash]*seen
}

// seen is a token that was verified, and stays so for as long as its issuer has the key that has signed it.
type seen struct {
	principal *Principal
	issuer    *issuer
}

func (s *seen) good() bool { return s.issuer.good(s.principal) }

// good reports whether a principal that was verified would be so again.
func (i *issuer) good(p *Principal) bool { return i.now().Before(p.Expires) && i.keys.has(p.signedBy) }

// maxSeen bounds the tokens that are remembered; others are verified again.
const maxSeen = 10_000

var (
	errUnknownToken = fmt.Errorf("%w: nobody knows it here", ErrInvalidToken)
	errIssuer       = fmt.Errorf("%w: it comes from an issuer whose tokens this server does not take", ErrInvalidToken)
)

const ownPrefix = tokenPrefix + "at_"

// Verify is Verifier's.
func (t *tokens) Verify(ctx context.Context, token string, from netip.Addr) (*Principal, error) {
	switch {
	case strings.HasPrefix(token, keyPrefix):
		if t.keys == nil {
			return nil, errUnknownKey
		}
		return t.keys.Verify(ctx, token, from)
	case strings.HasPrefix(token, ownPrefix) && t.own != nil:
		return t.own.Verify(ctx, token, from)
	case strings.HasPrefix(token, tokenPrefix):
		return nil, errUnknownToken
	}
	p, err := t.verify(ctx, token, from)
	if err != nil || p.Address == from {
		return p, err
	}
	copied := *p
	copied.Address = from
	return &copied, nil
}

// verify returns the principal of a token of somebody else's, as of some address.
func (t *tokens) verify(ctx context.Context, token string, from netip.Addr) (*Principal, error) {
	var short [2 << 10]byte // most tokens fit, and need no memory of their own
	hash := Hash(sha256.Sum256(append(short[:0], token...)))
	if p := t.remembered(hash); p != nil {
		return p, nil
	}
	iss, signed := issuerOf(token)
	switch i := t.issuers[iss]; {
	case signed && i != nil:
		p, err := i.verify(ctx, token, hash)
		if err == nil {
			p.Address = from // most come from there again
			t.remember(hash, &seen{p, i})
		}
		return p, err
	case t.introspection != nil:
		return t.introspection.verify(ctx, token, hash)
	case signed:
		return nil, errIssuer
	}
	return nil, errUnknownToken
}

func (t *tokens) remembered(hash Hash) *Principal {
	t.mu.RLock()
	s := t.seen[hash]
	t.mu.RUnlock()
	if s == nil || !s.good() {
		return nil
	}
	s.issuer.keys.renew()
	return s.principal
}

func (t *tokens) remember(hash Hash, s *seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, old := range t.seen { // a few at random are enough
		if len(t.seen) < maxSeen && old.good() {
			break
		}
		delete(t.seen, h)
	}
	t.seen[hash] = s
}

// Still reports whether what a principal was verified by still stands in the file, and whether it is not over: neither at its time, nor because the key that has
// signed it was taken back. Of a token that must be asked about it has that done again in time.
func (t *tokens) Still(p *Principal) bool {
	if p.Kind == KindKey {
		keeper, ok := t.keys.(interface{ Still(*Principal) bool })
		return ok && keeper.Still(p)
	}
	if p.source == "" {
		keeper, ok := t.own.(interface{ Still(*Principal) bool })
		return ok && keeper.Still(p)
	}
	if i := t.issuers[p.Issuer]; i != nil && i.print == p.source {
		i.keys.renew()
		return i.good(p)
	}
	return t.introspection != nil && t.introspection.print == p.source && t.introspection.still(p)
}

// servers returns the authorization servers, ours first.
func (t *tokens) servers(ours string) []string {
	var all []string
	if t.own != nil {
		all = append(all, ours)
	}
	for _, i := range t.order {
		all = append(all, i.issuer)
	}
	if i := t.introspection; i != nil && !slices.Contains(all, i.issuer) {
		all = append(all, i.issuer)
	}
	return all
}

// scopes returns those that are needed whatever server a client signs in at. What only one of them wants is said when a token lacks it.
func (t *tokens) scopes() []string {
	var needed [][]string
	if t.own != nil {
		needed = append(needed, []string{ownScope})
	}
	for _, i := range t.order {
		needed = append(needed, i.requiredScopes)
	}
	if t.introspection != nil {
		needed = append(needed, t.introspection.requiredScopes)
	}
	all := slices.Clone(needed[0])
	for _, other := range needed[1:] {
		all = slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(other, s) })
	}
	return all
}

// ownScope is that of the tokens that we hand out.
const ownScope = "mcp"

// Providers are the authorization servers of others, and what is known of them. It lives as long as the program: an entry of the file that a reload has not changed
// keeps its keys and its answers. It may be used by several goroutines at once.
type Providers struct {
	// Strangers gets the keys of an issuer whose metadata says that they are on another host than its own: nobody but the issuer has named that. Nil is the client
	// that gets the rest. It is not to be changed after the first use.
	Strangers *http.Client

	client *http.Client
	log    *slog.Logger
	now    func() time.Time
	ctx    context.Context
	end    context.CancelFunc

	fetching fetches

	mu             sync.Mutex
	issuers        map[string]*issuer // by print; those in force
	introspections map[string]*introspection
}

// NewProviders returns providers that are asked through client, whose redirects are not followed; nil is one of their own. log may be nil. Close ends what they do in
// the background.
func NewProviders(client *http.Client, log *slog.Logger) *Providers {
	if client == nil {
		client = &http.Client{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := &Providers{client: &own, log: log, now: time.Now}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends what is in progress, and returns when it has ended. Tokens of which nothing is known yet cannot be verified any more.
func (p *Providers) Close() {
	p.end()
	p.fetching.close()
}

// fetches are those in progress; no other begins once they are closed. The zero value has none.
type fetches struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// start runs one, unless they are closed.
func (f *fetches) start(fetch func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.running.Go(fetch)
	}
	return !f.closed
}

func (f *fetches) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.running.Wait()
}

// tokens returns the Verifier of a section. The keys of issuers that are new are fetched at once, and nobody waits for them.
func (p *Providers) tokens(c *Config, own Verifier) *tokens {
	t := &tokens{own: own, issuers: map[string]*issuer{}, seen: map[Hash]*seen{}}
	if len(c.APIKeys) > 0 {
		t.keys = Keys(c.APIKeys, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	issuers, introspections := map[string]*issuer{}, map[string]*introspection{}
	for n := range c.JWT {
		entry := printOf(&c.JWT[n])
		i := p.issuers[entry]
		if i == nil {
			i = newIssuer(&c.JWT[n], p)
			for _, before := range p.issuers { // the keys are the same, whatever else of the entry is not
				if before.keys.issuer == i.keys.issuer && before.keys.fixed == i.keys.fixed {
					i.keys = before.keys
				}
			}
			i.keys.renew()
		}
		issuers[entry], t.issuers[i.issuer], t.order = i, i, append(t.order, i)
	}
	if c.Introspection != nil {
		entry := printOf(c.Introspection)
		if t.introspection = p.introspections[entry]; t.introspection == nil {
			t.introspection = newIntrospection(c.Introspection, p)
		}
		introspections[entry] = t.introspection
	}
	p.issuers, p.introspections = issuers, introspections
	return t
}

// printOf tells an entry of the file from others, and from itself after a change.
func printOf(entry any) string {
	text, err := json.Marshal(entry)
	if err != nil {
		text = fmt.Appendf(nil, "%#v", entry) // texts, numbers and lists can always be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ProviderStatus is what there is to say of an authorization server.
type ProviderStatus struct {
	Issuer string
	Usable bool // there are keys to verify its tokens with, or it has answered when it was last asked
	Err    string
}

// Status returns what there is to say of each, in the order of their issuers. It does not wait for anything, but has one that could not be reached tried again.
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

func (k *keySet) status() ProviderStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := ProviderStatus{Issuer: k.issuer, Usable: k.current.Load() != nil}
	if k.err != nil {
		s.Err = k.err.(*unavailableError).err.Error()
	}
	return s
}
