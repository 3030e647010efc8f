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

// Client authentication methods at a token endpoint (RFC 7591, section 2).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// redirect is the redirect URI of an upstream. Each upstream has its own, against mix-up attacks.
func (c *Client) redirect(name string) string { return c.URL + CallbackPath(name) }

// redirectOf is the redirect URI under which our registration for an upstream is stored.
func (c *Client) redirectOf(name string, u Upstream) string {
	if u.Shared {
		return sharedRedirect(name)
	}
	return c.redirect(name)
}

// documentPath is the path of this server's client metadata document.
const documentPath = "/oauth/client-metadata.json"

// documentURL is the client_id at authorization servers that read client metadata documents. It is
// "" if this server is not reachable from the internet.
func (c *Client) documentURL() string {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" || !strings.Contains(u.Hostname(), ".") {
		return ""
	}
	return c.URL + documentPath
}

// registration is a client registration or metadata document (RFC 7591, section 2).
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

// Document returns this server's client metadata document; nil if it has none.
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
		return nil // strings can always be marshalled
	}
	return text
}

// identify returns the client_id of this server, for an upstream, at an authorization server: the
// configured one, the URL of the metadata document, or that of a registration, which is made once.
// The error is a *UserError if it has a text for the user.
func (c *Client) identify(
	ctx context.Context, name string, u Upstream, s *serverMetadata,
) (store.UpstreamClient, error) {
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: c.redirect(name), AuthMethod: methodNone}
	if u.ClientID != "" {
		return c.configured(who, u, s)
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
		return who, userError(nil, "%s accepts only registered clients; the operator of this server must "+
			"register one there and set auth.client_id, and auth.issuer: %s", host(s.Issuer), s.Issuer)
	}
	v, err, _ := c.flights.Do("register "+name+" "+s.Issuer, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		if known, err := c.Store.UpstreamClient(ctx, name, s.Issuer, who.RedirectURI); err == nil {
			return known, nil
		}
		if err := c.register(ctx, u, s, &who); err != nil {
			return who, userError(err, "%s rejected the registration of this server", host(s.Issuer))
		}
		return c.Store.AddUpstreamClient(ctx, who)
	})
	if err != nil {
		return who, err
	}
	return v.(store.UpstreamClient), nil
}

// configured returns the client with the configured id and secret. They are for the configured
// issuer only: the upstream could name another one, which would get the secret.
func (c *Client) configured(who store.UpstreamClient, u Upstream, s *serverMetadata) (store.UpstreamClient, error) {
	if u.Issuer == "" || s.Issuer != u.Issuer {
		return who, userError(errOtherClient, "the configuration has no client_id for %s", host(s.Issuer))
	}
	who.ClientID, who.Secret, who.AuthMethod = u.ClientID, u.ClientSecret, methodNone
	if u.ClientSecret != "" {
		who.AuthMethod = methodBasic
		if len(s.AuthMethods) > 0 && !slices.Contains(s.AuthMethods, methodBasic) {
			who.AuthMethod = methodPost
		}
	}
	return who, nil
}

// register registers this server (RFC 7591), and fills in the result.
func (c *Client) register(ctx context.Context, u Upstream, s *serverMetadata, who *store.UpstreamClient) error {
	asked := c.registration(who.RedirectURI)
	asked.ApplicationType = "web"
	if strings.HasPrefix(who.RedirectURI, "http://") {
		asked.ApplicationType = "native" // only native clients may use loopback
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
		return errors.New("its answer has an unsupported token_endpoint_auth_method, or no client_secret for it")
	}
	return nil
}

// clientOf returns the client that the tokens of a connection were issued to, or errOtherClient if
// this server is no longer that client.
func (c *Client) clientOf(
	ctx context.Context, u Upstream, s *serverMetadata, k store.Connection,
) (store.UpstreamClient, error) {
	who := store.UpstreamClient{Upstream: k.Upstream, Issuer: k.Issuer, RedirectURI: c.redirectOf(k.Upstream, u),
		ClientID: k.ClientID, AuthMethod: methodNone}
	switch {
	case u.ClientID != "":
		var err error
		if who, err = c.configured(who, u, s); err != nil {
			return who, err
		}
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

// forgetClient deletes a registration that the authorization server no longer knows, so that the
// next connection registers again. It returns an error for a configured client, which only the
// operator can change.
func (c *Client) forgetClient(ctx context.Context, u Upstream, k store.Connection) error {
	if u.ClientID != "" || k.ClientID == c.documentURL() {
		return errors.New("the client is configured by the operator")
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
