package oauth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/prose"
)

// cachedMetadata is metadata of an upstream (*resourceMetadata) or an authorization server
// (*serverMetadata).
type cachedMetadata struct {
	metadata any
	until    time.Time
}

const (
	metadataTTL  = 5 * time.Minute  // how long metadata is cached
	metadataTime = 30 * time.Second // for the documents of one server, and for the request before them
)

// resourceMetadata is the protected resource metadata of an upstream (RFC 9728).
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`

	challenged []string // scopes of its challenge, which take precedence over Scopes
	open       bool     // the upstream has not asked for a sign-in yet
}

// discoverResource returns the metadata of an upstream. The error is a *UserError.
func (c *Client) discoverResource(ctx context.Context, name string, u Upstream) (*resourceMetadata, error) {
	return cached(ctx, c, "place "+name+" "+u.URL+" "+u.Issuer, func(ctx context.Context) (*resourceMetadata, error) {
		return c.fetchResource(ctx, name, u)
	})
}

// cached returns metadata from the cache, or fetches it once for all concurrent callers.
func cached[T any](ctx context.Context, c *Client, key string, fetch func(context.Context) (*T, error)) (*T, error) {
	c.mu.Lock()
	known := c.cache[key]
	c.mu.Unlock()
	if c.Now().Before(known.until) {
		return known.metadata.(*T), nil
	}
	v, err, _ := c.flights.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), metadataTime)
		defer cancel()
		m, err := fetch(ctx)
		if err == nil {
			c.mu.Lock()
			// a server chooses keys: it may name other authorization servers each time
			maps.DeleteFunc(c.cache, func(_ string, old cachedMetadata) bool { return !c.Now().Before(old.until) })
			c.cache[key] = cachedMetadata{m, c.Now().Add(metadataTTL)}
			c.mu.Unlock()
		}
		return m, err
	})
	return v.(*T), err
}

// probe asks an upstream for a sign-in, over connections with the proxy's settings.
func (c *Client) probe(ctx context.Context, u Upstream) *client.Probed {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return client.Probe(ctx, client.Options{URL: u.URL, Headers: u.Headers, Transport: u.Transport, Era: u.Era,
		ConnectTimeout: answerTimeout, Version: "0", Log: c.Log})
}

// fetchResource fetches the metadata of an upstream (RFC 9728). An upstream that asks for nothing may
// have metadata all the same: it asks at a call, or shows more to a user who has signed in.
func (c *Client) fetchResource(ctx context.Context, name string, u Upstream) (*resourceMetadata, error) {
	at, err := url.Parse(u.URL)
	if err != nil {
		return nil, userError(err, "the URL of %s is invalid", name)
	}
	asked := c.Probe(ctx, u)
	if asked.Later() {
		return nil, userError(asked.Err, "%s cannot be reached", name)
	}
	where, err := resourcePlaces(name, at, asked.Metadata)
	if err != nil {
		return nil, err
	}
	p, err := c.firstResource(ctx, u, where)
	if err != nil && !noResource(err) {
		return nil, userError(err, "%s does not publish where users sign in", name)
	}
	if err != nil {
		p = &resourceMetadata{Resource: u.URL}
	}
	if len(p.Issuers) == 0 && u.Issuer == "" && !asked.Asks() && !c.isIssuer(ctx, u) {
		return nil, userError(asked.Err, "%s", needless(name, asked))
	}
	if p.Resource == "" && u.Issuer != "" {
		p.Resource = u.URL // the operator has named the server that the tokens come from
	}
	if !covers(p.Resource, u.URL) {
		return nil, userError(fmt.Errorf("the metadata names the resource %s", whole(p.Resource)),
			"%s publishes the metadata of another server", name)
	}
	p.challenged, p.open = strings.Fields(asked.Scope), !asked.Asks()
	return p, nil
}

// Offers reports whether an upstream that has answered a probe has a sign-in: its challenge refers to
// one, its metadata name an authorization server, or its origin is one. An upstream that answers without
// a token may offer one, too. Offers is false if that cannot be found out now.
func (c *Client) Offers(ctx context.Context, u Upstream, asked *client.Probed) bool {
	at, err := url.Parse(u.URL)
	if err != nil || asked.Later() {
		return false
	}
	if asked.Asks() && asked.Metadata != "" {
		return true
	}
	where, err := resourcePlaces("", at, "")
	if err != nil {
		return false
	}
	p, err := c.firstResource(ctx, u, where)
	if err == nil && len(p.Issuers) > 0 {
		return covers(p.Resource, u.URL)
	}
	return (err == nil || noResource(err)) && c.isIssuer(ctx, u)
}

// needless returns why nobody can sign in to an upstream that names no authorization server.
func needless(name string, asked *client.Probed) string {
	switch {
	case asked.Err == nil:
		return name + " needs no sign-in; the operator of this server can remove its auth.mode"
	case asked.Status == http.StatusForbidden:
		return name + " answered 403 instead of asking for a sign-in; some servers accept only programs that they know"
	case asked.Status != 0:
		return fmt.Sprintf("%s answered %d instead of asking for a sign-in", name, asked.Status)
	}
	return name + " answered with an error instead of asking for a sign-in"
}

// isIssuer reports whether the origin of an upstream publishes metadata of an authorization server.
func (c *Client) isIssuer(ctx context.Context, u Upstream) bool {
	at, err := url.Parse(originOf(u.URL))
	if err != nil {
		return false
	}
	s, _, err := c.firstDocument(ctx, u, places(at))
	return err == nil && sameIssuer(s.Issuer, at.String())
}

// resourcePlaces returns where the metadata of an upstream may be: where its challenge says, and at the
// well-known places (RFC 9728, section 3.1).
func resourcePlaces(name string, at *url.URL, named string) (where []string, err error) {
	if named != "" {
		to, err := at.Parse(named)
		if err != nil {
			return nil, userError(err, "%s names an invalid URL of its metadata", name)
		}
		if !sameOrigin(at, to) || to.User != nil {
			return nil, userError(fmt.Errorf("it names %s", whole(to.Host)),
				"%s names metadata on another server, which is not allowed", name)
		}
		where = append(where, to.String())
	}
	root := at.Scheme + "://" + at.Host + "/.well-known/oauth-protected-resource"
	inserted := root + strings.TrimSuffix(at.EscapedPath(), "/")
	for _, w := range []string{withQuery(inserted, at), inserted, root} {
		if !slices.Contains(where, w) {
			where = append(where, w)
		}
	}
	return where, nil
}

func withQuery(where string, at *url.URL) string {
	if at.RawQuery == "" {
		return where
	}
	return where + "?" + at.RawQuery
}

// firstResource returns the first metadata of a resource that there are. The error is noResource if
// there are none anywhere.
func (c *Client) firstResource(ctx context.Context, u Upstream, where []string) (p *resourceMetadata, err error) {
	for _, w := range where {
		p = new(resourceMetadata)
		if err = c.get(ctx, u, w, p); err == nil || !noResource(err) {
			break // an outage must not change what counts
		}
	}
	return p, err
}

// noResource reports whether there are no metadata at a place.
func noResource(err error) bool {
	if no, refused := errors.AsType[*errorAnswer](err); refused {
		switch no.status {
		case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
			return true
		}
	}
	return errors.Is(err, errNoDocument)
}

// mostIssuers bounds the authorization servers of an upstream that are tried.
const mostIssuers = 4

// issuersOf returns the authorization servers to try, in this order. home is the origin of the upstream
// if the upstream names none: then its own origin is the authorization server (2025-03-26).
func (p *resourceMetadata) issuersOf(u Upstream) (issuers []string, home string) {
	switch {
	case u.Issuer != "":
		return []string{u.Issuer}, ""
	case len(p.Issuers) > 0:
		return p.Issuers[:min(len(p.Issuers), mostIssuers)], ""
	}
	home = originOf(u.URL)
	return []string{home}, home
}

// differs returns a sentence if the configuration has another issuer than the upstream names.
func (p *resourceMetadata) differs(name string, u Upstream) string {
	if u.Issuer == "" || len(p.Issuers) == 0 ||
		slices.ContainsFunc(p.Issuers, func(i string) bool { return sameIssuer(i, u.Issuer) }) {
		return ""
	}
	return fmt.Sprintf("%s names the authorization server %s; Junction uses %s (auth.issuer)", name,
		whole(p.Issuers[0]), u.Issuer)
}

// covers reports whether a resource is the URL of an upstream, or a parent of it.
func covers(resource, at string) bool {
	r, err := url.Parse(resource)
	u, err2 := url.Parse(at)
	if err != nil || err2 != nil || r.User != nil || r.Fragment != "" || !sameOrigin(r, u) {
		return false
	}
	if r.RawQuery != "" {
		return r.RawQuery == u.RawQuery && r.EscapedPath() == u.EscapedPath()
	}
	above := strings.TrimSuffix(r.EscapedPath(), "/")
	rest, below := strings.CutPrefix(u.EscapedPath(), above)
	return below && (rest == "" || rest[0] == '/')
}

// sameOrigin compares scheme, host and port (RFC 6454).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" || u.Scheme != "https" && u.Scheme != "http" {
		return p
	}
	return map[string]string{"https": "443", "http": "80"}[u.Scheme]
}

// whole quotes a text of a server for an error.
func whole(text string) string { return prose.Whole(strconv.Quote(text), 200) }
