// Package bridge connects a client that only starts commands to a Streamable HTTP endpoint: it
// moves messages between standard input and output and the endpoint, in both eras.
//
// Params, results and errors pass through unchanged. The bridge adds the HTTP headers (modern.go),
// keeps the session of a legacy client (legacy.go), and keeps both usable while the endpoint
// restarts. It changes only the ids of server requests (questions.go): the client sees one
// connection, which may use several sessions one after the other. command.go is junction stdio, and
// chooses the endpoint and the credential.
//
// The bridge is no Junction with one upstream. A Junction rejects calls of unknown and hidden tools,
// unknown methods and invalid cursors itself, so that the audit of the endpoint would miss them. It
// also declares only those capabilities of a client that it knows.
package bridge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

const (
	// how long a request is sent again while the endpoint cannot be reached
	defaultPatience = 5 * time.Second
	// how long in-flight requests may run after the end of standard input; official clients send
	// SIGTERM after two seconds
	lastAnswers = 1500 * time.Millisecond
	// time limit of a message without a response: a notification, or the answer to a server request
	sendTime = 10 * time.Second
	// maximum size of a message, in bytes; the limits of the endpoint are usually smaller
	maxMessage = 256 << 20
	maxPause   = time.Second // between two attempts to send a request
)

// Options configure Run. URL, In and Out are required.
type Options struct {
	URL     string
	Headers map[string]string // of each request; nil for none
	// Token returns the credential of a request, as in transport.HTTPOptions. Nil means none.
	// "" means that the request has none.
	Token  func(ctx context.Context, refused ...string) (string, error)
	In     io.Reader
	Out    io.Writer // only messages are written here
	Notes  io.Writer // receives one line for each problem, for the user; nil discards
	Absent string    // what the user should do if nothing listens at URL; "" is the Junction of this user
	// Patience is how long a request is sent again while the endpoint cannot be reached. Default
	// 5s.
	Patience time.Duration
	// Open makes the connections. Nil means Streamable HTTP.
	Open func(in transport.Receiver) transport.Transport
}

// Run moves messages until In ends, ctx ends, or Out cannot be written. After In has ended,
// in-flight requests have a moment to finish. When ctx ends first, a goroutine stays in In.Read
// until that returns, because a read cannot be interrupted.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	b := newBridge(ctx, o, stop)
	defer b.close()
	defer stop(nil) // before close: it ends the requests
	lines := make(chan line)
	go func() { // ends with In, or at the next line after Run has returned
		defer close(lines)
		read(ctx, o.In, lines)
	}()
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				b.linger(ctx)
				return outputError(ctx)
			}
			if l.err != nil && !errors.As(l.err, new(*stdio.LongLineError)) {
				return fmt.Errorf("read standard input: %w", l.err)
			}
			b.take(ctx, l)
		case <-ctx.Done():
			return outputError(ctx)
		}
	}
}

// line is a line of the client, or the error of reading one.
type line struct {
	text []byte
	err  error
}

func read(ctx context.Context, in io.Reader, lines chan<- line) {
	from := stdio.NewLines(in, maxMessage)
	for {
		text, err := from.Next()
		if err == io.EOF {
			return
		}
		select {
		case lines <- line{text, err}:
		case <-ctx.Done():
			return
		}
		if err != nil && !errors.As(err, new(*stdio.LongLineError)) {
			return
		}
	}
}

// outputError returns the error of writing to Out, if that has ended ctx.
func outputError(ctx context.Context) error {
	if failed, ok := errors.AsType[*writeError](context.Cause(ctx)); ok {
		return failed
	}
	return nil
}

// bridge is one client's connection.
type bridge struct {
	Options
	ctx       context.Context // ends with Run
	out       *output
	notes     *notes
	modern    transport.Transport // without a session; for modern requests, and for legacy ones without a session
	headers   paramHeaders
	questions questions
	opening   chan struct{} // holds a value while a session is being opened
	leaving   chan struct{} // closed at the end of In: requests are not sent again

	mu      sync.Mutex // guards the rest
	closed  bool
	work    sync.WaitGroup // requests and the like
	flights map[jsonrpc.ID]*flight
	session *session      // of the legacy client; nil before initialize
	hello   chan struct{} // flight.done of the last initialize; nil before the first
}

// flight is a request of the client without a response.
type flight struct {
	cancel  context.CancelFunc
	modern  bool
	listens bool          // subscriptions/listen, which has no end of its own
	silent  bool          // cancelled: the client expects no response; guarded by bridge.mu
	done    chan struct{} // closed after the response
}

