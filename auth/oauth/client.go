package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/auth/store"
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

// identify returns the client_id of this server, for an upstream, at an authorization server. The first of
// these counts: the configured client_id, an earlier registration, the URL of the metadata document, a new
// registration. A registration is made once, and again when its secret expires. The error is a *UserError
// if it has a text for the user.
func (c *Client) identify(
	ctx context.Context, name string, u Upstream, s *serverMetadata,
) (store.UpstreamClient, error) {
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: c.redirect(name), AuthMethod: methodNone}
	if u.ClientID != "" {
		return c.configured(who, u, s)
	}
	known, err := c.registered(ctx, name, s.Issuer, s.TokenEndpoint, who.RedirectURI)
	switch {
	case err == nil && c.expiring(known) && s.RegistrationEndpoint != "":
		next, err := c.registerOnce(ctx, u, s, who)
		if err != nil && !c.expired(known) {
			return known, nil
		}
		return next, err
	case err == nil:
		return known, nil
	case !errors.Is(err, store.ErrNotFound):
		return who, err
	}
	if id := c.documentURL(); s.Documents && id != "" {
		who.ClientID = id
		return who, nil
	}
	if s.RegistrationEndpoint == "" {
		return who, s.unregistrable("")
	}
	return c.registerOnce(ctx, u, s, who)
}

// unregistrable returns the error for an authorization server at which Junction cannot register. at is
// the redirect URI of a sign-in on the machine of a person; "" is a sign-in at this server.
func (s *serverMetadata) unregistrable(at string) error {
	redirect := ""
	if at != "" {
		redirect = " with the redirect URI " + at
	}
	if s.Documents {
		return userError(nil, "%s accepts only clients that publish a client metadata document: publish one%s at an "+
			"https URL, and set auth.client_id: https://…, which is that URL, and auth.issuer: %s", host(s.Issuer),
			redirect, s.Issuer)
	}
	if at != "" {
		return userError(nil, "%s accepts only registered clients; register one there%s and set auth.client_id, and "+
			"auth.issuer: %s", host(s.Issuer), redirect, s.Issuer)
	}
	return userError(nil, "%s accepts only registered clients; the operator of this server must "+
		"register one there and set auth.client_id, and auth.issuer: %s", host(s.Issuer), s.Issuer)
}

// admits reports whether this server has a client_id at an authorization server, or can get one.
func (c *Client) admits(ctx context.Context, name string, u Upstream, s *serverMetadata) bool {
	c.mu.Lock()
	rejected := c.Now().Before(c.rejects[name+" "+s.Issuer])
	c.mu.Unlock()
	switch {
	case u.ClientID != "":
		return true
	case s.RegistrationEndpoint != "" && !rejected, s.Documents && c.documentURL() != "" && !u.Shared:
		return true
	}
	if c.Store == nil || u.Shared {
		return false
	}
	_, err := c.registered(ctx, name, s.Issuer, s.TokenEndpoint, c.redirect(name))
	return err == nil
}

// registrar returns the Issuer of a stored registration: an issuer, and the origin of its token endpoint
// if that is another one. Later metadata of the issuer may name a token endpoint elsewhere, which must not
// get the secret of this registration.
func registrar(issuer, token string) string {
	if SameOrigin(issuer, token) {
		return issuer
	}
	return issuer + " " + originOf(token)
}

// registered returns the stored registration at an issuer with this token endpoint. The error is
// store.ErrNotFound if there is none.
func (c *Client) registered(ctx context.Context, name, issuer, token, redirect string) (
	known store.UpstreamClient, err error,
) {
	for _, spelling := range spellings(issuer) {
		known, err = c.Store.UpstreamClient(ctx, name, registrar(spelling, token), redirect)
		if !errors.Is(err, store.ErrNotFound) {
			return known, err
		}
	}
	return known, err
}

// registerOnce registers this server, once for concurrent callers, and stores the registration. It replaces
// one whose secret expires.
func (c *Client) registerOnce(
	ctx context.Context, u Upstream, s *serverMetadata, who store.UpstreamClient,
) (store.UpstreamClient, error) {
	who.Issuer = registrar(s.Issuer, s.TokenEndpoint)
	v, err, _ := c.flights.Do("register "+who.Upstream+" "+who.Issuer, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		known, none := c.registered(ctx, who.Upstream, s.Issuer, s.TokenEndpoint, who.RedirectURI)
		if none == nil && !c.expiring(known) {
			return known, nil
		}
		if err := c.register(ctx, u, s, &who); err != nil {
			c.reject(who.Upstream, s.Issuer, err)
			return who, rejected(err, s, "this server")
		}
		if none == nil {
			return c.supersede(ctx, known, who)
		}
		return c.Store.AddUpstreamClient(ctx, who)
	})
	if err != nil {
		return who, err
	}
	return v.(store.UpstreamClient), nil
}

