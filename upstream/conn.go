package upstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// conn is a transport whose era is known: it can make MCP calls. legacyConn and modernConn are the
// two.
type conn interface {
	// call makes a client's call; clock may be nil. The error is a *jsonrpc.Error if the server
	// said so.
	call(ctx context.Context, c *Call, clock *clock) (Result, error)
	// list asks for one page of a list; cursor is JSON, nil for the first page.
	list(ctx context.Context, method string, cursor []byte) (raw.Object, error)
	// watch begins to listen to what the server says unasked; changes go to the hooks that the conn
	// was opened with. It does not block. The channel is closed when nothing that the server says
	// from then on is missed, or when it has nothing to say.
	watch() <-chan struct{}
	// follow makes the server tell of changes to the resources that all returns, of which added are
	// new and gone are no more, on a conn that watches. It returns those of added that the server
	// accepted; the error says why it did not accept others. A conn that needs only the changes
	// does not call all.
	follow(ctx context.Context, all func() []string, added, gone []string) ([]string, error)
	// asking returns a channel while a call in progress has asked something on a stream that does
	// not name the call: the call was alone then, and has to stay so. The channel is closed when
	// that is over. It is nil while there is no such call.
	asking() <-chan struct{}
	// tell sends a notification of a client's, if the era has it. It does not wait for the server.
	tell(method string)
	// about says who the server is and what it can do.
	about() *serverInfo
	wait() error
	close() error
}

// serverInfo is what a server said about itself in the handshake.
type serverInfo struct {
	era          Era
	both         bool // it speaks the newest version of the legacy era as well
	mirrors      bool // arguments of calls go into headers as well
	version      string
	capabilities raw.Object
	serverInfo   []byte // JSON; nil when it gave none
	instructions string // for the model; "" when it gave none
}

// tells returns which of its lists the server says that it tells of changes to; all is false when
// it has one that it does not tell of.
func (i *serverInfo) tells() (parts [Parts]bool, any, all bool) {
	all = true
	for p := range Parts {
		parts[p] = isTrue(i.capabilities, p.capability(), "listChanged")
		any = any || parts[p]
		all = all && (parts[p] || !has(i.capabilities, p.capability()))
	}
	return parts, any, any && all
}

// hooks is what a conn reports to the link that opened it. Both are called on the transport's
// reading goroutine and must not block.
type hooks struct {
	// the server's lists have changed, or may have while we could not listen
	changed func()
	updated func(uri string, of func(string) bool) // see Update; nil where no client wants to know
	// these resources may have changed while we could not listen; nil stands for all, and a nil
	// hook is not called
	missed func([]string)
}

// base is what both eras share: ids, progress tokens, and the answers to a server that asks.
type base struct {
	transport transport.Transport
	log       *slog.Logger
	hooks     hooks
	era       Era
	odd       transport.LogLimit // of what the log is told that the server should not have sent
	info      serverInfo         // written by the handshake, read once that is done
	// declared is what the server was told of its clients in the handshake. It is the zero value in
	// the modern era, and guarded by mu.
	declared Profile

	ids atomic.Uint64
	// takes the acknowledgement of a subscription; nil in the legacy era
	acked func(*jsonrpc.Message)
	// of an update of a resource, see Update; nil in the legacy era
	aim    func(*jsonrpc.Message, string) (of func(string) bool, wanted bool)
	listed atomic.Bool // a list was asked for

	mu sync.Mutex
	// calls of clients in progress; the id is also the progress token that we gave out
	flights map[jsonrpc.ID]*flight
	pending map[jsonrpc.ID]*pendingRequest // questions of the server's that are being answered
	// calls in progress that have asked, and must stay the only ones for that
	alone          int
	shared         chan struct{}   // closed when alone is 0 again; nil while it is 0
	abandonedUntil time.Time       // until then an abandoned call may still ask
	recent         [2]endedCall    // the last two principals whose calls have ended, the later one first
	browse         map[string]Peer // who was sent to a page, by elicitationId; nil before the first

	outbox chan *transport.Request // answers to the server's requests, sent by run; 256-buffered, never closed
	probes chan func()             // what run starts as a task; 1-buffered, never closed; nil in the modern era
	ctx    context.Context
	stop   context.CancelFunc
	tasks  sync.WaitGroup // run, and what an era adds
}

