// Package stdio moves JSON-RPC messages between Junction and a child process, over the standard
// input and output of the process. It starts, confines and ends the process and its descendants.
package stdio

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
	"junction/upstream/transport"
)

// Options configure a child process and its time limits. Only Command is required.
type Options struct {
	Command []string // the program and its arguments; no shell is involved
	Env     Environment
	Dir     string       // the working directory; "" means Junction's, or the one of Confine
	Confine *Confinement // nil means no sandbox
	Folder  *Folder      // of the client for which the process is; nil means none

	MessageLimit int           // maximum bytes of one line from the server. Default 16 MiB
	Depth        int           // maximum nesting of one message. Default raw.DefaultDepth
	StopGrace    time.Duration // between stdin closed, SIGTERM and SIGKILL. Default 2s
	LastWords    time.Duration // default lastWords, see there
	// time without progress on a full input pipe after which the server counts as hung. Default 30s
	WriteStall time.Duration
	Account    transport.Account // for lines that are being read; nil does not limit them
	Watchdog   *Watchdog         // watches the new group; nil means a watchdog of its own
	Log        *slog.Logger      // already has the upstream's name; nil discards
	// Clean removes secrets from words of the server that Log gets; nil leaves the words as they are.
	Clean func(words string) string

	private map[string]string // variables of the cell; Env takes precedence
	program string            // the program's path if it differs from Command's
	piped   bool              // stdout is a pipe on all systems; see outputPair
}

// logged returns words of the server for the log.
func (o *Options) logged(words []byte) string {
	if o.Clean == nil {
		return clean(words)
	}
	return o.Clean(clean(words))
}

func (o Options) withDefaults() Options {
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
// It has five goroutines, and Close waits for all of them: run, which detects the end of the
// transport and ends the process; the readers of stdout and of stderr; the owner of the process
// (process.go); and, while the input pipe is full, a writer that completes the frame of which
// only a part is in the pipe.
type stdio struct {
	transport.Duplex
	transport.Ending // the reason is an *ExitError if the process ended by itself
	o                Options
	in               transport.Receiver
	process          *process

	// held by the writer to stdin; handed over to finish, and finally taken by run for good
	turn  chan struct{}
	frame []byte     // the frame being written; belongs to the holder of turn
	pipe  pipeWriter // belongs to the holder of turn

	mu    sync.Mutex
	calls map[jsonrpc.ID]chan answer // calls that wait for a response
	// calls that were abandoned after they had been sent; nil before the first
	left map[jsonrpc.ID]transport.Observer
	many int // size of left at which the settled calls are dropped

	output  output
	spare   lineBuffers
	waiters sync.Pool // of chan answer: empty, and no longer in calls

	stopOnce sync.Once
	stopped  error         // why stop was closed; valid after that
	stop     chan struct{} // closed when Junction ends the transport
	drained  chan struct{} // closed at the end of stdout
	done     chan struct{} // closed when all goroutines and processes have ended
}

// PID implements Child.
func (w *stdio) PID() int { return w.process.cmd.Process.Pid }

// Started implements Child.
func (w *stdio) Started() time.Time { return w.process.begun }

// Reported implements Child.
func (w *stdio) Reported() []Reported {
	w.process.mu.Lock()
	defer w.process.mu.Unlock()
	return w.process.reported
}

// Tail implements Child.
func (w *stdio) Tail() string {
	w.process.mu.Lock()
	defer w.process.mu.Unlock()
	return clean(w.process.tail)
}

// answer is the outcome of a call: a response, or the reason why there is none. Channels of answer
// have room for one. The goroutine that removes a call from stdio.calls sends its answer, while it
// holds stdio.mu.
type answer struct {
	m      *jsonrpc.Message
	buffer []byte // the large buffer that contains only m; nil if there is none
	err    error
}

// take returns the answer to req. A large buffer is exchanged for the buffer of the request. If the
// request has none, the result is copied, so that the caller can keep it.
func (w *stdio) take(a answer, req *transport.Request) (*jsonrpc.Message, error) {
	switch {
	case a.buffer == nil || a.m.Error != nil:
	case req.Buffer != nil:
		w.spare.give(*req.Buffer)
		*req.Buffer = a.buffer[:0]
	default:
		a.m.Result = bytes.Clone(a.m.Result)
		a.m.Body, _ = raw.Parse(a.m.Result) // an error means that the result is not an object
		w.spare.give(a.buffer)
	}
	return a.m, a.err
}

var (
	errStdinClosed  = errors.New("closed its standard input")
	errStdoutClosed = errors.New("closed its standard output")
)

// lastWords is the time that the end of a process may take after its first sign: between the end of
// its output and its exit status, or between the exit and the end of its output. During this time,
// calls still receive responses that were already written, and the reason becomes more exact.
const lastWords = 200 * time.Millisecond

// frameKept is the largest frame whose buffer is kept for the next frame. Larger frames use a
// buffer of spare.
const frameKept = 256 << 10

// Open starts the server and returns at once. in receives the server's requests and
// notifications, on the reading goroutine.
func Open(o Options, in transport.Receiver) (transport.Transport, error) {
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
		Ending:  transport.NewEnding(),
		done:    make(chan struct{}),
	}
	w.waiters.New = func() any { return make(chan answer, 1) }
	w.pipe.open(p.stdin)
	go w.read()
	go w.run()
	return w, nil
}

// Call implements Transport. It writes on the caller's goroutine while the pipe has room.
func (w *stdio) Call(ctx context.Context, req *transport.Request, _ func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
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
		return nil, w.output.explain(context.Cause(ctx))
	}
}

// Send implements Transport.
func (w *stdio) Send(ctx context.Context, m *transport.Request) error {
	if sent, err := w.write(ctx, &m.Message); err != nil {
		return sendError(sent, err)
	}
	return nil
}