// rejected returns the error of a registration. who is what was registered.
func rejected(err error, s *serverMetadata, who string) error {
	if no, ok := errors.AsType[*errorAnswer](err); ok && no.status == http.StatusForbidden {
		return userError(err, "%s registers only clients that it has reviewed; ask its vendor for a client, and set "+
			"auth.client_id, and auth.issuer: %s", host(s.Issuer), s.Issuer)
	}
	return userError(err, "%s rejected the registration of %s", host(s.Issuer), who)
}

// reject remembers for a while that an authorization server has refused a registration, so that another
// one of the upstream is used. It reports whether it was refused, and not missed.
func (c *Client) reject(name, issuer string, err error) bool {
	if _, refused := errors.AsType[*errorAnswer](err); !refused {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rejects) >= mostRejects {
		clear(c.rejects)
	}
	c.rejects[name+" "+issuer] = c.Now().Add(metadataTTL)
	return true
}

// mostRejects bounds the refused registrations that are remembered.
const mostRejects = 1000

// refusal handles the refusal of a sign-in. If the authorization server no longer knows our
// registration, the next sign-in registers again. If it does not take our client metadata document,
// Junction registers instead, once: a registration is preferred to the document from then on.
func (c *Client) refusal(ctx context.Context, name string, u Upstream, a attempt, err error) error {
	no, refused := errors.AsType[*errorAnswer](err)
	if !refused || no.code != "invalid_client" && no.code != "unauthorized_client" || u.ClientID != "" {
		return err
	}
	s, failed := c.discoverServer(ctx, u, a.Issuer)
	if failed != nil {
		return err
	}
	if a.ClientID != c.documentURL() {
		k := store.Connection{Upstream: name, Issuer: a.Issuer, TokenEndpoint: a.Token, ClientID: a.ClientID}
		if failed := c.forgetClient(ctx, u, k); failed != nil {
			c.Log.Warn("the authorization server rejected our client_id", "upstream", name, "issuer", a.Issuer,
				"error", failed)
		}
		return err
	}
	if s.RegistrationEndpoint == "" {
		return err
	}
	who := store.UpstreamClient{Upstream: name, Issuer: s.Issuer, RedirectURI: c.redirect(name), AuthMethod: methodNone}
	if _, failed := c.registerOnce(ctx, u, s, who); failed != nil {
		return failed
	}
	return userError(err, "%s does not accept the client metadata document of this server, so this server has "+
		"registered there; connect %s again", host(a.Issuer), name)
}

// configured returns the client with the configured id and secret. They are for the configured
// issuer only: the upstream could name another one, which would get the secret.
func (c *Client) configured(who store.UpstreamClient, u Upstream, s *serverMetadata) (store.UpstreamClient, error) {
	if !sameIssuer(u.Issuer, s.Issuer) {
		return who, userError(errOtherClient, "the configuration has no client_id for %s", host(s.Issuer))
	}
	who.ClientID, who.Secret, who.AuthMethod = u.ClientID, u.ClientSecret, s.methodOf(u)
	return who, nil
}

// register registers this server (RFC 7591), and fills in the result.
func (c *Client) register(ctx context.Context, u Upstream, s *serverMetadata, who *store.UpstreamClient) error {
	asked := c.registration(who.RedirectURI)
	asked.ApplicationType = "web"
	if strings.HasPrefix(who.RedirectURI, "http://") {
		asked.ApplicationType = "native" // only native clients may use loopback
	}
	if !slices.Contains(s.AuthMethods, methodNone) {
		asked.AuthMethod = s.secretMethod()
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
	_, body, err := c.send(ctx, u, r, nil)
	if err != nil {
		return err
	}
	var got struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`

		Expires json.RawMessage `json:"client_secret_expires_at"`
	}
	if err := json.Unmarshal(body, &got); err != nil || got.ID == "" {
		return errors.New("its answer has no client_id")
	}
	who.ClientID, who.Secret, who.AuthMethod = got.ID, got.Secret, got.Method
	if who.AuthMethod == "" {
		who.AuthMethod = methodNone
		if got.Secret != "" {
			who.AuthMethod = s.secretMethod()
		}
	}
	if m, _ := method(who.AuthMethod); who.AuthMethod != methodNone && (got.Secret == "" || !m.Secret) {
		return errors.New("its answer has an unsupported token_endpoint_auth_method, or no client_secret for it")
	}
	if who.SecretExpires = (time.Time{}); who.AuthMethod != methodNone {
		who.SecretExpires = secretExpiry(got.Expires, c.Now())
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
		known, err := c.registeredAs(ctx, u, k)
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
	who := store.UpstreamClient{Upstream: k.Upstream, RedirectURI: c.redirectOf(k.Upstream, u), ClientID: k.ClientID}
	var err error
	for _, issuer := range spellings(k.Issuer) {
		now := registrar(issuer, k.TokenEndpoint)
		for _, who.Issuer = range []string{now, earlier(now)} {
			err = errors.Join(err, c.Store.DropUpstreamClient(ctx, who))
		}
	}
	return err
}

func host(where string) string {
	if u, err := url.Parse(where); err == nil {
		return u.Host
	}
	return "the server"
}