func (b *base) init(log *slog.Logger, h hooks, era Era) {
	b.log, b.hooks, b.era, b.odd = log, h, era, transport.NewLogLimit()
	b.flights, b.pending = map[jsonrpc.ID]*flight{}, map[jsonrpc.ID]*pendingRequest{}
	b.outbox = make(chan *transport.Request, 256)
	if era == EraLegacy {
		b.probes = make(chan func(), 1)
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
}

// start takes the transport, once it is open.
func (b *base) start(w transport.Transport) {
	b.transport = w
	b.tasks.Go(b.run)
}

// run sends what must not be sent on the transport's reading goroutine, until close.
func (b *base) run() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case m := <-b.outbox:
			ctx, cancel := context.WithTimeout(b.ctx, sendPatience)
			if err := b.transport.Send(ctx, m); err != nil && b.ctx.Err() == nil {
				b.log.Debug("cannot send a message to the server", "method", m.Method, "error", err)
			}
			cancel()
		case task := <-b.probes:
			b.tasks.Go(task) // close waits for run, and so for this as well
		}
	}
}

// post sends a message without waiting for it. When the server does not take what we send, it is
// dropped.
func (b *base) post(m *transport.Request) {
	select {
	case b.outbox <- m:
	default:
		b.log.Debug("dropped a message to the server: too many wait to be sent", "method", m.Method)
	}
}

func (b *base) about() *serverInfo { return &b.info }
func (b *base) wait() error        { return b.transport.Wait() }

func (b *base) close() error {
	b.stop()
	err := b.transport.Close()
	b.tasks.Wait()
	return err
}

// abandon gives up the transport to another conn.
func (b *base) abandon() {
	b.stop()
	b.tasks.Wait()
}

func (b *base) nextID() jsonrpc.ID { return jsonrpc.NumberID(b.ids.Add(1)) }

// receive takes a message that is no response and came on no request's own stream.
func (b *base) receive(m *jsonrpc.Message) { b.deliver(nil, m) }

// ownRequest stands for a request of our own. No client can answer a server request that belongs to
// it.
var ownRequest = &flight{}

// deliver takes a message that is no response. own is the call on whose response stream the message
// came, ownRequest for a request of ours, and nil for any other stream.
func (b *base) deliver(own *flight, m *jsonrpc.Message) {
	switch {
	case m.IsRequest():
		b.answer(own, m)
	case m.Method == string(mcp.MethodNotificationProgress):
		b.progress(m)
	case m.Method == string(mcp.MethodNotificationMessage):
		if f, reason := b.owner(own, m); f != nil && f.peer != nil {
			if f.clock != nil {
				f.clock.touch()
			}
			f.peer.Notify(m.Method, m.Params)
		} else {
			b.log.Debug("dropped a log message of the server", "reason", reason)
		}
	case m.Method == mcp.MethodNotificationToolsListChanged, m.Method == mcp.MethodNotificationPromptsListChanged,
		m.Method == mcp.MethodNotificationResourcesListChanged:
		b.hooks.changed()
	case m.Method == methodElicitationComplete && b.era == EraLegacy:
		b.completed(m)
	case m.Method == string(mcp.MethodNotificationCancelled) && b.era == EraLegacy:
		b.takeBack(m)
	case m.Method == mcp.MethodNotificationResourceUpdated:
		uri, err := m.Body.String("uri")
		if err != nil || b.hooks.updated == nil {
			return
		}
		var of func(string) bool
		if b.aim != nil {
			var wanted bool
			if of, wanted = b.aim(m, uri); !wanted {
				return
			}
		}
		b.hooks.updated(uri, of)
	case m.Method == notificationAcknowledged && b.acked != nil:
		b.acked(m)
	default:
		b.log.Debug("notification ignored", "method", m.Method)
	}
}

