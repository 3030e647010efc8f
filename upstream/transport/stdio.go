package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// StdioOptions describe a child process and its time limits. Only Command must be set.
type StdioOptions struct {
	Command []string          // the program and its arguments; no shell is involved
	Env     map[string]string // added to what is inherited; a PATH in it is also where the program is looked for
	Inherit []string          // further variables of ours that are inherited, beside the default ones: names and globs
	// Reserved are variables that are inherited only if Inherit has their exact names
	Reserved []string
	Dir      string       // the working directory; empty means ours, or that of Confine
	Confine  *Confinement // nil confines nothing

	MessageLimit int           // bytes of one line from the server. Default 16 MiB
	Depth        int           // nesting of one message. Default raw.DefaultDepth
	StopGrace    time.Duration // between stdin closed, SIGTERM and SIGKILL. Default 2s
	LastWords    time.Duration // see lastWords, which is the default
	// how long the server may leave a full input pipe alone before it counts as hung. Default 30s
	WriteStall time.Duration
	Watchdog   *Watchdog    // has one more group to keep; nil is one of its own
	Log        *slog.Logger // carries the upstream's name already; nil discards

	private map[string]string // variables of the cell, which Env goes before
	program string            // the program's path, where that is not Command's
}

func (o StdioOptions) withDefaults() StdioOptions {
	o.MessageLimit = cmp.Or(o.MessageLimit, 16<<20)
	o.Depth = cmp.Or(o.Depth, raw.DefaultDepth)
	o.StopGrace = cmp.Or(o.StopGrace, 2*time.Second)
	o.LastWords = cmp.Or(o.LastWords, lastWords)
	o.WriteStall = cmp.Or(o.WriteStall, 30*time.Second)
	if o.Watchdog == nil {
		o.Watchdog = new(Watchdog)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// stdio is the transport to a child process: one message per line on its standard input and output.
//
// Five goroutines belong to it, and Close waits for all of them: run, which decides when the
// transport is at its end and takes the process down; the reader of stdout; the reader of stderr;
// the owner of the process (stdio_process.go); and, while the input pipe is full, a writer that
// finishes the frame which stands half in the pipe.
type stdio struct {
	Duplex
	o       StdioOptions
	in      Receiver
	process *process

	turn  chan struct{} // held by who writes to stdin; handed over to finish, and kept for good by run at the end
	frame []byte        // the frame being written; belongs to the holder of turn
	pipe  pipeWriter    // belongs to the holder of turn

	mu     sync.Mutex
	calls  map[jsonrpc.ID]chan answer // that wait for a response
	left   map[jsonrpc.ID]Observer    // of calls that were given up after they had been sent; nil before the first
	many   int                        // from this number of them on, the settled ones are dropped
	reason error                      // set once, before over is closed; ErrClosed when we ended it

	spare   lineBuffers
	waiters sync.Pool // of chan answer: empty, and no longer in calls

	stopOnce sync.Once
	stopped  error         // why stop was closed; read it after that
	stop     chan struct{} // closed when we end the transport, the server did not
	drained  chan struct{} // closed when nothing more comes from stdout
	over     chan struct{} // closed when the transport cannot be used any more
	done     chan struct{} // closed when no goroutine and no process is left
}

// answer is what becomes of a call: a response, or the reason why none will come. Channels of it
// have room for one, and it is sent under stdio.mu by the goroutine that removes the call from
// stdio.calls.
type answer struct {
	m      *jsonrpc.Message
	buffer []byte // what m alone is in, if that is a large buffer; nil otherwise
	err    error
}

// take returns the answer to req. A large buffer is exchanged for that of the request; a request
// without one gets its result out of it, to keep for as long as it likes.
func (w *stdio) take(a answer, req *Request) (*jsonrpc.Message, error) {
	switch {
	case a.buffer == nil || a.m.Error != nil:
	case req.Buffer != nil:
		w.spare.give(*req.Buffer)
		*req.Buffer = a.buffer[:0]
	default:
		a.m.Result = bytes.Clone(a.m.Result)
		a.m.Body, _ = raw.Parse(a.m.Result) // an error is that it is no object
		w.spare.give(a.buffer)
	}
	return a.m, a.err
}

var (
	errStdinClosed  = errors.New("closed its standard input")
	errStdoutClosed = errors.New("closed its standard output")
)

// lastWords is how long the end of a process may trail after the first sign of it: between the end
// of its output and its exit status, between the exit and the last of its output. Within that time
// calls still get the answers that it wrote, and the reason becomes as good as it can be.
const lastWords = 200 * time.Millisecond

// frameKept is the largest frame whose buffer is kept for the next frame. Larger frames use a
// buffer of spare.
const frameKept = 256 << 10

// OpenStdio starts the server and returns at once. in receives the requests and notifications of
// the server, on the reading goroutine.
func OpenStdio(o StdioOptions, in Receiver) (Transport, error) {
	o = o.withDefaults()
	p, err := startProcess(o)
	if err != nil {
		return nil, err
	}
	w := &stdio{
		o:       o,
		in:      in,
		process: p,
		turn:    make(chan struct{}, 1),
		calls:   map[jsonrpc.ID]chan answer{},
		stop:    make(chan struct{}),
		drained: make(chan struct{}),
		over:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	w.waiters.New = func() any { return make(chan answer, 1) }
	w.pipe.open(p.stdin)
	go w.read()
	go w.run()
	return w, nil
}

// Call implements transport. It costs no goroutine switch on the way to the server while the pipe
// has room.
func (w *stdio) Call(ctx context.Context, req *Request, _ func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	c, err := w.expect(req.ID)
	if err != nil {
		return nil, err
	}
	if sent, err := w.write(ctx, &req.Message); err != nil {
		if a, ok := w.forget(req, c); ok && a.err == nil {
			return w.take(a, req)
		}
		return nil, sendError(sent, err)
	}
	select {
	case a := <-c:
		w.waiters.Put(c)
		return w.take(a, req)
	case <-ctx.Done():
		if a, ok := w.forget(req, c); ok {
			return w.take(a, req)
		}
		return nil, context.Cause(ctx)
	}
}

// Send implements transport.
func (w *stdio) Send(ctx context.Context, m *Request) error {
	if sent, err := w.write(ctx, &m.Message); err != nil {
		return sendError(sent, err)
	}
	return nil
}

// Wait implements transport. The reason is an *ExitError when the process ended by itself.
func (w *stdio) Wait() error {
	<-w.over
	if w.reason == ErrClosed {
		return nil
	}
	return w.reason
}

func (w *stdio) Ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// Close implements transport. It closes the server's input and gives it, and what it started, twice
// StopGrace to end. It must not be called by in.
func (w *stdio) Close() error {
	w.end(ErrClosed)
	<-w.done
	return nil
}

// end asks run to end the transport; the first reason counts.
func (w *stdio) end(reason error) {
	w.stopOnce.Do(func() {
		w.stopped = reason
		close(w.stop)
	})
}

// run waits for the end of the transport, fails all calls, and ends the process.
func (w *stdio) run() {
	defer close(w.done)
	select {
	case <-w.process.exited:
	case <-w.drained:
	case <-w.stop:
	}
	reason := w.why()
	w.fail(reason)
	w.process.finish(w.drained)
	<-w.drained
	<-w.process.silent
	w.turn <- struct{}{} // the input is closed, so its holder returns it soon; there is no write after this
}

// why returns the reason of the end. When the server gave the sign it waits a moment for the rest
// of what the server has to say.
func (w *stdio) why() error {
	reason := errStdoutClosed
	select {
	case <-w.stop:
		if reason = w.stopped; reason != errStdinClosed {
			return reason
		}
	default:
	}
	patience, cancel := context.WithTimeout(context.Background(), w.o.LastWords)
	defer cancel()
	for _, c := range []<-chan struct{}{w.process.exited, w.drained, w.process.silent} {
		select {
		case <-c:
		case <-patience.Done():
		}
	}
	if err := w.process.exitError(); err != nil {
		return err
	}
	return reason
}

// expect registers a call that waits for a response.
func (w *stdio) expect(id jsonrpc.ID) (chan answer, error) {
	c := w.waiters.Get().(chan answer)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason != nil {
		return nil, sendError(false, w.reason)
	}
	if _, ok := w.calls[id]; ok {
		return nil, sendError(false, fmt.Errorf("the id %s is in use", id))
	}
	w.calls[id] = c
	return c, nil
}

// forget removes a call. It returns the answer if one has come before.
func (w *stdio) forget(req *Request, c chan answer) (a answer, ok bool) {
	w.mu.Lock()
	if w.calls[req.ID] == c {
		delete(w.calls, req.ID)
		w.leave(req)
	} else {
		a, ok = <-c, true
	}
	w.mu.Unlock()
	w.waiters.Put(c)
	return a, ok
}

// leave remembers an abandoned call, to notice its late answer. w.mu is held.
func (w *stdio) leave(req *Request) {
	if req.Observer == nil || w.reason != nil {
		return
	}
	if w.left == nil {
		w.left = map[jsonrpc.ID]Observer{}
	}
	if len(w.left) >= w.many {
		maps.DeleteFunc(w.left, func(_ jsonrpc.ID, c Observer) bool { return c.Settled() })
		w.many = max(fewestLeft, 2*len(w.left))
	}
	w.left[req.ID] = req.Observer
}

// fewestLeft abandoned calls are remembered even if they are settled.
const fewestLeft = 64

// settle passes the answer to the waiting call. It returns false if there is none.
func (w *stdio) settle(id jsonrpc.ID, a answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.calls[id]; ok {
		delete(w.calls, id)
		c <- a
		return true
	}
	if late := w.left[id]; late != nil {
		delete(w.left, id)
		late.Late()
	}
	return false
}

// fail ends the transport and all calls on it.
func (w *stdio) fail(reason error) {
	w.mu.Lock()
	w.reason = reason
	for _, c := range w.calls {
		c <- answer{err: reason}
	}
	clear(w.calls)
	for _, late := range w.left {
		late.Late()
	}
	w.left = nil
	w.mu.Unlock()
	close(w.over)
}

// sendError adds ErrNotSent to the error of a frame of which no byte went out.
func sendError(sent bool, err error) error {
	if sent {
		return err
	}
	return notSent(err)
}

// write writes m as one line. sent is false only if it is certain that the server will not see it.
//
// A caller waits here no longer than its ctx allows. The frame is written without a wait as far as
// it fits into the pipe. If it does not fit, a goroutine of its own finishes it, for two reasons: a
// line must not be cut off in the middle because one caller gives up (all others on this transport
// would pay for that), and a server that is only busy catches up. One that reads nothing for
// WriteStall is hung, and the transport ends.
func (w *stdio) write(ctx context.Context, m *jsonrpc.Message) (sent bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	select {
	case <-w.over: // its input may be open for a moment longer
		return false, w.reason
	default:
	}
	select {
	case w.turn <- struct{}{}:
	default:
		select {
		case w.turn <- struct{}{}:
		case <-w.over:
			return false, w.reason
		case <-ctx.Done():
			return false, fmt.Errorf("its input is full: %w", context.Cause(ctx))
		}
	}
	if size := frameSize(m); size > frameKept {
		w.frame = w.spare.take(size)
	}
	w.frame = appendFrame(w.frame[:0], m)
	n, err := w.pipe.try(w.frame)
	if err == nil && n < len(w.frame) {
		return w.overflow(ctx, n)
	}
	w.release(n > 0, err)
	return w.wrote(ctx, n, err)
}

// overflow finishes the frame, of which n bytes went out, on a goroutine of its own, and waits for
// that.
func (w *stdio) overflow(ctx context.Context, n int) (sent bool, err error) {
	type result struct {
		n   int
		err error
	}
	finished := make(chan result, 1)
	// ends when the frame is written, after WriteStall without progress, or when run closes the
	// input; run waits for the turn
	go func() {
		n, err := w.finish(n)
		w.release(n > 0, err)
		finished <- result{n, err}
	}()
	select {
	case r := <-finished:
		return w.wrote(ctx, r.n, r.err)
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// wrote turns the outcome of writing into that of write: a failed one is the end of the transport,
// whose reason is worth a moment's wait.
func (w *stdio) wrote(ctx context.Context, n int, err error) (sent bool, _ error) {
	if err == nil {
		return true, nil
	}
	select {
	case <-w.over:
		return n > 0, w.reason
	case <-ctx.Done():
		return n > 0, context.Cause(ctx)
	}
}

// release gives the turn back after a frame, of which at least a part went out if some is true. An
// error ends the transport.
func (w *stdio) release(some bool, err error) {
	if cap(w.frame) > frameKept {
		w.spare.give(w.frame)
		w.frame = nil
	}
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		what := "it did not read its input"
		if some {
			what = "it stopped reading its input in the middle of a message"
		}
		w.end(fmt.Errorf("hung: %s for %v", what, w.o.WriteStall))
	default:
		w.end(errStdinClosed)
	}
	<-w.turn
}

// finish writes what is left of the frame, from n on. It returns how much of the frame went out.
func (w *stdio) finish(n int) (int, error) {
	for n < len(w.frame) {
		w.process.stdin.SetWriteDeadline(time.Now().Add(w.o.WriteStall))
		// In pieces, so that the deadline is for one of them.
		wrote, err := w.process.stdin.Write(w.frame[n:min(len(w.frame), n+64<<10)])
		n += wrote
		if err != nil && (wrote == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return n, err
		}
	}
	w.process.stdin.SetWriteDeadline(time.Time{})
	return n, nil
}

// frameSize is at least the size of the line that m makes, unless it is an error.
func frameSize(m *jsonrpc.Message) int {
	return len(m.Params) + len(m.Result) + len(m.Method) + len(m.ID) + 64
}

// appendFrame appends m as one line.
func appendFrame(b []byte, m *jsonrpc.Message) []byte {
	b = slices.Grow(b, frameSize(m))
	b = m.Append(b)
	if bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 {
		b = raw.AppendLine(b[:0], b)
	}
	return append(b, '\n')
}