// Close implements Transport. It closes the server's input and gives the server and its descendants
// twice StopGrace to end. in must not call it.
func (w *stdio) Close() error {
	w.end(transport.ErrClosed)
	<-w.done
	return nil
}

// end makes run end the transport; the first reason wins.
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
	// the input is closed, so its holder returns the turn soon; nothing is written after this
	w.turn <- struct{}{}
}

// why returns the reason of the end. If the server ended first, it waits up to LastWords for the
// exit status and the rest of the output.
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
	if w.Reason() != nil {
		return nil, sendError(false, w.Reason())
	}
	if _, ok := w.calls[id]; ok {
		return nil, sendError(false, fmt.Errorf("the id %s is in use", id))
	}
	w.calls[id] = c
	return c, nil
}

// forget removes a call. If its answer has already arrived, forget returns it.
func (w *stdio) forget(req *transport.Request, c chan answer) (a answer, ok bool) {
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

// leave records an abandoned call, to detect its late response; w.mu is held.
func (w *stdio) leave(req *transport.Request) {
	if req.Observer == nil || w.Reason() != nil {
		return
	}
	if w.left == nil {
		w.left = map[jsonrpc.ID]transport.Observer{}
	}
	if len(w.left) >= w.many {
		maps.DeleteFunc(w.left, func(_ jsonrpc.ID, c transport.Observer) bool { return c.Settled() })
		w.many = max(fewestLeft, 2*len(w.left))
	}
	w.left[req.ID] = req.Observer
}

// fewestLeft is the number of abandoned calls that are kept even if they are settled.
const fewestLeft = 64

// settle passes the answer to the waiting call. It returns false if there is none. An id that is the text
// of no call's id may have the value of one.
func (w *stdio) settle(id jsonrpc.ID, a answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.calls[id]
	if !ok && w.left[id] == nil {
		id = id.Value()
		c, ok = w.calls[id]
	}
	if ok {
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

// fail ends the transport and all calls on it. A call that returns for this reason finds the
// transport ended.
func (w *stdio) fail(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Over(reason) // with mu held, which guards the reason, too
	for _, c := range w.calls {
		c <- answer{err: reason}
	}
	clear(w.calls)
	for _, late := range w.left {
		late.Late()
	}
	w.left = nil
}

// sendError adds ErrNotSent to an error if no byte of the frame was sent.
func sendError(sent bool, err error) error {
	if sent {
		return err
	}
	return transport.NotSent(err)
}

// write writes m as one line. It returns sent as false only if the server will certainly not see m.
//
// write blocks no longer than ctx allows. It writes as much of the frame as fits into the pipe, and
// a separate goroutine completes the rest. A caller that gives up must not cut a line off in the
// middle, because that would break the transport for all others; and a server that is only busy
// catches up. If the server reads nothing for WriteStall, it counts as hung and the transport ends.
func (w *stdio) write(ctx context.Context, m *jsonrpc.Message) (sent bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	select {
	case <-w.Gone(): // its input may be open for a moment longer
		return false, w.Reason()
	default:
	}
	select {
	case w.turn <- struct{}{}:
	default:
		select {
		case w.turn <- struct{}{}:
		case <-w.Gone():
			return false, w.Reason()
		case <-ctx.Done():
			return false, fmt.Errorf("its input is full: %w", context.Cause(ctx))
		}
	}
	if size := frameSize(m); size > frameKept {
		w.frame = w.spare.take(size)
	}
	w.frame = AppendFrame(w.frame[:0], m)
	n, err := w.pipe.try(w.frame)
	if err == nil && n < len(w.frame) {
		return w.overflow(ctx, n)
	}
	w.release(n > 0, err)
	return w.wrote(ctx, n, err)
}

// overflow completes a frame of which n bytes were sent, on a separate goroutine, and waits for it.
func (w *stdio) overflow(ctx context.Context, n int) (sent bool, err error) {
	type result struct {
		n   int
		err error
	}
	finished := make(chan result, 1)
	// This goroutine ends when the frame is written, after WriteStall without progress, or when run
	// closes the input. run waits for the turn.
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

// wrote returns the result of write. A write error ends the transport, so wrote waits for the more
// exact reason of that end.
func (w *stdio) wrote(ctx context.Context, n int, err error) (sent bool, _ error) {
	if err == nil {
		return true, nil
	}
	select {
	case <-w.Gone():
		return n > 0, w.Reason()
	case <-ctx.Done():
		return n > 0, context.Cause(ctx)
	}
}

// release returns the turn after a frame; some reports whether a part of it was sent. An error ends
// the transport.
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

// finish writes the frame from n on. It returns how many bytes of the frame were sent.
func (w *stdio) finish(n int) (int, error) {
	for n < len(w.frame) {
		w.process.stdin.SetWriteDeadline(time.Now().Add(w.o.WriteStall))
		// in pieces, because the deadline applies to each piece
		wrote, err := w.process.stdin.Write(w.frame[n:min(len(w.frame), n+64<<10)])
		n += wrote
		if err != nil && (wrote == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return n, err
		}
	}
	w.process.stdin.SetWriteDeadline(time.Time{})
	return n, nil
}

// frameSize returns an upper bound for the size of the line of m, unless m is an error.
func frameSize(m *jsonrpc.Message) int {
	return len(m.Params) + len(m.Result) + len(m.Method) + len(m.ID) + 64
}

// AppendFrame appends m as one line for a stdio transport.
func AppendFrame(b []byte, m *jsonrpc.Message) []byte {
	b = slices.Grow(b, frameSize(m))
	b = m.Append(b)
	if bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 {
		b = raw.AppendLine(b[:0], b)
	}
	return append(b, '\n')
}