// answer answers a request of the server's: a ping here, a question by the client whose call it
// belongs to.
func (b *base) answer(own *flight, m *jsonrpc.Message) {
	switch {
	case b.era == EraModern:
		b.odd.Warn(b.log, "ignored a request: modern servers send none", "method", m.Method)
	case m.Method == string(mcp.MethodPing):
		b.post(&transport.Request{Message: jsonrpc.Message{ID: m.ID, Result: []byte("{}")}})
	case IsServerRequest(m.Method):
		b.serverRequest(own, m)
	default:
		b.refuse(m.ID, mcp.METHOD_NOT_FOUND, "Method not found: "+m.Method)
	}
}

// progress passes a progress notification on to the call that it is about, under the client's own
// token. A token that is not in flight is dropped.
func (b *base) progress(m *jsonrpc.Message) {
	params := m.Body
	token, err := params.Get("progressToken")
	if err != nil {
		return
	}
	b.mu.Lock()
	f := b.flights[jsonrpc.ID(token)]
	b.mu.Unlock()
	if f == nil || f.token == nil {
		return
	}
	if f.clock != nil {
		f.clock.touch()
	}
	if relayed, err := params.Splice(raw.Edit{Name: "progressToken", Value: f.token}); err == nil {
		f.peer.Notify(m.Method, relayed)
	}
}

// reserved are the members of _meta that speak about one hop: they are never passed on.
var reserved = []string{"progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo,
	mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel,
	mcp.MetaKeySubscriptionID, mcp.MetaKeyServerInfo}

// reservedName returns which of reserved a member is; "" for none.
func reservedName(m raw.Member) string {
	for _, name := range reserved {
		if string(m.Key[1:len(m.Key)-1]) == name {
			return name
		}
	}
	if bytes.IndexByte(m.Key, '\\') >= 0 {
		if name, err := m.Name(); err == nil && slices.Contains(reserved, name) {
			return name
		}
	}
	return ""
}

// prepare makes the params of a call: the client's own with the upstream's name, and with a _meta
// that speaks of this hop. The flight is nil when the call has no peer.
func (b *base) prepare(id jsonrpc.ID, c *Call, clock *clock, own []raw.Edit) ([]byte, *flight, error) {
	var edits [2]raw.Edit
	n := 0
	if c.Name != "" {
		var err error
		if edits[n], err = c.rename(); err != nil {
			return nil, nil, err
		}
		n++
	}
	var f *flight
	if c.Peer != nil {
		f = &flight{id: id, peer: c.Peer, principal: c.Principal, clock: clock}
	}
	meta, err := c.Params.Object("_meta")
	switch {
	case err == nil:
		if token, err := meta.Get("progressToken"); err == nil && f != nil {
			f.token = bytes.Clone(token) // a late notification may outlive the params
		}
		var few [512]byte
		value, err := rewriteMeta(few[:0], meta, f, own)
		if err != nil {
			return nil, nil, err
		}
		if value == nil || len(value) != len(meta.Text()) || &value[0] != &meta.Text()[0] {
			edits[n] = raw.Edit{Name: "_meta", Value: value}
			n++
		}
	case err != raw.ErrAbsent:
		return nil, nil, err
	case len(own) > 0:
		value, err := emptyMeta().Splice(own...)
		if err != nil {
			return nil, nil, err
		}
		edits[n] = raw.Edit{Name: "_meta", Value: value}
		n++
	}
	params := c.Params
	if !params.Present() {
		params = emptyMeta()
	}
	text, err := params.Splice(edits[:n]...)
	return text, f, err
}

func emptyMeta() raw.Object {
	o, _ := raw.Parse([]byte("{}"))
	return o
}

