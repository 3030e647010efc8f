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

// Fetch reads a JSON document of at most max bytes from an untrusted URL, as fetch.Fetcher.GetJSON
// does. Of a *fetch.Error the person in the browser sees only the class, of any other error the text.
type Fetch func(ctx context.Context, url string, max int64) (fetch.Document, error)

// freshness returns how long Cache-Control allows an answer to be kept, an hour if it does not say.
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
	return time.Hour
}

const (
	maxDocument = 5 << 10
	freshLeast  = 5 * time.Minute
	freshMost   = 24 * time.Hour
	staleMost   = 24 * time.Hour
	failedFor   = time.Minute
)

// documents are the clients whose id is the URL of their metadata document. Each document is cached
// in the store. Concurrent requests for a document share one fetch.
type documents struct {
	srv     *Server
	fetcher *limitedFetcher // nil disables fetching
	keys    *clientKeySets
	static  map[string][]byte
}

// fetchError means that a document, or the keys of a client, could not be fetched.
type fetchError struct{ host, why string }

func (u *fetchError) Error() string {
	return "cannot fetch from the app's host " + u.host + ": " + u.why
}

func newDocuments(f *Server, fetch Fetch) (*documents, error) {
	d := &documents{srv: f, static: map[string][]byte{}}
	if fetch != nil {
		d.fetcher = newLimitedFetcher(fetch, f.limits.fetches, f.now)
		d.keys = newClientKeySets(d.fetcher, f.now)
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

// documentURL parses a client_id that is a URL, or returns why it cannot be one
// (draft-ietf-oauth-client-id-metadata-document, section 3).
func documentURL(id string) (*url.URL, error) {
	u, err := url.Parse(id)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return nil, errors.New("it is not an https URL")
	case u.User != nil || strings.Contains(id, "#") || strings.Contains(u.Host, "@"):
		return nil, errors.New("it has a user name or a fragment")
	case u.Port() != "" || strings.HasSuffix(u.Host, ":"):
		return nil, errors.New("it has a port")
	case u.Path == "" || u.Path == "/":
		return nil, errors.New("it has no path")
	case len(id) > 1024 || !printable(id) || !printable(u.Host) || u.Host != strings.ToLower(u.Host):
		return nil, errors.New("it is longer than 1024 bytes, or contains upper case in the host or characters " +
			"that are not ASCII")
	}
	for _, segment := range strings.Split(u.EscapedPath(), "/") {
		if s := strings.ToLower(strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")); s == "." || s == ".." {
			return nil, errors.New("its path contains . or .. segments")
		}
	}
	return u, nil
}

// client returns the client of a document. The error is a *pageError, a *fetchError or one of the
// store.
func (d *documents) client(ctx context.Context, id string) (*client, error) {
	if text, ok := d.static[id]; ok {
		return d.parse(id, text)
	}
	u, err := documentURL(id)
	if err != nil {
		return nil, &pageError{"invalid_client",
			"The app's client_id cannot be used: " + err.Error() + "."}
	}
	if c := d.srv.config.Clients.CIMD; c.Trust == trustAllowlist && !slices.Contains(c.Hosts, u.Host) {
		return nil, &pageError{"invalid_client", "The operator of this server does not allow apps of " + u.Host + "."}
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

// text returns a document from the cache while it is fresh, and else fetches it. If the fetch
// fails, an expired document stays usable for a day.
func (d *documents) text(ctx context.Context, id, host string) ([]byte, error) {
	var kept store.Document
	return once(ctx, d.fetcher, id, func() (text []byte, settled bool, err error) {
		kept, err = d.srv.store.Document(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, false, nil
		case err != nil, !d.srv.now().Before(kept.FreshUntil):
			return nil, err != nil, err
		case kept.Failure != "" && len(kept.Body) == 0:
			return nil, true, &fetchError{host, kept.Failure}
		}
		return kept.Body, true, nil
	}, func() ([]byte, error) { return d.load(ctx, id, host, kept) })
}

func (d *documents) load(ctx context.Context, id, host string, kept store.Document) ([]byte, error) {
	ctx = context.WithoutCancel(ctx) // other requests wait for the result
	now := d.srv.now()
	allowed, err := d.srv.store.ClientAllowed(ctx, id)
	if err != nil {
		return nil, err
	}
	usable := len(kept.Body) > 0 && now.Before(kept.Fetched.Add(freshMost+staleMost))
	got, err := d.fetcher.get(ctx, id, maxDocument, allowed)
	if errors.Is(err, errTooManyFetches) { // says nothing about the document, so the failure is not cached
		if usable {
			return kept.Body, nil
		}
		return nil, &fetchError{host, err.Error()}
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
	fresh := max(freshLeast, min(freshness(got.Header), freshMost))
	if _, err := d.parse(id, got.Body); err != nil {
		fresh = failedFor // the caller parses the document again, and gets the error
	}
	return got.Body, d.srv.store.PutDocument(ctx,
		store.Document{URL: id, Body: got.Body, Fetched: now, FreshUntil: now.Add(fresh)})
}

// description is a client's metadata document, with the members of RFC 7591 that are used here.
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

// parse returns the client that a document describes. The error is a *pageError.
func (d *documents) parse(id string, text []byte) (*client, error) {
	no := func(why string) (*client, error) {
		return nil, &pageError{"invalid_client", "The app's metadata document cannot be used: " + why + "."}
	}
	if hasDuplicates(text) {
		return no("it is not a JSON object, or has a duplicate member")
	}
	var m description
	if err := json.Unmarshal(text, &m); err != nil {
		return no("a member has the wrong type")
	}
	u, err := url.Parse(id)
	switch {
	case err != nil:
		return no("its address is not a URL")
	case m.ClientID != id:
		return no("its client_id differs from its address")
	case cleanName(m.ClientName) == "":
		return no("client_name is missing")
	case m.Secret != nil || m.SecretEnds != nil:
		return no("it contains a client secret, which is then public")
	}
	c := &client{ID: id, Kind: kindDocument, Name: cleanName(m.ClientName), Host: u.Host}
	for _, uri := range m.RedirectURIs {
		if len(c.Redirects) < maxRedirects && checkRedirect(uri, d.srv.config.Clients.AllowedSchemes) == nil {
			c.Redirects = append(c.Redirects, uri)
		}
	}
	if len(c.Redirects) == 0 {
		return no("it has no valid redirect URI")
	}
	open := m.AuthMethod == "" || m.AuthMethod == "none" || slices.Contains(m.AuthMethods, "none")
	signs := m.AuthMethod == "private_key_jwt" || slices.Contains(m.AuthMethods, "private_key_jwt")
	switch {
	case signs && m.JWKS != nil:
		c.Keys = &clientKeys{Set: m.JWKS}
	case signs && m.JWKSURI != "":
		at, err := documentURL(m.JWKSURI)
		if err != nil {
			return no("jwks_uri: " + err.Error())
		}
		if at.Host != u.Host {
			return no("jwks_uri is on another host than the description, which is " + u.Host)
		}
		c.Keys = &clientKeys{URI: m.JWKSURI}
	case signs && !open:
		return no("private_key_jwt needs jwks or jwks_uri")
	case !open:
		return no("token_endpoint_auth_method must be none or private_key_jwt")
	}
	c.MustSign = !open
	return c, nil
}

// hasDuplicates reports whether a text is not a JSON object, or contains an object with a duplicate
// member: parsers would disagree on its meaning.
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

var errDuplicate = errors.New("a member occurs twice")

// skipObject reads the rest of an object after its opening brace.
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
