// Package fetch gets documents from URLs that strangers name: what a client says about itself, its
// keys, what an upstream says about its sign-in.
//
// Whoever names a URL has us connect to it, so that the address is checked when it is dialled,
// whatever a name resolved to before; nothing is followed, nothing is unpacked, and bytes and time
// are bounded. Only what the operator has named may be somewhere else than on the public internet.
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
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Fetcher gets documents. The zero value gets them by https, from port 443 of public addresses, in
// 5 seconds each. It may be used by several goroutines at once, and is not to be changed then.
type Fetcher struct {
	// AllowPrivate are the networks that may be connected to although they are not public: any
	// port, and by http too. Its prefixes are of IPv4 and IPv6, none of IPv4 in IPv6.
	AllowPrivate []netip.Prefix
	// Ports of public addresses; nil means 443.
	Ports []uint16
	// RootCAs are whose certificates are believed; nil means those of the system.
	RootCAs *x509.CertPool
	// Timeout is for all of one fetch, from the look-up of the name to the last byte; 0 means 5
	// seconds.
	Timeout time.Duration
	// MaxBody bounds the bodies that Client gets; 0 means 64 KiB.
	MaxBody int64
	// Resolver looks up names; nil means the system's way.
	Resolver *net.Resolver
}

// Document is what was found at a URL.
type Document struct {
	Body   []byte
	Header http.Header // for how long it is fresh, say
}

// Class is what went wrong, in words that a page may show: they tell nothing about the network that
// we are in.
type Class string

const (
	BadURL      Class = "the URL is not one that can be fetched"
	DNS         Class = "the name could not be resolved"
	Private     Class = "the address is not a public one"
	Unreachable Class = "the server could not be reached"
	Certificate Class = "the server's certificate is not valid"
	Timeout     Class = "the server took too long"
	Status      Class = "the server did not answer with the document"
	TooLarge    Class = "the document is too large"
	Type        Class = "the document is not of the right type"
)

// Error is why a document could not be had. Its text names the host and the class alone; the cause,
// which it wraps, is for logs.
type Error struct {
	Class Class
	Host  string // as it was named
	Code  int    // of a Status
	Err   error  // may be nil
}

func (e *Error) Error() string {
	if e.Class == Status {
		return fmt.Sprintf("%s: %s (%d)", e.Host, e.Class, e.Code)
	}
	return e.Host + ": " + string(e.Class)
}

func (e *Error) Unwrap() error { return e.Err }

// errPrivate is why an address is not dialled.
var errPrivate = errors.New("the address may not be connected to")

// errTooLarge is what a body ends with that is larger than it may be.
var errTooLarge = errors.New("the body is too large")

// Get returns the document of a URL, of at most max bytes, which an answer of 200 gives. The error
// is an *Error.
func (f *Fetcher) Get(ctx context.Context, address string, max int64) (Document, error) {
	return f.get(ctx, address, max, false)
}

// GetJSON is Get for a document that the server says is JSON. What is in it is not looked at.
func (f *Fetcher) GetJSON(ctx context.Context, address string, max int64) (Document, error) {
	return f.get(ctx, address, max, true)
}

func (f *Fetcher) get(ctx context.Context, address string, max int64, wantJSON bool) (Document, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Document{}, &Error{Class: BadURL, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Document{}, &Error{Class: BadURL, Host: u.Host, Err: err}
	}
	if wantJSON {
		r.Header.Set("Accept", "application/json")
	}
	// A server that sees us leave may still end its answer in time for us to read it: what there is
	// of it is not the document, nor why there is none.
	failed := func(err error) (Document, error) {
		if late := ctx.Err(); late != nil {
			err = late
		}
		return Document{}, classify(u.Host, err)
	}
	response, err := f.guarded(max).RoundTrip(r)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return failed(&Error{Class: Status, Host: u.Host, Code: response.StatusCode})
	}
	if wantJSON && !isJSON(response.Header.Get("Content-Type")) {
		return failed(&Error{Class: Type, Host: u.Host})
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || ctx.Err() != nil {
		return failed(err)
	}
	return Document{body, response.Header}, nil
}

// Client returns a client for libraries that fetch by themselves, with the same guard: no
// redirects, no other addresses, and bodies of at most MaxBody, the reading of which fails beyond
// it. An error of it wraps an *Error where the guard was the reason. Nobody but its caller has it,
// or its connections.
func (f *Fetcher) Client() *http.Client {
	max := f.MaxBody
	if max == 0 {
		max = 64 << 10
	}
	return &http.Client{
		Transport:     f.guarded(max),
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

// guarded is a way to servers that checks every URL and every address, and bounds every answer.
type guarded struct {
	secure, plain *http.Transport // plain is nil where nothing may be had by http
	max           int64
}

func (f *Fetcher) guarded(max int64) *guarded {
	g := &guarded{secure: f.transport(f.control), max: max}
	if len(f.AllowPrivate) > 0 {
		g.plain = f.transport(f.controlPrivate)
	}
	return g
}

// transport keeps no connection: who is at its other end was checked for one request. Proxies of
// the environment would connect in our place, unchecked.
func (f *Fetcher) transport(control func(network, address string, c syscall.RawConn) error) *http.Transport {
	dialer := net.Dialer{Timeout: f.timeout(), Resolver: f.Resolver, Control: control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: f.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    f.timeout(),
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 32 << 10,
	}
}

// control refuses an address that is about to be dialled.
func (f *Fetcher) control(network, address string, c syscall.RawConn) error {
	if f.controlPrivate(network, address, c) == nil {
		return nil
	}
	ports := f.Ports
	if ports == nil {
		ports = []uint16{443}
	}
	if err := ssrf.New(ssrf.WithPorts(ports...)).Safe(network, address, c); err != nil {
		return fmt.Errorf("%w: %w", errPrivate, err)
	}
	return nil
}

// controlPrivate refuses all addresses but those of AllowPrivate.
func (f *Fetcher) controlPrivate(_, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err == nil {
		for _, prefix := range f.AllowPrivate {
			if prefix.Contains(to.Addr()) { // never of IPv4 in IPv6, or of one with a zone
				return nil
			}
		}
	}
	return fmt.Errorf("%w: %s", errPrivate, address)
}

// RoundTrip sends a request whose URL may be fetched.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := g.secure
	switch u := r.URL; {
	case u.Hostname() == "" || u.User != nil || u.Opaque != "" || u.Fragment != "":
		return refuse(r, errors.New("a URL has a host, and no user or fragment"))
	case u.Scheme == "http" && g.plain != nil:
		transport = g.plain
	case u.Scheme != "https":
		return refuse(r, errors.New("the scheme is not https"))
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
		return fail(Type) // a few bytes that unpack to gigabytes
	}
	if response.ContentLength > g.max {
		return fail(TooLarge)
	}
	response.Body = &bounded{response.Body, g.max}
	return response, nil
}

// refuse answers a request that is not sent.
func refuse(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, &Error{Class: BadURL, Host: r.URL.Host, Err: err}
}

// bounded is a body that fails where it is too large, instead of ending there as if that were all.
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

// classify tells what went wrong.
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
