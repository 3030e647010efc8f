package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// HTTPOptions describe a remote server. A limit of zero is its default.
type HTTPOptions struct {
	URL     string
	Headers map[string]string // sent with every request to this origin, and nowhere else
	// Token returns what each request to this origin is authorized with, as Credentials does; nil
	// means that none is authorized so.
	Token        func(ctx context.Context, refused ...string) (string, error)
	MessageLimit int // bytes of one message from the server
	Depth        int // nesting of one message from the server
	Log          *slog.Logger
	// shared by the transports of an upstream, and not closed by them; nil means one of the
	// transport's own
	Pool http.RoundTripper
}

const (
	maxRedirects = 3
	// refused tokens of one request, after which no other token is tried: the person has to sign in
	// again
	maxRefused  = 2
	drainSize   = 64 << 10    // of what follows an answer, read so that the connection can be used again
	drainTime   = time.Second // for the same
	maxDraining = 256         // connections of one transport that are being drained; beyond it they are closed
	exactSize   = 4 << 20     // up to here a body's buffer is made as large as the server says that the body is
)

// errTooLarge means that a message of the server's exceeds the limit.
var errTooLarge = errors.New("the answer is larger than limits.message")

// newHTTPPool returns the pool of connections that the transports of one upstream share. It is
// closed with CloseIdleConnections.
func newHTTPPool() http.RoundTripper {
	return &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: dial,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(16)},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true, // a TLSClientConfig or DialContext of our own would otherwise turn it off
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        60 * time.Second,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// NewPool returns the pool of connections to the origin of a URL.
func NewPool(rawURL string) http.RoundTripper {
	r, err := http.NewRequest(http.MethodPost, rawURL, nil)
	if err == nil && r.URL.Scheme == "http" {
		if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy == nil {
			return &http1.Client{Dial: dial}
		}
	}
	return newHTTPPool()
}

// origin sends HTTP requests to the origin of one URL only. It is what the two HTTP transports have
// in common.
type origin struct {
	url *url.URL
	// what rt is used through if it is an http1.Client; otherwise nil
	plain  *http1.Group
	header http.Header                                                  // of the configuration, and ours; never modified
	token  func(ctx context.Context, refused ...string) (string, error) // see HTTPOptions
	last   atomic.Pointer[string]                                       // the token of the latest request; nil before
	rt     http.RoundTripper
	own    bool // rt is not shared
	limit  int
	depth  int
	log    *slog.Logger
	odd    LogLimit // of what the log is told that the server should not have sent

	ctx      context.Context // ends with the transport; every request's context is derived from it
	cancel   context.CancelCauseFunc
	mu       sync.Mutex // guards closed, so that nothing begins while close waits for work
	closed   bool
	work     sync.WaitGroup // calls, listening, draining
	draining atomic.Int32

	once   sync.Once     // the first reason is the one
	reason error         // set before gone is closed
	gone   chan struct{} // closed when the transport cannot be used any more
}