// rewriteMeta returns meta without what speaks of the client's hop and with what speaks of ours, in
// memory behind b: itself if there is nothing to do, nil if nothing is left.
func rewriteMeta(b []byte, meta raw.Object, f *flight, own []raw.Edit) ([]byte, error) {
	var few [8]raw.Edit
	edits := few[:0]
	kept := 0
	for m := range meta.All() {
		name := reservedName(m)
		if name == "" {
			kept++
			continue
		}
		edits = append(edits, raw.Edit{Name: name})
	}
	if len(edits) == 0 && len(own) == 0 {
		return meta.Text(), nil
	}
	if f != nil && f.token != nil {
		own = append(own[:len(own):len(own)], raw.Edit{Name: "progressToken", Value: []byte(f.id)})
	}
	for _, o := range own {
		replaced := false
		for i := range edits {
			if edits[i].Name == o.Name {
				edits[i].Value, replaced = o.Value, true
			}
		}
		if !replaced {
			edits = append(edits, o)
		}
	}
	if kept == 0 && len(own) == 0 {
		return nil, nil
	}
	return meta.AppendSplice(b, edits...)
}

// roundTrip sends one request of a call and waits for its answer. When it ends early, the server is
// told to cancel if it would not notice otherwise.
func (b *base) roundTrip(
	ctx context.Context, req *transport.Request, f *flight, tellCancel bool,
) (*jsonrpc.Message, error) {
	if f != nil {
		f.ctx = ctx
		if f.clock != nil {
			req.Observer = f.clock
		}
		req.Memory, _ = f.peer.(Memory)
		b.track(f)
		defer b.untrack(f)
	}
	on := func(m *jsonrpc.Message) { b.deliver(f, m) }
	m, err := b.transport.Call(ctx, req, on)
	if err != nil {
		if f != nil && ctx.Err() != nil {
			b.noteAbandoned()
		}
		if ctx.Err() != nil && tellCancel {
			reason := "the request was cancelled"
			if _, late := context.Cause(ctx).(*timeoutError); late {
				reason = "the request timed out"
			}
			params := append([]byte(`{"requestId":`), req.ID...)
			params = raw.AppendQuote(append(params, `,"reason":`...), reason)
			b.post(&transport.Request{Message: jsonrpc.Message{Method: string(mcp.MethodNotificationCancelled),
				Params: append(params, '}')}})
		}
		return nil, err
	}
	return m, nil
}

// resultOf returns the result in an answer.
func resultOf(m *jsonrpc.Message) (raw.Object, error) {
	switch {
	case m.Error != nil:
		return raw.Object{}, m.Error
	case !m.Body.Present():
		return raw.Object{}, fmt.Errorf("%w: the result is no object", transport.ErrInvalid)
	}
	return m.Body, nil
}

// ask makes a request of our own and returns its result.
func (b *base) ask(ctx context.Context, method string, params []byte, header []HeaderField) (raw.Object, error) {
	m, err := b.transport.Call(ctx, &transport.Request{Message: jsonrpc.Message{ID: b.nextID(), Method: method,
		Params: params}, Header: header},
		func(m *jsonrpc.Message) { b.deliver(ownRequest, m) })
	if err != nil {
		return raw.Object{}, err
	}
	if m.Error != nil {
		return raw.Object{}, m.Error
	}
	if !m.Body.Present() {
		return raw.Object{}, fmt.Errorf("%w to %s: the result is no object", transport.ErrInvalid, method)
	}
	return m.Body, nil
}

// has reports whether the object has a member that is an object, such as a capability.
func has(o raw.Object, path ...string) bool {
	v, err := raw.Get(o.Text(), path...)
	return o.Present() && err == nil && v[0] == '{'
}

// isTrue reports whether the value at the path is true.
func isTrue(o raw.Object, path ...string) bool {
	v, err := raw.Get(o.Text(), path...)
	return o.Present() && err == nil && string(v) == "true"
}

// implementation is our own name in handshakes.
func implementation(version string) []byte {
	b := raw.AppendQuote([]byte(`{"name":"junction","version":`), strings.TrimSpace(version))
	return append(b, '}')
}
