package authserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/fetch"
	"junction/auth/store"
)

// Fetched is what a URL answered.
type Fetched struct {
	Body  []byte
	Fresh time.Duration // for how long it may be kept, by its own word; negative if it does not say
}

// Fetch reads a document of JSON that a stranger's URL names, of at most max bytes. The text of the
// error is for the person in the browser: what went wrong, in a few words, and nothing of what is
// inside.
type Fetch func(ctx context.Context, url string, max int64) (Fetched, error)

// FetchWith returns the Fetch that a fetcher is.
func FetchWith(f *fetch.Fetcher) Fetch {
	return func(ctx context.Context, url string, max int64) (Fetched, error) {
		d, err := f.GetJSON(ctx, url, max)
		if wrong, ok := errors.AsType[*fetch.Error](err); ok {
			return Fetched{}, errors.New(string(wrong.Class))
		}
		if err != nil {
			return Fetched{}, err
		}
		return Fetched{d.Body, freshness(d.Header)}, nil
	}
}

// freshness reads Cache-Control; negative if it does not say.
func freshness(h http.Header) time.Duration {
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 32); err == nil && seconds >= 0 {
				return time.Duration(seconds) * time.Second
			}
		}
	}
	return -1
}

const (
	maxDocument = 5 << 10
	freshLeast  = 5 * time.Minute
	freshMost   = 24 * time.Hour
	staleMost   = 24 * time.Hour
	failedFor   = time.Minute
)

// documents are clients whose id is the URL of their metadata. Each document is kept in the store
// for a while, and fetched once however many ask.
type documents struct {
	srv     *Server
	fetcher *limitedFetcher // nil reads nothing from the net
	keys    clientKeySets
	static  map[string][]byte
}

// unreachable means that a document, or the keys of a client, cannot be had now; what it says is
// not known.
type fetchError struct{ host, why string }

func (u *fetchError) Error() string {
	return "what the app publishes at " + u.host + " cannot be read: " + u.why
}

func newDocuments(f *Server, fetch Fetch) (*documents, error) {
	d := &documents{srv: f, static: map[string][]byte{}}
	if fetch != nil {
		d.fetcher = newLimitedFetcher(fetch, f.limits.fetches, f.now)
		d.keys = clientKeySets{fetcher: d.fetcher, now: f.now, kept: map[string]keptKeys{}}
	}
	for where, file := range f.config.Clients.CIMD.StaticDocuments {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("auth.oauth.clients.cimd.static_documents: %w", err)
		}
		if _, err := d.parse(where, text); err != nil {
			return nil, fmt.Errorf("auth.oauth.clients.cimd.static_documents: %s: %w", file, err)
		}
		d.static[where] = text
	}
	return d, nil
}

// checkDocumentURL returns what is wrong with a client_id that is a URL, if anything is
// (draft-ietf-oauth-client-id-metadata-document, section 3).
func checkDocumentURL(id string) error {
	u, err := url.Parse(id)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return errors.New("it is no https URL")
	case u.User != nil || strings.Contains(id, "#") || strings.Contains(u.Host, "@"):
		return errors.New("it has a user name or a fragment")
	case u.Port() != "" || strings.HasSuffix(u.Host, ":"):
		return errors.New("it has a port")
	case u.Path == "" || u.Path == "/":
		return errors.New("it has no path")
	case len(id) > 1024 || !printable(id) || u.Host != strings.ToLower(u.Host):
		return errors.New("it is too long, or is not written as browsers write it")
	}
	for _, segment := range strings.Split(u.EscapedPath(), "/") {
		if s := strings.ToLower(strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")); s == "." || s == ".." {
			return errors.New("it has dots for folders")
		}
	}
	return nil
}