func newBridge(ctx context.Context, o Options, stop context.CancelCauseFunc) *bridge {
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	if o.Notes == nil {
		o.Notes = io.Discard
	}
	if o.Open == nil {
		pool := transport.NewPool(o.URL)
		o.Open = func(in transport.Receiver) transport.Transport {
			return transport.OpenHTTP(transport.HTTPOptions{
				URL: o.URL, Headers: o.Headers, Token: o.Token, TokenOptional: true, MessageLimit: maxMessage,
				Pool: pool,
			}, in)
		}
	}
	return &bridge{
		Options: o, ctx: ctx, out: &output{w: o.Out, failed: stop},
		notes:  &notes{w: o.Notes, url: o.URL, absent: o.Absent},
		modern: o.Open(func(*jsonrpc.Message) {}), opening: make(chan struct{}, 1),
		leaving: make(chan struct{}), flights: map[jsonrpc.ID]*flight{},
	}
}

// close waits for everything that runs, and ends the session. The context of Run must have ended.
func (b *bridge) close() {
	b.mu.Lock()
	b.closed = true
	s := b.session
	b.mu.Unlock()
	b.work.Wait()
	if s != nil {
		s.Close()
	}
	b.modern.Close()
}

// start runs f in a goroutine that close waits for. It does nothing after close.
func (b *bridge) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.work.Go(f)
	}
}

// linger waits a moment for the responses to the client's last requests.
func (b *bridge) linger(ctx context.Context) {
	close(b.leaving)
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	b.mu.Lock()
	var left []*flight
	for _, f := range b.flights {
		if !f.listens && !f.silent {
			left = append(left, f)
		}
	}
	b.mu.Unlock()
	for _, f := range left {
		select {
		case <-f.done:
		case <-ctx.Done():
			return
		}
	}
}

// take handles one line of the client. Requests run in their own goroutines; everything else is
// sent before the next line is read, so that the order is kept.
func (b *bridge) take(ctx context.Context, l line) {
	if long, ok := errors.AsType[*stdio.LongLineError](l.err); ok {
		b.out.fail(long.Request, mcp.INVALID_REQUEST, long.Error())
		return
	}
	if text := bytes.TrimLeft(l.text, " \t"); text[0] == '[' {
		b.takeBatch(ctx, text)
		return
	}
	m, err := jsonrpc.Parse(l.text, raw.DefaultDepth)
	if err != nil {
		code := int64(mcp.INVALID_REQUEST)
		if errors.As(err, new(*raw.SyntaxError)) {
			code = mcp.PARSE_ERROR
		}
		b.notes.say("the client sent a line that is not a message: " + err.Error())
		b.out.fail(m.ID, code, err.Error())
		return
	}
	switch {
	case m.IsRequest():
		b.request(ctx, &m)
	case m.IsResponse():
		b.respond(ctx, &m)
	default:
		b.notify(ctx, &m)
	}
}

// takeBatch handles an array of messages, which only the version 2025-03-26 has. The responses are
// not batched.
func (b *bridge) takeBatch(ctx context.Context, text []byte) {
	elements, err := raw.Elements(bytes.TrimSpace(text))
	switch s := b.current(); {
	case err != nil:
		b.out.fail("", mcp.PARSE_ERROR, err.Error())
	case s == nil || s.version != mcp.ProtocolVersion20250326 || len(elements) == 0:
		b.out.fail("", mcp.INVALID_REQUEST, "a batch of messages; only the protocol version 2025-03-26 has batches")
	default:
		for _, e := range elements {
			if e = bytes.TrimSpace(e); e[0] == '[' {
				b.out.fail("", mcp.INVALID_REQUEST, "a batch within a batch")
				continue
			}
			b.take(ctx, line{text: e})
		}
	}
}

// request starts a request of the client. The era is that of the request, not of the connection
// (2026-07-28, basic/versioning).
func (b *bridge) request(ctx context.Context, m *jsonrpc.Message) {
	version, isModern := modernVersion(m)
	ctx, cancel := context.WithCancel(ctx)
	f := &flight{cancel: cancel, modern: isModern, listens: isModern && m.Method == methodListen,
		done: make(chan struct{})}
	isHello := !isModern && m.Method == string(mcp.MethodInitialize)
	if !b.track(m.ID, f, isHello) {
		cancel()
		b.out.fail(m.ID, mcp.INVALID_REQUEST, "a request with this id is in progress")
		return
	}
	b.start(func() {
		defer cancel()
		defer close(f.done)
		var answer *jsonrpc.Message
		var err error
		switch {
		case f.listens:
			answer, err = b.listen(ctx, m, version)
		case isModern:
			answer, err = b.callModern(ctx, m, version)
		case isHello:
			answer, err = b.initialize(ctx, m)
		default:
			b.greeted(ctx)
			answer, err = b.callLegacy(ctx, m)
		}
		if !b.untrack(m.ID, f) {
			return
		}
		if err != nil {
			answer = &jsonrpc.Message{Error: b.problem(err)}
		}
		b.out.write(&jsonrpc.Message{ID: m.ID, Result: answer.Result, Error: answer.Error})
	})
}

