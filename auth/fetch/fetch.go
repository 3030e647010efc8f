// Package fetch gets documents from untrusted URLs: client metadata documents, their keys, and the
// sign-in metadata of upstreams.
//
// Such a URL could make this server connect into its own network. So the address is checked when it
// is dialled, after name resolution; redirects are not followed, bodies are not decompressed, and
// size and time are limited. Only networks that the operator allows may be non-public.
package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Fetcher gets documents. The zero value gets them by https from port 443 of public addresses,
// within 5 seconds each. It may be used by several goroutines, and must not change then.
type Fetcher struct {
	// AllowPrivate are non-public networks to allow, on any port and also by http. The prefixes
	// must not be IPv4-mapped IPv6.
	AllowPrivate []netip.Prefix
	// ports of public addresses; nil means 443.
	ports []uint16
	// RootCAs are the trusted certificate authorities; nil means the authorities of the system.
	RootCAs *x509.CertPool
	// Timeout is for a whole fetch, from name resolution to the last byte; 0 means 5 seconds.
	Timeout time.Duration
	// resolver resolves names; nil means the system's resolver.
	resolver *net.Resolver
}

// Document is the content of a URL.
type Document struct {
	Body   []byte
	Header http.Header // for example Cache-Control
}

// Class is the kind of a failure, in words for a page. It reveals nothing about the local network.
type Class string

const (
	BadURL      Class = "the URL cannot be fetched"
	DNS         Class = "the host name cannot be resolved"
	Plain       Class = "the URL begins with http (outbound.allow_private permits that in a private network)"
	Private     Class = "the address is not public (outbound.allow_private permits a private one)"
	Unreachable Class = "the server cannot be reached"
	Certificate Class = "the server's certificate is not valid (outbound.ca_file adds an authority)"
	Timeout     Class = "the server took too long"
	Status      Class = "the server did not answer with the document"
	TooLarge    Class = "the document is too large"
	Type        Class = "the document has the wrong type"
)

// Error is a failed fetch. Its text contains only the host and the class; the cause, which it
// wraps, is for logs.
type Error struct {
	Class Class
	Host  string // as in the URL
	Code  int    // HTTP status, for Status
	Err   error  // may be nil
}

func (e *Error) Error() string {
	if e.Class == Status {
		return fmt.Sprintf("%s: %s (%d)", e.Host, e.Class, e.Code)
	}
	return e.Host + ": " + string(e.Class)
}

func (e *Error) Unwrap() error { return e.Err }

// errPrivate means that an address must not be dialled.
var errPrivate = errors.New("connections to this address are not allowed")

// errTooLarge is the read error of a body beyond its limit.
var errTooLarge = errors.New("the body is too large")

// GetJSON returns the document of a URL, of at most max bytes, from an answer with status 200 and a
// JSON content type. It does not parse the document. The error is an *Error.
func (f *Fetcher) GetJSON(ctx context.Context, address string, max int64) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Document{}, &Error{Class: BadURL, Err: err}
	}
	host := r.URL.Host
	r.Header.Set("Accept", "application/json")
	// After a timeout the server may still complete its answer, but a late answer is not the
	// document.
	failed := func(err error) (Document, error) {
		if late := ctx.Err(); late != nil {
			err = late
		}
		return Document{}, classify(host, err)
	}
	response, err := f.guarded(max).RoundTrip(r)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return failed(&Error{Class: Status, Host: host, Code: response.StatusCode})
	}
	if !isJSON(response.Header.Get("Content-Type")) {
		return failed(&Error{Class: Type, Host: host})
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || ctx.Err() != nil {
		return failed(err)
	}
	return Document{body, response.Header}, nil
}

const maxBody = 64 << 10 // of Client

// Client returns an HTTP client for libraries, with the same restrictions: no redirects, only
// allowed addresses, and bodies of at most 64 KiB, beyond which reading fails. Its errors wrap an
// *Error if a restriction was the reason. Each call returns a new client with its own connections.
func (f *Fetcher) Client() *http.Client { return f.client(f.guarded(maxBody)) }

// Showing is Client, and shows a certificate to servers that ask for one.
func (f *Fetcher) Showing(certificate *tls.Certificate) *http.Client {
	g := f.guarded(maxBody)
	g.secure.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	return f.client(g)
}