// client returns the client of a document.
func (d *documents) client(ctx context.Context, id string) (*client, error) {
	if text, ok := d.static[id]; ok {
		return d.parse(id, text)
	}
	if err := checkDocumentURL(id); err != nil {
		return nil, &pageError{"invalid_client",
			"The address by which the app says what it is cannot be used: " + err.Error() + "."}
	}
	u, err := url.Parse(id)
	if err != nil {
		return nil, err
	}
	if c := d.srv.config.Clients.CIMD; c.Trust == trustAllowlist && !slices.Contains(c.Hosts, u.Host) {
		return nil, &pageError{"invalid_client", "The operator of this server does not let apps of " + u.Host + " in."}
	}
	if d.fetcher == nil {
		return nil, &pageError{"invalid_client", "This server does not read the descriptions of apps from the net."}
	}
	text, err := d.text(ctx, id, u.Host)
	if err != nil {
		return nil, err
	}
	return d.parse(id, text)
}

// text returns a document: the kept one while it is fresh, a new one after that, and the kept one
// for a day more if there is no new one.
func (d *documents) text(ctx context.Context, id, host string) ([]byte, error) {
	for {
		if _, text, fresh, err := d.kept(ctx, id, host); fresh || err != nil {
			return text, err
		}
		done, err := d.fetcher.turn(ctx, id)
		if err != nil {
			return nil, err
		}
		if done == nil {
			continue // another request has fetched it
		}
		defer done()
		// The document may have come between the look and the turn.
		kept, text, fresh, err := d.kept(ctx, id, host)
		if fresh || err != nil {
			return text, err
		}
		return d.load(ctx, id, host, kept)
	}
}

// kept returns what the store has, and whether that is the answer: a document, or the reason why
// there is none.
func (d *documents) kept(
	ctx context.Context, id, host string,
) (kept store.Document, text []byte, fresh bool, err error) {
	kept, err = d.srv.store.Document(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return kept, nil, false, nil
	case err != nil, !d.srv.now().Before(kept.FreshUntil):
		return kept, nil, false, err
	case kept.Failure != "" && len(kept.Body) == 0:
		return kept, nil, true, &fetchError{host, kept.Failure}
	}
	return kept, kept.Body, true, nil
}

func (d *documents) load(ctx context.Context, id, host string, kept store.Document) ([]byte, error) {
	ctx = context.WithoutCancel(ctx) // others wait for it
	now := d.srv.now()
	allowed, err := d.srv.store.ClientAllowed(ctx, id)
	if err != nil {
		return nil, err
	}
	usable := len(kept.Body) > 0 && now.Before(kept.Fetched.Add(freshMost+staleMost))
	got, err := d.fetcher.get(ctx, id, maxDocument, allowed)
	if errors.Is(err, errTooManyFetches) { // says nothing about the document, so that it is not remembered
		if usable {
			return kept.Body, nil
		}
		return nil, &fetchError{host, err.Error()}
	}
	if err == nil {
		if _, wrong := d.parse(id, got.Body); wrong != nil {
			err = errors.New("it is not a description of the app")
			if p, ok := errors.AsType[*pageError](wrong); ok {
				_ = d.srv.store.PutDocument(ctx,
					store.Document{URL: id, Body: got.Body, Fetched: now, FreshUntil: now.Add(failedFor)})
				return nil, p
			}
		}
	}
	if err != nil {
		next := store.Document{URL: id, Failure: err.Error(), Fetched: now, FreshUntil: now.Add(failedFor)}
		if usable {
			next.Body, next.Fetched = kept.Body, kept.Fetched
		}
		if err := d.srv.store.PutDocument(ctx, next); err != nil {
			return nil, err
		}
		if len(next.Body) > 0 {
			return next.Body, nil
		}
		return nil, &fetchError{host, next.Failure}
	}
	fresh := got.Fresh
	if fresh < 0 {
		fresh = time.Hour
	}
	fresh = max(freshLeast, min(fresh, freshMost))
	return got.Body, d.srv.store.PutDocument(ctx,
		store.Document{URL: id, Body: got.Body, Fetched: now, FreshUntil: now.Add(fresh)})
}

