package oauth

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"junction/auth/store"
)

// This file has the methods of client authentication: how Junction proves to an authorization server which
// client sends a request (RFC 7591, section 2: token_endpoint_auth_method). A row has every fact about a
// method. A test demands that the table in auth/README.md has its row, and that upstream.Modes has its keys.

const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
)

// A Method is one of the methods.
type Method struct {
	Name string
	// Keys are the keys of auth that the method needs beside client_id; the first one chooses it. Methods
	// with the same keys differ in what the authorization server accepts.
	Keys []string
	// Secret reports whether the proof is the client secret, which a registration may return.
	Secret bool
	Cell   string // of the table in auth/README.md

	has   func(u Upstream) bool // whether an entry has the Keys
	prove func(c *Client, r *clientRequest) error
}

// methods are the rows. Of the methods that an entry has, the first one that the metadata list is used, or
// else the first one.
var methods = []Method{
	{
		Name: methodBasic, Keys: []string{"client_secret"}, Secret: true,
		Cell: "the secret in the header `Authorization`",
		has:  hasSecret,
		prove: func(_ *Client, r *clientRequest) error { // RFC 6749, section 2.3.1
			r.basic = &[2]string{url.QueryEscape(r.who.ClientID), url.QueryEscape(r.who.Secret)}
			return nil
		},
	},
	{
		Name: "client_secret_post", Keys: []string{"client_secret"}, Secret: true,
		Cell: "the secret in the form, if the metadata do not list Basic",
		has:  hasSecret,
		prove: func(_ *Client, r *clientRequest) error {
			r.form.Set("client_id", r.who.ClientID)
			r.form.Set("client_secret", r.who.Secret)
			return nil
		},
	},
	{
		Name: "private_key_jwt", Keys: []string{"private_key_file"},
		Cell:  "a JWT that the key has signed (RFC 7523)",
		has:   func(u Upstream) bool { return u.KeyFile != "" },
		prove: (*Client).assert,
	},
	{
		Name: "tls_client_auth", Keys: []string{"cert_file", "key_file"},
		Cell:  "the certificate in the TLS handshake (RFC 8705)",
		has:   func(u Upstream) bool { return u.Certificate != nil },
		prove: (*Client).showCertificate,
	},
	{
		Name: methodNone, Cell: "`client_id` alone, for a client without a secret",
		has:   func(Upstream) bool { return true },
		prove: func(_ *Client, r *clientRequest) error { r.form.Set("client_id", r.who.ClientID); return nil },
	},
}

func hasSecret(u Upstream) bool { return u.ClientSecret != "" }

// Methods returns the rows.
func Methods() []Method { return slices.Clone(methods) }

// method returns the row of a name, and whether there is one.
func method(name string) (Method, bool) {
	i := slices.IndexFunc(methods, func(m Method) bool { return m.Name == name })
	if i < 0 {
		return Method{}, false
	}
	return methods[i], true
}

// methodOf returns how the configured client of an upstream proves what it is.
func (s *serverMetadata) methodOf(u Upstream) string {
	return s.choose(func(m Method) bool { return m.has(u) })
}

// secretMethod returns how a secret is sent whose registration names no method.
func (s *serverMetadata) secretMethod() string {
	return s.choose(func(m Method) bool { return m.Secret })
}

// choose returns the method of those that fit. The first one is the default of RFC 7591 and RFC 8414.
func (s *serverMetadata) choose(fits func(Method) bool) string {
	var first []Method // those with the keys of the first one that fits
	for _, m := range methods {
		if fits(m) && (len(first) == 0 || slices.Equal(m.Keys, first[0].Keys)) {
			first = append(first, m)
		}
	}
	for _, m := range first {
		if slices.Contains(s.AuthMethods, m.Name) {
			return m.Name
		}
	}
	return first[0].Name
}

// A clientRequest is a form for an endpoint of an authorization server, from a client that proves what it
// is.
type clientRequest struct {
	upstream    Upstream
	server      *serverMetadata
	who         store.UpstreamClient
	where       string // the endpoint
	form        url.Values
	basic       *[2]string       // user and password of the header; nil for none
	certificate *tls.Certificate // for the handshake; nil for none
}

// errUnknownMethod means that the store has a method that this program does not have.
var errUnknownMethod = errors.New("this program cannot prove to be the client by the method of its registration")

// prove adds to the request what proves who sends it.
func (c *Client) prove(r *clientRequest) error {
	m, known := method(r.who.AuthMethod)
	if !known {
		return errUnknownMethod
	}
	return m.prove(c, r)
}

// A Certificate is a certificate with its key in two files.
type Certificate interface {
	// Read reads the files. The error names them, and has nothing of their content.
	Read(now time.Time) (*tls.Certificate, error)
}

// mtlsAliases are the endpoints of an authorization server that asks for certificates only there (RFC 8705,
// section 5).
type mtlsAliases struct {
	Token string `json:"token_endpoint"`
}

// showCertificate has the connection show the certificate of the client (RFC 8705, section 2).
func (c *Client) showCertificate(r *clientRequest) (err error) {
	r.form.Set("client_id", r.who.ClientID)
	if r.where == r.server.TokenEndpoint && r.server.Aliases.Token != "" {
		r.where = r.server.Aliases.Token
	}
	if at, err := url.Parse(r.where); err != nil || at.Scheme != "https" {
		return errors.New("auth.cert_file: the token endpoint is not https, so that no certificate can be shown there")
	}
	r.certificate, err = r.upstream.Certificate.Read(c.Now())
	return err
}

// showing returns a client like one of c's whose connections show a certificate. They are not kept.
func showing(client *http.Client, certificate *tls.Certificate) (*http.Client, error) {
	own, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("auth.cert_file: this program has no connections that can show a certificate")
	}
	own = own.Clone()
	if own.TLSClientConfig == nil {
		own.TLSClientConfig = new(tls.Config)
	}
	own.TLSClientConfig.Certificates, own.DisableKeepAlives = []tls.Certificate{*certificate}, true
	showing := *client
	showing.Transport = own
	return &showing, nil
}
