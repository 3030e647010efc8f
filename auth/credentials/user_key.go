package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth"
	"junction/auth/store"
	"junction/upstream"
	"junction/upstream/bounded"
	"junction/upstream/transport"
)

// UserKeys is the source of mode user_key: each caller has a key of their own for the server. A user gives it
// on a page of Junction; the operator sets it for callers without pages, such as API keys. A key is stored for
// one principal, one upstream and the origin of its URL, or its command.
type UserKeys struct {
	store   func() *store.Store
	page    func(upstream, user string, scopes ...string) string
	changed func(upstream, principal string)
	now     func() time.Time

	mu      sync.Mutex
	entries map[string]upstream.Config // guarded by mu
	refused map[string]refusedKey      // by upstream and principal; guarded by mu
}

// KeyMode is the mode of these keys.
const KeyMode = upstream.AuthUserKey

// refusedKey is a key that the server does not accept.
type refusedKey struct {
	sum   [sha256.Size]byte
	until time.Time // when it is tried again: the server may have been wrong
}

const (
	refusedKeyPause = time.Minute
	mostRefusedKeys = 10_000
	maxKey          = 4 << 10 // bytes
)

func newUserKey(o Options) Source {
	s := &UserKeys{store: o.Store, page: o.ConnectURL, changed: o.Changed, now: time.Now}
	if s.store == nil {
		s.store = func() *store.Store { return nil }
	}
	return s
}

// UserKeys returns the source of the keys that users give.
func (s *Sources) UserKeys() *UserKeys { return s.byMode[upstream.AuthUserKey].(*UserKeys) }

// Use implements Source.
func (s *UserKeys) Use(entries map[string]upstream.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = entries
}

// Close implements Source.
func (s *UserKeys) Close() {}

// State implements Source: each caller has a state of their own.
func (s *UserKeys) State(context.Context, upstream.Caller) (state upstream.CredentialState) {
	return state
}

// Apply implements Source. After the server has refused a key, the caller gets the way to give another one, and
// for a minute no request has the refused key.
func (s *UserKeys) Apply(ctx context.Context, c upstream.Caller, refused ...string) (
	got upstream.Credential, err error,
) {
	db := s.store()
	if db == nil {
		return got, upstream.ErrNoSource
	}
	origin := s.origin(c.Upstream)
	k, err := db.Connection(ctx, c.Upstream, c.User)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return got, err
	case err != nil, origin == "", k.Issuer != store.KeyIssuer, k.Resource != origin, k.Access == "":
		return got, s.need(c, false)
	case slices.Contains(refused, k.Access) && len(refused) > 1:
		s.refuse(c, k.Access)
		return got, s.need(c, true)
	case s.isRefused(c, k.Access):
		return got, s.need(c, true)
	}
	got.Token = k.Access
	return got, nil
}

// need returns the error that has the way to give a key.
func (s *UserKeys) need(c upstream.Caller, again bool) error {
	need := &upstream.SignInError{Upstream: c.Upstream, Mode: c.Mode, Again: again}
	if s.page != nil && auth.IsUserID(c.User) {
		need.URL = s.page(c.Upstream, c.User)
	}
	return need
}

func (s *UserKeys) refuse(c upstream.Caller, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bounded.Put(&s.refused, mostRefusedKeys, c.Upstream+" "+c.User,
		refusedKey{sha256.Sum256([]byte(key)), s.now().Add(refusedKeyPause)},
		func(r refusedKey) bool { return s.now().After(r.until) })
}

func (s *UserKeys) isRefused(c upstream.Caller, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, some := s.refused[c.Upstream+" "+c.User]
	return some && s.now().Before(r.until) && r.sum == sha256.Sum256([]byte(key))
}

// origin returns KeyOrigin of an upstream.
func (s *UserKeys) origin(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return KeyOrigin(s.entries[name])
}

// KeyOrigin returns what the keys for an entry belong to: the origin of its URL, or its command with the arguments
// and the folder, which cannot be read in it; "" if the entry has no such keys. store.KeyPlace makes it readable.
func KeyOrigin(c upstream.Config) string {
	if !c.Auth.Mode.Row().Given || c.Off() {
		return ""
	}
	if c.Kind().Process {
		words, err := json.Marshal([]any{c.Command, c.Dir})
		if err != nil || c.Program() == "" {
			return ""
		}
		sum := sha256.Sum256(words)
		return store.CommandKey(c.Program(), hex.EncodeToString(sum[:16]))
	}
	at, err := url.Parse(c.URL)
	if err != nil || at.Host == "" {
		return ""
	}
	return strings.ToLower(at.Scheme + "://" + at.Host)
}

// Upstreams returns the sorted names of the upstreams for which users give keys.
func (s *UserKeys) Upstreams() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.entries))
}

// Describe returns what gets a key for an upstream (KeyOrigin), and in which header, or in which variables of a
// command.
func (s *UserKeys) Describe(name string) (origin, carrier string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.entries[name]
	if entry.Kind().Process {
		return KeyOrigin(entry), strings.Join(entry.KeyVariables(), ", ")
	}
	return KeyOrigin(entry), entry.Auth.Carrier().Name()
}

// Give stores the key of a principal, in place of an earlier one. origin is where the person was told that the
// key is sent. The error has a method Public if it has a text for that person.
func (s *UserKeys) Give(ctx context.Context, name, origin, key, user, principal string) error {
	db := s.store()
	if db == nil {
		return upstream.ErrNoSource
	}
	if now := s.origin(name); origin == "" || now != origin {
		return &keyError{"what gets the key for " + name + " has changed; open the page again"}
	}
	key, err := CheckKey(key)
	if err != nil {
		return err
	}
	if err := db.PutConnection(ctx, Connection(name, origin, key, user, principal)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.refused, name+" "+principal)
	s.mu.Unlock()
	s.tell(name, principal)
	return nil
}

// Forget deletes the key of a user. The error is store.ErrNotFound if there is none.
func (s *UserKeys) Forget(ctx context.Context, name, user string) error {
	db := s.store()
	if db == nil {
		return upstream.ErrNoSource
	}
	k, err := db.DeleteConnection(ctx, name, user)
	if err == nil {
		s.tell(name, k.Principal)
	}
	return err
}

func (s *UserKeys) tell(name, principal string) {
	if s.changed != nil {
		s.changed(name, principal)
	}
}

// Connection returns the row of a checked key.
func Connection(name, origin, key, user, principal string) store.Connection {
	return store.Connection{Upstream: name, User: user, Principal: principal, Access: key, Issuer: store.KeyIssuer,
		Resource: origin}
}

// CheckKey returns a pasted key without spaces around it. The error is for the person who has pasted it, and
// has nothing of the key.
func CheckKey(text string) (string, error) {
	key := strings.TrimSpace(text)
	switch {
	case key == "":
		return "", &keyError{"there is no key in it"}
	case len(key) > maxKey:
		return "", &keyError{fmt.Sprintf("a key has at most %d bytes", maxKey)}
	case strings.HasPrefix(key, "jct_"):
		return "", &keyError{"this is a key of Junction itself, which no other server may get; paste a key of " +
			"the server"}
	case !transport.VisibleASCII(key):
		return "", &keyError{"a key has no spaces, line breaks and special letters; paste only the key, without a " +
			"word such as Bearer"}
	}
	return key, nil
}

// keyError is a reason why a key is not stored, for the person who has pasted it.
type keyError struct{ text string }

func (e *keyError) Error() string { return e.text }

// Public returns the text.
func (e *keyError) Public() string { return e.text }
