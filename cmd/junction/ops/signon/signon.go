// Package signon signs the user of a command in to an endpoint that requires it (OAuth). The
// commands that are clients of an endpoint use it. It keeps the tokens in one file for each
// endpoint, which only the user can read, so that all commands share one sign-in.
package signon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/upstream/files"
)

// ErrNeeded means that the endpoint requires a sign-in, and that there is no terminal to ask at.
var ErrNeeded = errors.New("the endpoint requires a sign-in; run junction tools in a terminal to sign in, or use an " +
	"API key")

const (
	defaultPatience = 5 * time.Minute
	requestTime     = 30 * time.Second // for one request to the authorization server
	quietTime       = 10 * time.Minute // after a failed sign-in, until the next one may begin
	openTime        = 30 * time.Second // for which an endpoint counts as one that requires no sign-in
)

// Options configure New. URL and Dir are required.
type Options struct {
	URL   string    // of the endpoint
	Dir   string    // of the files with tokens; created if it is missing
	Ask   bool      // the user may be asked to sign in
	Notes io.Writer // receives the URL at which the user signs in; nil discards
	// Open starts a browser. If it is nil or returns an error, the user must open the URL.
	Open func(url string) error
}

// SignOn is the sign-in of the user at one endpoint. It may be used by several goroutines.
type SignOn struct {
	Options
	file   string
	client *oauth.Client // has no store
	http   *http.Client

	mu      sync.Mutex // held while tokens are read or renewed
	attempt *attempt   // the sign-in in progress or the last one that failed; nil if there is none
	open    time.Time  // until then the endpoint counts as one that requires no sign-in
}

// attempt is one sign-in, from the browser's first address to the stored tokens.
type attempt struct {
	done  chan struct{} // closed when token and err are set
	token string
	err   error
	until time.Time // the user is not asked again before
}

// kept is the content of the file.
type kept struct {
	URL string `json:"url"`
	oauth.Grant
}

// endpoint is the name of the endpoint for package oauth.
const endpoint = "the endpoint"

// New returns the sign-in at an endpoint. It reads and sends nothing.
func New(o Options) *SignOn {
	if o.Notes == nil {
		o.Notes = io.Discard
	}
	sum := sha256.Sum256([]byte(o.URL))
	// The user has chosen the endpoint, whose authorization server may be in a private network, too.
	everywhere := &fetch.Fetcher{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	client := oauth.New(oauth.Options{Name: "Junction command line", Fetch: everywhere, HTTP: http.DefaultTransport})
	// The endpoint names the authorization server, and could name the page of another server to get a
	// code of that. The user confirms no hosts, so all of it must have one origin.
	client.Apply(map[string]oauth.Upstream{endpoint: {URL: o.URL, OneOrigin: true}})
	return &SignOn{Options: o, file: filepath.Join(o.Dir, hex.EncodeToString(sum[:12])+".json"), client: client,
		http: &http.Client{Timeout: requestTime}}
}

// Token returns the access token for a request, or "" if the endpoint requires none. refused are
// the tokens that the endpoint has refused for this request. Token renews an expired token. If
// there is none, it asks the user to sign in, and waits. If ctx ends, Token returns and the sign-in
// goes on.
func (s *SignOn) Token(ctx context.Context, refused ...string) (string, error) {
	s.mu.Lock()
	token, err := s.stored(ctx, refused)
	if token != "" || err != nil {
		s.mu.Unlock()
		return token, err
	}
	a := s.attempt
	if a == nil || a.over() {
		if len(refused) == 0 && !s.mustSignIn(ctx) {
			s.mu.Unlock()
			return "", nil
		}
		if !s.Ask {
			s.mu.Unlock()
			return "", ErrNeeded
		}
		a = &attempt{done: make(chan struct{})}
		s.attempt = a
		go s.run(a, refused) // ends with the attempt
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.token, a.err
	case <-ctx.Done():
		return "", fmt.Errorf("the sign-in in the browser is not finished: %w", context.Cause(ctx))
	}
}

func (s *SignOn) run(a *attempt, refused []string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), defaultPatience,
		fmt.Errorf("no sign-in within %v", defaultPatience))
	defer cancel()
	a.token, a.err = s.signIn(ctx, refused)
	a.until = time.Now()
	if a.err != nil { // so that a program in the background does not open one window after the other
		a.until = a.until.Add(quietTime)
	}
	close(a.done)
}

// over reports whether the attempt has ended, and another one may begin.
func (a *attempt) over() bool {
	select {
	case <-a.done:
		return !time.Now().Before(a.until)
	default:
		return false
	}
}

func (k *kept) usable(refused []string) bool {
	return k != nil && (k.Expires.IsZero() || time.Now().Before(k.Expires)) && !slices.Contains(refused, k.Access)
}

// stored returns the token of the file, renewed if necessary. It is "" if a sign-in is necessary.
func (s *SignOn) stored(ctx context.Context, refused []string) (string, error) {
	k, err := s.read()
	if err != nil || k == nil {
		return "", err
	}
	if k.usable(refused) {
		return k.Access, nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if k, err = s.read(); err != nil || k == nil { // another process may have renewed it
		return "", err
	}
	if k.usable(refused) {
		return k.Access, nil
	}
	k.Grant, err = s.client.Renew(ctx, endpoint, k.Grant)
	if errors.Is(err, oauth.ErrBroken) {
		return "", nil // the sign-in has ended
	}
	if err != nil {
		return "", fmt.Errorf("renew the sign-in: %w", err)
	}
	return k.Access, s.write(k)
}

// mustSignIn is required, but remembers its result for openTime, because each request needs it. If
// the endpoint cannot be reached, it returns false: the request itself will show the error.
func (s *SignOn) mustSignIn(ctx context.Context) bool {
	if time.Now().Before(s.open) {
		return false
	}
	required, err := s.required(ctx)
	if err == nil && !required {
		s.open = time.Now().Add(openTime)
	}
	return required
}

// required reports whether the endpoint names an authorization server (RFC 9728).
func (s *SignOn) required(ctx context.Context) (bool, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return false, err
	}
	u.Path, u.RawQuery = "/.well-known/oauth-protected-resource"+strings.TrimSuffix(u.Path, "/"), ""
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return false, err
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	// A server that answers every GET with an endless stream has no metadata.
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return false, nil
	}
	var m struct {
		Servers []string `json:"authorization_servers"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&m)
	return err == nil && len(m.Servers) > 0, nil
}

// read returns the content of the file, or nil if there is none that can be used.
func (s *SignOn) read() (*kept, error) {
	text, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the sign-in: %w", err)
	}
	var k kept
	if json.Unmarshal(text, &k) != nil || k.Access == "" || k.URL != s.URL {
		return nil, nil
	}
	return &k, nil
}

// write replaces the file. The caller holds the lock, so that the folder exists.
func (s *SignOn) write(k *kept) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := files.Write(s.file, text); err != nil {
		return fmt.Errorf("keep the sign-in: %w", err)
	}
	return nil
}

// lock waits until no other process renews the tokens: a refresh token can be used only once.
func (s *SignOn) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep the sign-in: %w", err)
	}
	if unlock, err = files.LockFile(ctx, strings.TrimSuffix(s.file, ".json")+".lock"); err != nil {
		return nil, fmt.Errorf("renew the sign-in: %w", err)
	}
	return unlock, nil
}
