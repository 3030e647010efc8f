package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"junction/auth/store"
)

// How a client says who it is at a token endpoint (RFC 7591, section 2).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// redirect is where people come back to from the sign-in of an upstream: one address for each, so
// that an answer cannot be brought to another's.
func (c *Client) redirect(name string) string { return c.URL + CallbackPath(name) }

// redirectOf is the redirect URI under which our registration for an upstream is stored.
func (c *Client) redirectOf(name string, u Upstream) string {
	if u.Shared {
		return sharedRedirect(name)
	}
	return c.redirect(name)
}

// documentPath is where authorization servers read who we are.
const documentPath = "/oauth/client-metadata.json"

// documentURL is our id where authorization servers read documents of clients; "" while they could
// not read ours, because nobody outside reaches us.
func (c *Client) documentURL() string {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || !strings.Contains(u.Hostname(), ".") {
		return ""
	}
	return c.URL + documentPath
}

// registration is what we say of ourselves (RFC 7591, section 2; Client ID Metadata Document).
type registration struct {
	ID              string   `json:"client_id,omitempty"`
	Name            string   `json:"client_name"`
	URI             string   `json:"client_uri,omitempty"`
	RedirectURIs    []string `json:"redirect_uris"`
	GrantTypes      []string `json:"grant_types"`
	ResponseTypes   []string `json:"response_types"`
	AuthMethod      string   `json:"token_endpoint_auth_method"`
	ApplicationType string   `json:"application_type,omitempty"`
	Scope           string   `json:"scope,omitempty"`
}

func (c *Client) registration(redirects ...string) registration {
	return registration{
		Name: c.Name, RedirectURIs: redirects, GrantTypes: []string{"authorization_code",
			"refresh_token"}, ResponseTypes: []string{"code"}, AuthMethod: methodNone,
	}
}

// Document is who we are, for authorization servers to read; nil while there is nobody to read it.
func (c *Client) Document() []byte {
	id, names := c.documentURL(), c.Upstreams()
	if id == "" || len(names) == 0 {
		return nil
	}
	var redirects []string
	for _, name := range names {
		redirects = append(redirects, c.redirect(name))
	}
	r := c.registration(redirects...)
	r.ID, r.URI = id, c.URL
	text, err := json.Marshal(r)
	if err != nil {
		return nil // it is text alone
	}
	return text
}

// identify returns who we are to an authorization server: as the operator has it, or by our
// document, or by a registration, which is made once. The error is a *Problem.
func (c *Client) identify(ctx context.Context, name string, u Upstream, s *server) (store.UpstreamClient, error) {
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: c.redirect(name), AuthMethod: methodNone}
	if u.ClientID != "" {
		return c.configured(who, u, s), nil
	}
	if id := c.documentURL(); s.Documents && id != "" {
		who.ClientID = id
		return who, nil
	}
	known, err := c.Store.UpstreamClient(ctx, name, s.Issuer, who.RedirectURI)
	if err == nil {
		return known, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return who, err
	}
	if s.RegistrationEndpoint == "" {
		return who, problem(nil, "%s lets in only apps that were registered there; the operator of this server has "+
			"to do that, and to set auth.client_id", host(s.Issuer))
	}
	v, err, _ := c.once.Do("register "+name+" "+s.Issuer, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if known, err := c.Store.UpstreamClient(ctx, name, s.Issuer, who.RedirectURI); err == nil {
			return known, nil
		}
		if err := c.register(ctx, u, s, &who); err != nil {
			return who, problem(err, "%s does not let us register", host(s.Issuer))
		}
		return c.Store.AddUpstreamClient(ctx, who)
	})
	if err != nil {
		return who, err
	}
	return v.(store.UpstreamClient), nil
}

// configured is who the operator says that we are.
func (c *Client) configured(who store.UpstreamClient, u Upstream, s *server) store.UpstreamClient {
	who.ClientID, who.Secret, who.AuthMethod = u.ClientID, u.ClientSecret, methodNone
	if u.ClientSecret != "" {
		who.AuthMethod = methodBasic
		if len(s.AuthMethods) > 0 && !slices.Contains(s.AuthMethods, methodBasic) {
			who.AuthMethod = methodPost
		}
	}
	return who
}

// register registers us (RFC 7591), and fills in who we are then.
func (c *Client) register(ctx context.Context, u Upstream, s *server, who *store.UpstreamClient) error {
	asked := c.registration(who.RedirectURI)
	asked.ApplicationType = "web"
	if strings.HasPrefix(who.RedirectURI, "http://") {
		asked.ApplicationType = "native" // it is on loopback, which is for these alone
	}
	switch {
	case slices.Contains(s.AuthMethods, methodNone):
	case len(s.AuthMethods) == 0 || slices.Contains(s.AuthMethods, methodBasic):
		asked.AuthMethod = methodBasic
	default:
		asked.AuthMethod = methodPost
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodPost, s.RegistrationEndpoint, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	_, body, err := c.send(ctx, u, r)
	if err != nil {
		return err
	}
	var got struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	if err := json.Unmarshal(body, &got); err != nil || got.ID == "" {
		return errors.New("its answer has no client_id")
	}
	if who.ClientID, who.Secret, who.AuthMethod = got.ID, got.Secret, asked.AuthMethod; got.Method != "" {
		who.AuthMethod = got.Method
	}
	if who.AuthMethod != methodNone &&
		(got.Secret == "" || who.AuthMethod != methodBasic && who.AuthMethod != methodPost) {
		return errors.New("it wants us to say who we are in a way that we cannot")
	}
	return nil
}

// clientOf returns who a connection was given to, if we still are that one.
func (c *Client) clientOf(
	ctx context.Context, u Upstream, s *server, k store.Connection,
) (store.UpstreamClient, error) {
	who := store.UpstreamClient{Upstream: k.Upstream, Issuer: k.Issuer, RedirectURI: c.redirectOf(k.Upstream, u),
		ClientID: k.ClientID, AuthMethod: methodNone}
	switch {
	case u.ClientID != "":
		who = c.configured(who, u, s)
	case k.ClientID != "" && k.ClientID == c.documentURL():
		return who, nil
	default:
		known, err := c.Store.UpstreamClient(ctx, k.Upstream, k.Issuer, who.RedirectURI)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return who, err
		}
		who = known
	}
	if who.ClientID != k.ClientID {
		return who, errOtherClient
	}
	return who, nil
}

// forgetClient forgets a registration that an authorization server does not know any more, so that
// the next person who connects makes a new one. The error is why not: what the operator has
// configured is for them to change.
func (c *Client) forgetClient(ctx context.Context, u Upstream, k store.Connection) error {
	if u.ClientID != "" || k.ClientID == c.documentURL() {
		return errors.New("it is the operator's")
	}
	return c.Store.DropUpstreamClient(ctx, store.UpstreamClient{Upstream: k.Upstream, Issuer: k.Issuer,
		RedirectURI: c.redirectOf(k.Upstream, u), ClientID: k.ClientID})
}

func host(where string) string {
	if u, err := url.Parse(where); err == nil {
		return u.Host
	}
	return "the server"
}