// init prepares the origin. A URL that is none makes an origin that is over.
func (o *origin) init(opts HTTPOptions) {
	o.odd = NewLogLimit()
	o.limit, o.depth, o.log = cmp.Or(opts.MessageLimit, 64<<20), cmp.Or(opts.Depth, raw.DefaultDepth), opts.Log
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.rt = opts.Pool; o.rt == nil {
		o.rt, o.own = NewPool(opts.URL), true
	}
	o.token = opts.Token
	o.header = http.Header{"User-Agent": {"junction"}}
	for name, value := range opts.Headers {
		o.header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	o.gone = make(chan struct{})
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	var err error
	if o.url, err = url.Parse(opts.URL); err != nil {
		o.over(errors.New("the url is no URL"))
		return
	}
	if p, ok := o.rt.(*http1.Client); ok {
		o.plain = &http1.Group{Client: p, Address: net.JoinHostPort(o.url.Hostname(), port(o.url)), Closing: o.ctx}
	}
}

// begin registers one operation, which ends with work.Done. It fails once the origin has ended.
func (o *origin) begin() error {
	if o.Ended() {
		return notSent(o.why())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return notSent(ErrClosed)
	}
	o.work.Add(1)
	return nil
}

// over ends the transport; nil means that we closed it. Calls in flight continue.
func (o *origin) over(reason error) {
	o.once.Do(func() {
		o.reason = reason
		close(o.gone)
	})
}

// Ended implements Transport.
func (o *origin) Ended() bool {
	select {
	case <-o.gone:
		return true
	default:
		return false
	}
}

// why returns the reason of a transport that has ended.
func (o *origin) why() error {
	if o.reason == nil {
		return ErrClosed
	}
	return o.reason
}

// Wait implements Transport. The first reason stays: after Close it still returns why a transport
// had ended before.
func (o *origin) Wait() error {
	<-o.gone
	return o.reason
}

// close aborts all operations and waits for them.
func (o *origin) close() {
	o.over(nil)
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	if o.plain != nil {
		o.plain.Abort()
	}
	o.cancel(ErrClosed)
	o.work.Wait()
}

// release closes the idle connections, if the pool is not shared.
func (o *origin) release() {
	if c, ok := o.rt.(interface{ CloseIdleConnections() }); ok && o.own {
		c.CloseIdleConnections()
	}
}

// do sends a request, with the message m as its body unless that is nil, and returns when the
// header of the response is there. It follows redirects that keep the method and the origin; every
// other response is the caller's, whatever its status. header is not modified, and must not be
// afterwards; more replaces fields of the same name, as in with.
//
// Where requests are authorized by a token, it is asked for first, and once more when the server
// says 401: then the server has looked at nothing, and the request is sent again with another one.
//
// When ctx ends, before or after the return, the trip is broken off, until it is detached. The
// error is context.Cause(ctx) then.
func (o *origin) do(ctx context.Context, method string, u *url.URL, header http.Header, m *jsonrpc.Message,
	more ...http1.Field) (*trip, error) {
	t := &trip{url: u}
	isPlain := o.plain != nil
	if !isPlain {
		// The trip's context is no child of ctx, because callers end theirs when they have the
		// answer, and the connection would be lost with it.
		t.ctx, t.cancel = context.WithCancel(o.ctx)
		if len(more) > 0 {
			header = with(header, more...)
		}
	}
	t.stop = context.AfterFunc(ctx, t.breakOff)
	if m != nil {
		t.out.set(m)
	}
	own := len(more)
	var refused []string // tokens
	for hops := 0; ; hops++ {
		token, err := o.authorize(ctx, refused)
		if err != nil {
			t.close()
			return nil, err
		}
		if token != "" {
			field := http1.Field{Name: "Authorization", Value: "Bearer " + token}
			if more = append(more[:own:own], field); !isPlain {
				header = with(header, field)
			}
		}
		r := http.Request{
			Method: method, URL: t.url, Host: t.url.Host, Header: header,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
		if m != nil {
			body := &t.first
			if hops > 0 || len(refused) > 0 {
				body = new(reader) // the transport may not be done with the first
			}
			*body = t.out.reader()
			r.Body, r.ContentLength = body, t.out.size
		}
		var resp *http.Response
		if isPlain {
			resp, err = o.plain.Do(ctx, &t.exchange, &r, more)
		} else {
			if m != nil {
				r.GetBody = t.out.again
			}
			resp, err = o.rt.RoundTrip(r.WithContext(t.ctx))
		}
		if err != nil {
			t.close()
			return nil, o.failed(ctx, t, err)
		}
		t.Response = resp
		next := redirect(t)
		if token != "" && resp.StatusCode == http.StatusUnauthorized {
			if refused = append(refused, token); len(refused) <= maxRefused {
				next, hops = t.url, hops-1
			}
		}
		if next == nil || hops == maxRedirects || !sameOrigin(next, o.url) {
			if resp.StatusCode/100 == 3 {
				to := location(t)
				t.circle = to != nil && (sameURL(to, t.url) || sameURL(to, u))
			}
			return t, nil
		}
		if 0 < resp.ContentLength && resp.ContentLength <= 4<<10 {
			io.Copy(io.Discard, resp.Body) // an error shows in the next round trip
		}
		resp.Body.Close()
		t.Response, t.url = nil, next
	}
}

// authorize returns the token for a request of which these were refused; "" where there is none to
// send.
func (o *origin) authorize(ctx context.Context, refused []string) (string, error) {
	if o.token == nil {
		return "", nil
	}
	token, err := o.token(ctx, refused...)
	if err == nil && !visibleASCII(token) {
		err = &TokenError{Err: errors.New("its token is none that a header can carry")}
	}
	if err == nil {
		o.last.Store(&token)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return token, err
}

// visibleASCII reports whether s is not empty and can stand in a header.
func visibleASCII(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// failed returns why there is no response, or why its body broke off.
func (o *origin) failed(ctx context.Context, t *trip, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.ctx.Err() != nil:
		return ErrClosed
	case t.Response == nil && !t.out.begun.Load():
		// The body was not read, so no message was sent: there was no connection, or it was closed
		// before the first byte.
		return notSent(err)
	case t.Response == nil:
		return fmt.Errorf("the connection broke before the answer: %w", err)
	}
	return err
}

// notSent adds ErrNotSent to the chain of err.
func notSent(err error) error { return &notSentError{err} }

// notSentError has ErrNotSent in its chain, but not in its text.
type notSentError struct{ error }

func (e *notSentError) Unwrap() []error { return []error{ErrNotSent, e.error} }

// redirect returns where a response sends its request again with the same method, or nil.
func redirect(t *trip) *url.URL {
	if t.StatusCode != http.StatusTemporaryRedirect && t.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	return location(t)
}

// location returns where a redirect points, or nil.
func location(t *trip) *url.URL {
	text := t.get("Location")
	if text == "" {
		return nil
	}
	u, err := t.url.Parse(text)
	if err != nil || u.Host == "" {
		return nil
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u
}

// sameURL compares what a request is made of.
func sameURL(a, b *url.URL) bool { return sameOrigin(a, b) && a.RequestURI() == b.RequestURI() }

// sameOrigin compares scheme, host and port (RFC 6454).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// drain reads what follows an answer until its end, so that the connection can be used again, and
// closes the trip. It does not wait: servers end a stream in a moment, but not in the same packet.
// Close waits for it; the caller is a piece of work itself.
func (o *origin) drain(t *trip) {
	if 0 < t.ContentLength && t.ContentLength <= 4<<10 {
		// such a body came with its header; an error means that the connection is not used again
		io.CopyN(io.Discard, t, t.ContentLength)
	}
	t.detach()
	if t.over || o.draining.Load() >= maxDraining {
		t.close()
		return
	}
	o.draining.Add(1)
	o.work.Go(func() {
		defer o.draining.Add(-1)
		late := time.AfterFunc(drainTime, t.breakOff)
		io.CopyN(io.Discard, t, drainSize) // an error means that the connection is not used again
		late.Stop()
		t.close()
	})
}

func (o *origin) tooLarge() error { return tooLarge(o.limit) }

// tooLarge is the error for an answer of more than limit bytes, over every transport.
func tooLarge(limit int) error {
	return fmt.Errorf("%w: %w of %s; raise limits.message, or request less", ErrInvalid, errTooLarge,
		FormatSize(int64(limit)))
}

// FormatSize returns the size in the largest unit that divides it.
func FormatSize(s int64) string {
	switch {
	case s >= 1<<30 && s%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", s>>30)
	case s >= 1<<20 && s%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", s>>20)
	case s >= 1<<10 && s%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", s>>10)
	}
	return fmt.Sprintf("%d bytes", s)
}

// body reads the whole body of a response, into the buffer if there is one, which grows; otherwise
// into one as large as the server said, if it did. The error may come with what was read.
func (o *origin) body(t *trip, buffer *[]byte) (text []byte, err error) {
	if buffer != nil {
		defer func() { *buffer = text }()
	}
	known, most := t.ContentLength, t.ContentLength
	if known > int64(o.limit) {
		return nil, errTooLarge
	}
	if known > uncharged {
		if err := t.reserve(known); err != nil {
			return nil, err
		}
	}
	size := min(known, exactSize)
	if known < 0 {
		size, most = 1<<10, int64(o.limit)+1
	}
	var b []byte
	if buffer != nil && int64(cap(*buffer)) >= size {
		b = (*buffer)[:0]
	} else {
		b = make([]byte, 0, size)
	}
	for {
		if len(b) > o.limit {
			return b[:o.limit], errTooLarge
		}
		if len(b) == cap(b) && int64(len(b)) != known {
			size := max(int64(len(b))+1, min(2*int64(cap(b)), most))
			if known < 0 && size > uncharged {
				if err := t.reserve(size - int64(cap(b))); err != nil {
					return b, err
				}
			}
			grown := make([]byte, len(b), size)
			b = grown[:copy(grown, b)]
		}
		into := b[len(b):cap(b)]
		if len(into) == 0 {
			into = make([]byte, 1) // the body is as long as was said; what is missing is its end
		}
		n, err := t.Read(into)
		if len(b)+n <= cap(b) {
			b = b[:len(b)+n]
		}
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

// with returns the header with more fields, which replace those of the same name.
func with(header http.Header, more ...http1.Field) http.Header {
	h := make(http.Header, len(header)+len(more))
	maps.Copy(h, header)
	values := make([]string, len(more))
	for i, f := range more {
		values[i] = f.Value
		h[textproto.CanonicalMIMEHeaderKey(f.Name)] = values[i : i+1 : i+1]
	}
	return h
}
