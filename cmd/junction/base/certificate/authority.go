package certificate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
)

// Protocol is the protocol of the connections with which an authority checks a host (RFC 8737).
const Protocol = acme.ALPNProto

// Directory is the directory of Let's Encrypt, the authority of a file that names none.
const Directory = acme.LetsEncryptURL

// Authority orders certificates from an ACME authority (RFC 8555). The authority checks the host by a connection
// to its port 443, which Challenge answers.
type Authority struct {
	Directory string // the URL of the directory
	Email     string // for the authority's messages; "" for none
	Agent     string // the User-Agent
	HTTP      *http.Client
	Binding   *Binding // nil if the authority needs none

	mu         sync.Mutex
	challenges map[string]*tls.Certificate // by host, while an order is checked
}

// Binding is the key that an authority has given a customer for the first use of an account (RFC 8555, 7.3.4).
type Binding = acme.ExternalAccountBinding

// needsBinding is the type of the error of an authority that needs a Binding (RFC 8555, 6.7).
const needsBinding = "urn:ietf:params:acme:error:externalAccountRequired"

// Bounds of an order, and of its requests.
const (
	orderLimit   = 5 * time.Minute
	requestLimit = 30 * time.Second
	tries        = 3  // of a request to which the authority answered with a fault of its own
	nonces       = 10 // of a request whose nonce the authority does not accept (RFC 8555, section 6.5)
)

// Order orders a certificate for a host, with the key of the account. It takes at most five minutes.
func (a *Authority) Order(ctx context.Context, account crypto.Signer, host string) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	bounded := *a.HTTP
	bounded.Timeout = requestLimit
	c := &acme.Client{Key: account, DirectoryURL: a.Directory, HTTPClient: &bounded, UserAgent: a.Agent,
		RetryBackoff: pauseOf}
	own := &acme.Account{ExternalAccountBinding: a.Binding}
	if a.Email != "" {
		own.Contact = []string{"mailto:" + a.Email}
	}
	if _, err := c.Register(ctx, own, acme.AcceptTOS); err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		if refused, is := errors.AsType[*acme.Error](err); is && refused.ProblemType == needsBinding {
			err = fmt.Errorf("%w; set tls.acme.eab_key_id and eab_secret, which it gives its customers", err)
		}
		if _, answered := errors.AsType[*acme.Error](err); !answered {
			return nil, fmt.Errorf("the authority cannot be asked: %w", err)
		}
		return nil, fmt.Errorf("the authority does not accept the account: %w", err)
	}
	order, err := c.AuthorizeOrder(ctx, acme.DomainIDs(host))
	if err != nil {
		return nil, fmt.Errorf("the authority does not accept the order: %w", err)
	}
	for _, url := range order.AuthzURLs {
		if err := a.authorize(ctx, c, url, host); err != nil {
			return nil, err
		}
	}
	at := order.URI // only the first answer has it
	if order, err = c.WaitOrder(ctx, at); err != nil {
		return nil, fmt.Errorf("the authority rejects the order: %w", err)
	}
	return finalize(ctx, c, order.FinalizeURL, at, host)
}

// pauseOf returns the pause before a request is sent again. A request that the authority limits is not sent again:
// the error has the time to wait.
func pauseOf(n int, _ *http.Request, resp *http.Response) time.Duration {
	if resp.StatusCode == http.StatusBadRequest && n < nonces { // the authority has dropped the nonce of the request
		return time.Duration(n) * 100 * time.Millisecond
	}
	if n >= tries || resp.StatusCode == http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "" {
		return -1
	}
	return time.Duration(n) * time.Second
}

// authorize shows that this machine has the host.
func (a *Authority) authorize(ctx context.Context, c *acme.Client, url, host string) error {
	z, err := c.GetAuthorization(ctx, url)
	if err != nil {
		return fmt.Errorf("the authority does not show how it checks %s: %w", host, err)
	}
	if z.Status == acme.StatusValid {
		return nil
	}
	i := slices.IndexFunc(z.Challenges, func(one *acme.Challenge) bool { return one.Type == "tls-alpn-01" })
	if i < 0 {
		return fmt.Errorf("the authority checks %s in other ways than by TLS (tls-alpn-01); use the files of another "+
			"ACME client (tls.cert_file)", host)
	}
	challenge := z.Challenges[i]
	answer, err := c.TLSALPN01ChallengeCert(challenge.Token, host)
	if err != nil {
		return err
	}
	a.answer(host, &answer)
	defer a.answer(host, nil)
	if _, err = c.Accept(ctx, challenge); err == nil {
		_, err = c.WaitAuthorization(ctx, z.URI)
	}
	if _, unseen := errors.AsType[*acme.AuthorizationError](err); unseen {
		return fmt.Errorf("the authority could not check %s; its port 443 must lead to this process: %w", host, err)
	} else if err != nil {
		return fmt.Errorf("the authority does not finish its check of %s: %w", host, err)
	}
	return nil
}

// finalize gets the certificate of the order at a URL, with a new key.
func finalize(ctx context.Context, c *acme.Client, url, order, host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{host}}, key)
	if err != nil {
		return nil, err
	}
	chain, _, err := c.CreateOrderCert(ctx, url, request, true)
	if err != nil {
		chain, err = collect(ctx, c, order, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the authority does not issue the certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err == nil {
		err = leaf.VerifyHostname(host)
	}
	if err != nil {
		return nil, fmt.Errorf("the authority issued a certificate that cannot be used: %w", err)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// collect fetches the certificate of an order that the authority still processes. CreateOrderCert waits for it only
// if the answer to its request has the URL of the order, which RFC 8555 does not require (section 7.4). failed is
// its error, which counts if the request did not reach the order.
func collect(ctx context.Context, c *acme.Client, order string, failed error) ([][]byte, error) {
	o, err := c.GetOrder(ctx, order)
	if err == nil && o.Status == acme.StatusProcessing {
		o, err = c.WaitOrder(ctx, order)
	}
	if err != nil || o.Status != acme.StatusValid {
		return nil, failed
	}
	return c.FetchCert(ctx, o.CertURL, true)
}

// answer sets the answer to the check of a host; nil removes it.
func (a *Authority) answer(host string, c *tls.Certificate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.challenges == nil {
		a.challenges = map[string]*tls.Certificate{}
	}
	if a.challenges[host] = c; c == nil {
		delete(a.challenges, host)
	}
}

// Challenge returns the answer to the check of an authority; ok is false for the handshake of a client.
func (a *Authority) Challenge(hello *tls.ClientHelloInfo) (c *tls.Certificate, ok bool, err error) {
	if len(hello.SupportedProtos) != 1 || hello.SupportedProtos[0] != Protocol {
		return nil, false, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c = a.challenges[hello.ServerName]; c == nil {
		return nil, true, errors.New("no order of this host is being checked")
	}
	return c, true, nil
}

// retryAfter returns the time that the authority asks to wait after an error; zero if it asks for none.
func retryAfter(err error, now time.Time) time.Time {
	problem, is := errors.AsType[*acme.Error](err)
	if !is {
		return time.Time{}
	}
	text := problem.Header.Get("Retry-After")
	if wait, err := time.ParseDuration(text + "s"); err == nil && wait > 0 {
		return now.Add(wait)
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at
	}
	return time.Time{}
}
