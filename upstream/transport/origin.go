package transport

import (
	"bytes"
	"cmp"
	"context"
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

// HTTPOptions configure a connection to a remote server. A limit of zero means its default.
type HTTPOptions struct {
	URL     string
	Headers map[string]string // sent with every request to this origin, and nowhere else
	// Forward are the names of Headers that a Request with Called does not have.
	Forward []string
	// Callers are headers of the clients for which alone the transport is, for every request. No error shows them.
	Callers []http1.Field
	// Token returns the access token for a request to this origin; see Credentials. May be nil.
	Token func(ctx context.Context, refused ...string) (string, error)
	// Others returns the values that Headers have now, after a request with sent was answered 401 and had no
	// token; nil if they are the same. It may wait until they are read again. May be nil.
	Others func(ctx context.Context, sent map[string]string) map[string]string
	// TokenOptional means that Token may return "", for a request without a token.
	TokenOptional bool
	Carrier       Carrier // of the token
	// Renews reports whether a request with the message m (nil for none) that was answered 401, with a
	// challenge or without, is sent again with another token. If it is nil, each request is.
	Renews func(m *jsonrpc.Message, challenged bool) bool
	// Renewals are those of the upstream, which its transports share; nil means that the transport has its
	// own.
	Renewals     *Renewals
	MessageLimit int // maximum size of one message from the server, in bytes
	Depth        int // maximum nesting of one message from the server
	Log          *slog.Logger
	// Doubted is called when a server of the legacy era refuses a listening stream, or the rest of a
	// broken one, as if the session had ended, and when a request for one could not be sent. Then only the
	// answer to a POST ends the session, so that calls in flight get answers of their own. It must not
	// block. If it is nil, such a refusal ends the session.
	// An owner that gives it also finds out why a request is refused that is no Request.Own (renewal.go).
	// If it is nil, each request counts as one.
	Doubted func(error)
	Account Account // for what belongs to no caller; nil does not limit it
	// connection pool shared by the transports of an upstream, which do not close it; if it is nil,
	// the transport has its own pool
	Pool *Pool
}

// Carrier is the header in which a token is sent. The zero value is Authorization with the scheme Bearer. With
// a Header, Scheme "" sends the token alone.
type Carrier struct{ Header, Scheme string }

// Name returns the name of the header.
func (c Carrier) Name() string { return cmp.Or(c.Header, "Authorization") }

// field returns the header with a token.
func (c Carrier) field(token string) http1.Field {
	scheme := c.Scheme
	if c.Header == "" {
		scheme = cmp.Or(scheme, "Bearer")
	}
	if scheme != "" {
		token = scheme + " " + token
	}
	return http1.Field{Name: c.Name(), Value: token}
}

const (
	maxRedirects = 3
	// after this number of refused tokens, a request fails: the user has to sign in again
	maxRefused = 2
	drainSize  = 64 << 10    // bytes read after a response so that the connection can be reused
	drainTime  = time.Second // time limit of that
	// connections of one transport that are being drained; more are closed
	maxDraining = 256
	// up to this size, the buffer of a body is allocated with the size of Content-Length
	exactSize = 4 << 20
)

// errTooLarge means that a message from the server exceeds the limit.
var errTooLarge = errors.New("the answer is larger than limits.message")

// origin sends HTTP requests to the origin of one URL only. Both HTTP transports embed it.
type origin struct {
	url   *url.URL
	pool  *Pool
	own   bool // pool is not shared
	conns connections
	// the exchanges over conns.plain; nil if that is nil
	plain *http1.Group
	// configured headers and Junction's own; never modified
	header  http.Header
	forward []string      // HTTPOptions.Forward, canonical
	callers []http1.Field // HTTPOptions.Callers
	// headers of a POST to an endpoint that belongs to a session; nil for none
	posts     http.Header
	doubted   func(error)                                                  // see HTTPOptions; may be nil
	token     func(ctx context.Context, refused ...string) (string, error) // see HTTPOptions
	renews    func(m *jsonrpc.Message, challenged bool) bool               // see HTTPOptions
	tokenless bool                                                         // TokenOptional
	sent      map[string]string                                            // HTTPOptions.Headers
	others    func(ctx context.Context, sent map[string]string) map[string]string
	// values of the headers that others has returned last; nil for none
	renewed atomic.Pointer[[]string]
	carrier Carrier
	// the token of the latest request; nil before the first
	last     atomic.Pointer[string]
	private  atomic.Pointer[[]string] // what identifies the session of the server (conceal.go); nil for none
	renewals *Renewals                // never nil
	limit    int
	depth    int
	account  Account // may be nil
	log      *slog.Logger
	odd      LogLimit // limits log lines about protocol violations

	ctx      context.Context // ends with the transport; every request's context is derived from it
	cancel   context.CancelCauseFunc
	mu       sync.Mutex // guards closed, so that no work begins while close waits
	closed   bool
	work     sync.WaitGroup // calls, listening, draining
	draining atomic.Int32
	Ending
}

// init prepares the origin. If the URL is invalid, the origin has ended at once.
func (o *origin) init(opts HTTPOptions) {
	o.limit, o.depth, o.log = cmp.Or(opts.MessageLimit, 64<<20), cmp.Or(opts.Depth, raw.DefaultDepth), opts.Log
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.pool = opts.Pool; o.pool == nil {
		o.pool, o.own = NewPool(opts.URL), true
	}
	if o.conns.pool = o.pool; o.pool.http == nil {
		o.conns.plain = &http1.Client{Dial: o.pool.dial, MaxIdle: plainIdle}
	}
	o.token, o.renews, o.tokenless, o.account = opts.Token, opts.Renews, opts.TokenOptional, opts.Account
	o.carrier, o.sent, o.others = opts.Carrier, opts.Headers, opts.Others
	o.doubted = opts.Doubted
	if o.renewals = opts.Renewals; o.renewals == nil {
		o.renewals = new(Renewals)
	}
	o.header = http.Header{"User-Agent": {"junction"}, headerAcceptEncoding: {"identity"}}
	for name, value := range opts.Headers {
		o.header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	o.callers = opts.Callers
	for _, f := range o.callers {
		o.header[textproto.CanonicalMIMEHeaderKey(f.Name)] = []string{f.Value}
	}
	for _, name := range opts.Forward {
		o.forward = append(o.forward, textproto.CanonicalMIMEHeaderKey(name))
	}
	o.Ending = NewEnding()
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	var err error
	if o.url, err = url.Parse(opts.URL); err != nil {
		o.Over(errors.New("the url is no URL"))
		return
	}
	if o.conns.plain != nil {
		address := net.JoinHostPort(o.url.Hostname(), port(o.url))
		o.plain = &http1.Group{Client: o.conns.plain, Address: address, Closing: o.ctx}
	}
}

// begin registers one operation; the caller must call work.Done. It fails after the origin has
// ended.
func (o *origin) begin() error {
	if o.Ended() {
		return NotSent(o.reason)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return NotSent(ErrClosed)
	}
	o.work.Add(1)
	return nil
}

// sessionGone ends the transport after a response that says that the session has ended. It returns
// the error for the request.
func (o *origin) sessionGone(e *StatusError) error {
	// without the text of the response, which is only for the caller of this request
	o.Over(fmt.Errorf("%w: %w", ErrSessionGone, &StatusError{Status: e.Status}))
	return NotSent(fmt.Errorf("%w: %w", ErrSessionGone, e))
}

// close aborts all operations and waits for them.
func (o *origin) close() {
	o.Over(ErrClosed)
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	if o.plain != nil {
		o.plain.Abort()
	}
	o.cancel(ErrClosed)
	o.work.Wait()
}

// release closes the idle connections that are not shared.
func (o *origin) release() {
	o.conns.closeIdle()
	if o.own {
		o.pool.CloseIdleConnections()
	}
}

// do sends a request with the message m as its body (nil for none) and returns when the response
// header has arrived. It follows redirects that keep the method and the origin; the caller handles
// every other response. header is not modified, and the caller must not modify it later. more
// replaces fields of the same name, as in with. own is Request.Own.
//
// If requests need a token, do asks for one before sending. After a 401 the server has processed
// nothing, so do sends the request again with another token, as another decides; or without tokens
// once with other headers, as otherHeaders decides.
//
// When ctx ends, even after do has returned, the trip is aborted unless it was detached. The error
// is context.Cause(ctx) then.
func (o *origin) do(ctx context.Context, method string, u *url.URL, header http.Header, m *jsonrpc.Message,
	own bool, more ...http1.Field) (*trip, error) {
	t := &trip{url: u}
	own = own || o.doubted == nil
	isPlain := o.plain != nil
	if !isPlain {
		// The trip's context does not derive from ctx: callers cancel ctx when they have the
		// response, and the connection could then not be reused.
		t.ctx, t.cancel = context.WithCancel(o.ctx)
		if len(more) > 0 {
			header = with(header, more...)
		}
	}
	t.stop = context.AfterFunc(ctx, t.breakOff)
	if m != nil {
		t.out.set(m)
	}
	fields := len(more)
	var refused []string // tokens
	again := false       // with other headers
	token, err := o.authorize(ctx, nil)
	if err != nil {
		t.close()
		return nil, err
	}
	for hops := 0; ; hops++ {
		if token != "" {
			field := o.carrier.field(token)
			if more = append(more[:fields:fields], field); !isPlain {
				header = with(header, field)
			}
		}
		r := http.Request{
			Method: method, URL: t.url, Host: t.url.Host, Header: header,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
		if m != nil {
			body := &t.first
			if hops > 0 || len(refused) > 0 || again {
				body = new(reader) // the transport may still use the first reader
			}
			*body = t.out.reader()
			r.Body, r.ContentLength = body, t.out.size
		}
		resp, err := o.send(ctx, t, &r, more)
		if err != nil {
			t.close()
			return nil, o.failed(ctx, t, err)
		}
		if t.Response = resp; t.isCoded() {
			t.inflate(o.limit)
		}
		next := redirect(t)
		if token != "" && resp.StatusCode == http.StatusUnauthorized {
			if err := o.foreign(t, m); err != nil {
				t.close()
				return nil, err
			}
			refused = append(refused, token)
			other, again, err := o.another(ctx, m, own, t.get("Www-Authenticate") != "", refused)
			if err != nil {
				t.close()
				return nil, err
			}
			if again {
				token, next, hops = other, t.url, hops-1
			}
			t.renewed = !own && !again
		}
		if o.others != nil && token == "" && !again && resp.StatusCode == http.StatusUnauthorized {
			if err := o.foreign(t, m); err != nil {
				t.close()
				return nil, err
			}
			if other := o.otherHeaders(ctx, header, m, own, t.get("Www-Authenticate") != ""); len(other) > 0 {
				if more = append(more[:fields:fields], other...); !isPlain {
					header = with(header, other...)
				}
				again, next, hops = true, t.url, hops-1
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

// foreign returns an error if a response is the response to another request than m. It reads no body of
// unknown length.
func (o *origin) foreign(t *trip, m *jsonrpc.Message) error {
	if m == nil || !isJSON(t.media()) || t.ContentLength <= 0 || t.ContentLength > statusBody {
		return nil
	}
	text := make([]byte, t.ContentLength)
	late := time.AfterFunc(statusTime, t.breakOff)
	n, err := io.ReadFull(t.Body, text)
	late.Stop()
	if found, broken := jsonrpc.ParseSingle(text[:n], o.depth); err == nil && broken == nil && isOther(&found, m.ID) {
		return o.misplaced(t, &found, m.ID)
	}
	t.Body = &readAgain{bytes.NewReader(text[:n]), t.Body}
	return nil
}

// readAgain is a body of which the start was read before.
type readAgain struct {
	start *bytes.Reader
	io.ReadCloser
}

func (r *readAgain) Read(p []byte) (int, error) {
	if r.start.Len() > 0 {
		return r.start.Read(p)
	}
	return r.ReadCloser.Read(p)
}

// distrust makes sure that no other request uses the connection of a response, because the next
// response on it may belong to another request, too.
func (o *origin) distrust(t *trip) {
	t.breakOff()
	if t.ProtoMajor == 1 && o.plain == nil {
		o.conns.closeIdle() // the connection has become idle at the end of the body
	}
}

// send sends a request once, with more fields if the pool uses package http1.
func (o *origin) send(ctx context.Context, t *trip, r *http.Request, more []http1.Field) (*http.Response, error) {
	if o.plain != nil {
		return o.plain.Do(ctx, &t.exchange, r, more)
	}
	if r.Body != nil {
		r.GetBody = t.out.again
	}
	return o.conns.roundTrip(r.WithContext(t.ctx))
}

// authorize returns the token for a request; refused lists the tokens that the server has refused
// for it. It returns "" if requests need no token.
func (o *origin) authorize(ctx context.Context, refused []string) (string, error) {
	if o.token == nil {
		return "", nil
	}
	token, err := o.token(ctx, refused...)
	if err == nil && !VisibleASCII(token) && !(token == "" && o.tokenless) {
		err = &TokenError{Err: errors.New("its token is none that a header can carry")}
	}
	if err == nil && token != "" {
		o.last.Store(&token)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return token, err
}

// VisibleASCII reports whether s is a valid, non-empty header value without spaces.
func VisibleASCII(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// failed returns the reason why there is no response, or why its body is incomplete.
func (o *origin) failed(ctx context.Context, t *trip, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.ctx.Err() != nil:
		return ErrClosed
	case t.Response == nil && !t.out.begun.Load():
		// Nothing has read the body, so the message was not sent: the connection failed, or was
		// closed before the first byte.
		return NotSent(err)
	case t.Response == nil:
		return fmt.Errorf("the connection broke before the answer: %w", err)
	}
	return err
}

// NotSent adds ErrNotSent to the chain of err.
func NotSent(err error) error { return &notSentError{err} }

// notSentError has ErrNotSent in its chain, but not in its text.
type notSentError struct{ error }

func (e *notSentError) Unwrap() []error { return []error{ErrNotSent, e.error} }

// redirect returns the target of a redirect that keeps the method, or nil.
func redirect(t *trip) *url.URL {
	if t.StatusCode != http.StatusTemporaryRedirect && t.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	return location(t)
}

// location returns the target of a redirect, or nil.
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

// sameURL compares origin, path and query.
func sameURL(a, b *url.URL) bool { return sameOrigin(a, b) && a.RequestURI() == b.RequestURI() }

// sameOrigin compares scheme, host and port (RFC 6454).
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	s, _ := SchemeOf(u)
	return cmp.Or(u.Port(), s.Port)
}

// with returns a copy of the header with more fields, which replace fields of the same name.
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