// track registers a request. It returns false if one with this id is in progress.
func (b *bridge) track(id jsonrpc.ID, f *flight, hello bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flights[id] != nil {
		return false
	}
	b.flights[id] = f
	if hello {
		b.hello = f.done
	}
	return true
}

// greeted waits for the response to initialize, because a client may send messages before it has
// that response.
func (b *bridge) greeted(ctx context.Context) {
	b.mu.Lock()
	hello := b.hello
	b.mu.Unlock()
	if hello == nil {
		return
	}
	select {
	case <-hello:
	case <-ctx.Done():
	}
}

// untrack removes a request, and reports whether the client expects a response.
func (b *bridge) untrack(id jsonrpc.ID, f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flights[id] == f {
		delete(b.flights, id)
	}
	return !f.silent && b.ctx.Err() == nil
}

// notify sends a notification of the client. A cancellation of a modern request closes its response
// instead (2026-07-28, basic/patterns/cancellation). Other notifications exist in the legacy era
// only.
func (b *bridge) notify(ctx context.Context, m *jsonrpc.Message) {
	if m.Method == methodCancelled {
		id, _ := m.Body.Get("requestId") // an absent id is the id of no request
		b.mu.Lock()
		f := b.flights[jsonrpc.ID(id)]
		if f != nil {
			f.silent = true
		}
		b.mu.Unlock()
		if f != nil && f.modern {
			f.cancel()
			return
		}
	}
	waiting, cancel := context.WithTimeout(ctx, sendTime)
	b.greeted(waiting)
	cancel()
	if s := b.current(); s != nil {
		b.send(ctx, s, m)
		if m.Method == methodInitialized {
			b.listenLegacy(s)
		}
	}
}

// respond sends the client's answer to a server request. An answer to a request of an earlier
// session is dropped: it was withdrawn.
func (b *bridge) respond(ctx context.Context, m *jsonrpc.Message) {
	if s, id := b.questions.answered(m.ID); s != nil {
		m.ID = id
		b.send(ctx, s, m)
	}
}

// send sends a message that has no response.
func (b *bridge) send(ctx context.Context, s *session, m *jsonrpc.Message) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if err := s.Send(ctx, &transport.Request{Message: *m}); err != nil && b.ctx.Err() == nil {
		b.notes.failed(err)
	}
}

// persist repeats try while the request has provably not reached the endpoint, for the time of
// Patience: the endpoint may be starting.
func (b *bridge) persist(ctx context.Context, try func() (*jsonrpc.Message, error)) (*jsonrpc.Message, error) {
	until := time.Now().Add(b.Patience)
	for pause := time.Duration(0); ; pause = min(max(2*pause, maxPause/10), maxPause) {
		answer, err := try()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b.notes.tried(err)
		if !errors.Is(err, transport.ErrNotSent) || time.Now().Add(pause).After(until) {
			return answer, err
		}
		if !b.sleep(ctx, pause) {
			return answer, err
		}
	}
}

// sleep returns false if ctx or the client's input ends first.
func (b *bridge) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.leaving:
		return false
	case <-ctx.Done():
		return false
	}
}

// output writes messages as lines.
type output struct {
	failed context.CancelCauseFunc // called with a *writeError
	mu     sync.Mutex
	w      io.Writer
	buffer []byte
}

type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func (o *output) write(m *jsonrpc.Message) {
	const kept = 64 << 10 // bytes of the buffer between messages
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buffer = stdio.AppendFrame(o.buffer[:0], m)
	if _, err := o.w.Write(o.buffer); err != nil {
		o.failed(&writeError{fmt.Errorf("write to standard output: %w", err)})
	}
	if cap(o.buffer) > kept {
		o.buffer = nil
	}
}

// fail writes an error response. Without an id it is for a message whose id could not be read.
func (o *output) fail(id jsonrpc.ID, code int64, text string) {
	o.write(&jsonrpc.Message{ID: id, Error: &jsonrpc.Error{Code: code, Message: text}})
}

// tell writes a notification of the bridge.
func (o *output) tell(method string, params []byte) {
	o.write(&jsonrpc.Message{Method: method, Params: params})
}
