package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Providers are the authorization servers of others, and what is known of them. It lives as long as
// the program: an entry of the file that a reload has not changed keeps its keys and its answers.
// It may be used by several goroutines at once.
type Providers struct {
	// Strangers gets the keys of an issuer whose metadata says that they are on another host than
	// its own: nobody but the issuer has named that. Nil is the client that gets the rest. It is
	// not to be changed after the first use.
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

// NewProviders returns providers that are asked through client, whose redirects are not followed;
// nil is one of their own. log may be nil. Close ends what they do in the background.
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

// Close ends what is in progress, and returns when it has ended. Tokens of which nothing is known
// yet cannot be verified any more.
func (p *Providers) Close() {
	p.end()
	p.fetching.close()
}

// fetches are what is being asked of authorization servers; nothing else is once they are closed.
// The zero value has none.
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

// tokens returns the Verifier of a section. The keys of issuers that are new are fetched at once,
// and nobody waits for them.
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

// Status returns what there is to say of each, in the order of their issuers. It does not wait for
// anything, but has one that could not be reached tried again.
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