// description is a client's metadata document: what means something here of the members of RFC
// 7591.
type description struct {
	ClientID     string              `json:"client_id"`
	ClientName   string              `json:"client_name"`
	RedirectURIs []string            `json:"redirect_uris"`
	AuthMethod   string              `json:"token_endpoint_auth_method"`
	AuthMethods  []string            `json:"token_endpoint_auth_methods_supported"`
	Secret       *json.RawMessage    `json:"client_secret"`
	SecretEnds   *json.RawMessage    `json:"client_secret_expires_at"`
	JWKS         *jose.JSONWebKeySet `json:"jwks"`
	JWKSURI      string              `json:"jwks_uri"`
}

// parse returns the client that a document describes. The error is a *problem.
func (d *documents) parse(id string, text []byte) (*client, error) {
	no := func(why string) (*client, error) {
		return nil, &pageError{"invalid_client", "What the app says of itself cannot be used: " + why + "."}
	}
	if hasDuplicates(text) {
		return no("a member is there twice, or it is no JSON object")
	}
	var m description
	if err := json.Unmarshal(text, &m); err != nil {
		return no("it is not the metadata of a client")
	}
	u, err := url.Parse(id)
	switch {
	case err != nil:
		return no("its address is no URL")
	case m.ClientID != id:
		return no("its client_id is another address")
	case cleanName(m.ClientName) == "":
		return no("client_name is missing")
	case m.Secret != nil || m.SecretEnds != nil:
		return no("it has a secret, which everybody can read")
	}
	c := &client{ID: id, Kind: kindDocument, Name: cleanName(m.ClientName), Host: u.Host}
	for _, uri := range m.RedirectURIs {
		if len(c.Redirects) < maxRedirects && checkRedirect(uri, d.srv.config.Clients.AllowedSchemes) == nil {
			c.Redirects = append(c.Redirects, uri)
		}
	}
	if len(c.Redirects) == 0 {
		return no("no redirect URI of it can be used")
	}
	open := m.AuthMethod == "" || m.AuthMethod == "none" || slices.Contains(m.AuthMethods, "none")
	signs := m.AuthMethod == "private_key_jwt" || slices.Contains(m.AuthMethods, "private_key_jwt")
	switch {
	case signs && m.JWKS != nil:
		c.Keys = &clientKeys{Set: m.JWKS}
	case signs && m.JWKSURI != "":
		if err := checkDocumentURL(m.JWKSURI); err != nil {
			return no("jwks_uri: " + err.Error())
		}
		if at, err := url.Parse(m.JWKSURI); err != nil || at.Host != u.Host {
			return no("jwks_uri is on another host than the description, which is " + u.Host)
		}
		c.Keys = &clientKeys{URI: m.JWKSURI}
	case signs && !open:
		return no("it signs, and has no keys")
	case !open:
		return no("token_endpoint_auth_method is none of none, private_key_jwt")
	}
	c.MustSign = !open
	return c, nil
}

// twice reports whether a text is no JSON object, or one in which, at whatever depth, a member is
// there twice: two readers could see two clients in it.
func hasDuplicates(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return true
	}
	if skipObject(d, 0) != nil {
		return true
	}
	_, err := d.Token()
	return !errors.Is(err, io.EOF)
}

var errDuplicate = errors.New("a member is there twice")

// members reads the rest of an object whose brace has been read.
func skipObject(d *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		if name = strings.ToLower(name); seen[name] || depth > 20 {
			return errDuplicate
		}
		seen[name] = true
		if err := skipValue(d, depth+1); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func skipValue(d *json.Decoder, depth int) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return skipObject(d, depth)
	case json.Delim('['):
		if depth > 20 {
			return errDuplicate
		}
		for d.More() {
			if err := skipValue(d, depth+1); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}