func (f *Fetcher) client(g *guarded) *http.Client {
	return &http.Client{
		Transport:     g,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       f.timeout(),
	}
}

func (f *Fetcher) timeout() time.Duration {
	if f.Timeout > 0 {
		return f.Timeout
	}
	return 5 * time.Second
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") &&
		strings.HasSuffix(media, "+json"))
}

// guarded is a transport that checks every URL and address, and limits every answer.
type guarded struct {
	secure, plain *http.Transport // plain is nil if http is not allowed
	max           int64
}

func (f *Fetcher) guarded(max int64) *guarded {
	g := &guarded{secure: f.transport(f.control), max: max}
	if len(f.AllowPrivate) > 0 {
		g.plain = f.transport(f.controlPrivate)
	}
	return g
}

// transport returns a transport without keep-alive, since an address is checked for one request,
// and without proxies, which would connect unchecked.
func (f *Fetcher) transport(control func(network, address string, c syscall.RawConn) error) *http.Transport {
	dialer := net.Dialer{Timeout: f.timeout(), Resolver: f.resolver, Control: control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: f.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    f.timeout(),
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 32 << 10,
	}
}

// control rejects addresses that must not be dialled.
func (f *Fetcher) control(network, address string, c syscall.RawConn) error {
	if f.controlPrivate(network, address, c) == nil {
		return nil
	}
	ports := f.ports
	if ports == nil {
		ports = []uint16{443}
	}
	if err := ssrf.New(ssrf.WithPorts(ports...)).Safe(network, address, c); err != nil {
		return fmt.Errorf("%w: %w", errPrivate, err)
	}
	return nil
}

// Public returns an error if an address is not public: one of this machine, of a private or a
// link-local network, or of another special range (IANA). An IPv4-mapped IPv6 address counts as its
// IPv4 address. A caller that dials must check the address of the connection: a lookup before it may
// have returned another address.
func Public(address netip.Addr) error {
	if err := ssrf.New(ssrf.WithAnyPort()).SafeAddr(address.Unmap()); err != nil {
		return fmt.Errorf("%w: %w", errPrivate, err)
	}
	return nil
}

// controlPrivate rejects all addresses outside of AllowPrivate.
func (f *Fetcher) controlPrivate(_, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err == nil {
		for _, prefix := range f.AllowPrivate {
			if prefix.Contains(to.Addr()) { // never for IPv4-mapped addresses, or with a zone
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %s", errPrivate, address)
}

// RoundTrip sends a request if its URL is allowed.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := g.secure
	switch u := r.URL; {
	case u.Hostname() == "" || u.User != nil || u.Opaque != "" || u.Fragment != "":
		return refuse(r, BadURL, errors.New("the URL must have a host, and no user or fragment"))
	case u.Scheme == "http" && g.plain != nil:
		transport = g.plain
	case u.Scheme == "http":
		return refuse(r, Plain, nil)
	case u.Scheme != "https":
		return refuse(r, BadURL, errors.New("the scheme is not https"))
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept-Encoding", "identity")
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, classify(r.URL.Host, err)
	}
	fail := func(class Class) (*http.Response, error) {
		_ = response.Body.Close()
		return nil, &Error{Class: class, Host: r.URL.Host}
	}
	if e := response.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fail(Type) // a small body could expand to gigabytes
	}
	if response.ContentLength > g.max {
		return fail(TooLarge)
	}
	response.Body = Bounded(response.Body, g.max)
	return response, nil
}

// refuse rejects a request without sending it.
func refuse(r *http.Request, class Class, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, &Error{Class: class, Host: r.URL.Host, Err: err}
}

// Bounded returns a body whose reading fails after max bytes, instead of ending there.
func Bounded(body io.ReadCloser, max int64) io.ReadCloser { return &bounded{body, max} }

// bounded is the body of Bounded.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.left = 0
		return 0, errTooLarge
	}
	return n, err
}

// classify returns the error with its class.
func classify(host string, err error) *Error {
	var (
		known *Error
		dns   *net.DNSError
		cert  *tls.CertificateVerificationError
		late  net.Error
	)
	class := Unreachable
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, errPrivate):
		class = Private
	case errors.Is(err, errTooLarge):
		class = TooLarge
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		class = Timeout
	case errors.As(err, &dns):
		class = DNS
	case errors.As(err, &cert):
		class = Certificate
	}
	return &Error{Class: class, Host: host, Err: err}
}
