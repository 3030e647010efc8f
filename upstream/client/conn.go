package client

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// Conn makes MCP calls over a transport whose era is known. The implementations are legacyConn and
// modernConn.
type Conn interface {
	// Call sends a client's call; clock may be nil. The error is a *jsonrpc.Error if the server
	// returned an error response.
	Call(ctx context.Context, c *Call, clock *Clock) (Result, error)
	// List asks for one page of a list; cursor is JSON, nil for the first page.
	// lease is for the memory of the page.
	List(ctx context.Context, method string, cursor []byte, lease *transport.Lease) (raw.Object, error)
	// Watch starts listening to the server's notifications; list changes go to the hooks that the
	// conn was opened with. It does not block. The channel is closed when no later notification can
	// be missed, or when the server sends none.
	Watch() <-chan struct{}
	// Follow subscribes to the resources in added and unsubscribes from those in gone. all returns
	// the complete set; a conn that needs only the changes does not call it. Follow returns the
	// added resources that the server accepted; the error is the reason for the others. The conn
	// must watch.
	Follow(ctx context.Context, all func() []string, added, removed []string) ([]string, error)
	// Taken returns nil if the call may use the conn: no call of another window has received a server
	// request on a stream that does not identify the call, or has reserved the conn. If alone is set, no
	// call of another window may be in flight either, or have been given up without an answer. Otherwise
	// the channel is closed when that is so.
	Taken(c *Call, alone bool) <-chan struct{}
	// Reserve is Taken with alone, and if that is nil, it keeps the conn for the window of the call until
	// done is called: it is taken for others.
	Reserve(c *Call) (done func(), taken <-chan struct{})
	// Notify sends a client's notification, if the era has it. It does not wait for the server.
	Notify(method string)
	// Info returns the server's self-description and capabilities.
	Info() *Info
	// Child returns the process of a command; nil for a URL.
	Child() stdio.Child
	// Ping sends a request that every server answers, and waits. An error response is an answer, too.
	Ping(ctx context.Context) error
	// ControlList returns the list for a control question: one whose first page the server has
	// answered over this conn, or else one that it declares; "" for none. 401 to this list ends the sign-in,
	// as 401 to a handshake does, unless the server keeps a session.
	ControlList() string
	// Drain waits until no call is in flight in the session of a legacy server, or until ctx ends. The
	// owner of the conn must have stopped to make calls over it. Calls of the modern era have no
	// session: Drain does not wait for them.
	Drain(ctx context.Context)
	// Wait waits until the conn has ended, and returns the reason.
	Wait() error
	// Close ends the conn, and waits until nothing of it is left.
	Close() error
}

// Info is the server's self-description from the handshake.
type Info struct {
	Era          Era
	Proven       bool // the answer to server/discover is evidence of the era
	Mirrors      bool // call arguments are mirrored in headers
	Session      bool // the server keeps a session, which it can lose
	Version      string
	Capabilities raw.Object
	Server       []byte // JSON; nil if the server sent none
	Instructions string // for the model; "" if the server sent none
}

// listings are the capabilities of a server that has lists. Resource templates belong to resources.
var listings = [...]string{"tools", "prompts", "resources"}

// announcesList reports whether the server announces changes of the lists of a capability (listChanged).
func (i *Info) announcesList(listing string) bool {
	return i.Capabilities.IsTrue(listing, "listChanged")
}

// Announces reports whether the server announces changes of any of its lists, and whether of all.
func (i *Info) Announces() (any, all bool) {
	all = true
	for _, listing := range listings {
		any = any || i.announcesList(listing)
		all = all && (i.announcesList(listing) || !i.Capabilities.HasObject(listing))
	}
	// changes of skills have no notification of their own
	return any, any && all && !i.Capabilities.HasObject("extensions", "io.modelcontextprotocol/skills")
}

// Hooks are the callbacks through which a conn reports to its owner. They are called on the
// transport's reading goroutine and must not block.
type Hooks struct {
	// the server's lists have changed, or may have changed while nothing listened
	Changed func()
	// matches reports whether the update was sent for the subscription to a resource; nil means all
	// subscriptions of the conn. Updated is nil if no client subscribes.
	Updated func(uri string, matches func(string) bool)
	// these resources may have changed while nothing listened; nil URIs mean all. A nil hook is not
	// called.
	Missed func([]string)
	// the server has sent a request on a stream that does not identify the call, during these calls. A nil
	// hook is not called.
	Asked func([]Item)
	// the server has asked for roots, and belongs to no client that could answer. A nil hook is not called.
	Rootless func()
	// the result of roots/list, if the owner of the conn answers it in place of a client. It does not block.
	// A nil hook asks the client of a call.
	Roots func() []byte
	// a legacy server may have lost the session: its answer to a ping, or to a listening stream, was
	// suspicious. Or a modern server has refused the token of a subscription. Or the stream of either era
	// could not be requested (transport.ErrNotSent). A nil hook is not called, and then each 401 to a renewed
	// token ends the sign-in.
	Doubted func(error)
}

// base is shared by both eras: ids, progress tokens, and responses to server requests.
type base struct {
	transport      transport.Transport
	log            *slog.Logger
	hooks          Hooks
	observed       observed
	era            Era
	violationLog   transport.LogLimit // limits log lines about messages that violate the protocol
	info           Info               // written by the handshake, read only after it
	account        transport.Account  // of the upstream; may be nil
	handshakeLease *transport.Lease   // for info; set by start
	// declared holds the client capabilities that the handshake sent to the server. It is the zero
	// value in the modern era. Guarded by mu.
	declared Profile

	ids atomic.Uint64
	// handles the acknowledgement of a subscription; nil in the legacy era
	acked func(*jsonrpc.Message)
	// ends the subscription that a notification names, and reports whether there is one; nil in the
	// legacy era
	cuts func(*jsonrpc.Message) bool
	// selects the subscriptions of a resource update, see Hooks; nil in the legacy era
	aim    func(*jsonrpc.Message, string) (matches func(string) bool, wanted bool)
	listed atomic.Bool // at least one list was requested
	// the first list whose first page the server has answered over the conn; see answeredList
	control atomic.Pointer[string]

	mu sync.Mutex
	// in-flight client calls; the id is also the progress token sent to the server
	flights map[jsonrpc.ID]*flight
	pending map[jsonrpc.ID]*serverQuestion // server requests that are being answered
	// in-flight calls that use the conn exclusively, because they received a server request, and those
	// that have reserved it
	exclusive int
	reserved  map[*window]struct{}   // of the latter; nil before the first
	waiting   map[turn]chan struct{} // see Taken; nil while no call waits
	tracked   uint64                 // number of calls so far
	// abandoned requests that the server may still send messages about; nil before the first
	doubts map[jsonrpc.ID]doubt
	// until then, there may be more of them
	doubtful time.Time
	// the principals of the calls that ended last, the latest one first
	recent [2]endedCall
	// clients that were sent to a URL, by elicitationId; nil before the first
	browse map[string]Peer

	outbox chan *jsonrpc.Message // answers to the server's requests, sent by run; 256-buffered, never closed
	// tasks that run starts; 1-buffered, never closed; nil in the modern era
	pingTasks chan func()
	ctx       context.Context
	stop      context.CancelFunc
	tasks     sync.WaitGroup // run, and the goroutines of the era
}

func (b *base) init(log *slog.Logger, h Hooks, era Era) {
	b.log, b.hooks, b.era = log, h, era
	b.flights, b.pending = map[jsonrpc.ID]*flight{}, map[jsonrpc.ID]*serverQuestion{}
	b.outbox = make(chan *jsonrpc.Message, 256)
	if era == EraLegacy {
		b.pingTasks = make(chan func(), 1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.ctx, b.stop = ctx, func() { cancel(); b.handshakeLease.Release() }
}

// maxHandshake limits the answer to initialize or server/discover, which stays in memory as long as
// its connection.
const maxHandshake = 1 << 20

// start sets the transport after it was opened.
func (b *base) start(t transport.Transport) {
	b.transport, b.handshakeLease = t, transport.NewLease(b.account)
	b.handshakeLease.Limit(maxHandshake, "the handshake has more than %s")
	b.tasks.Go(b.run)
}

// run sends the messages that must not be sent on the transport's reading goroutine. It returns
// after close.
func (b *base) run() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case m := <-b.outbox:
			ctx, cancel := context.WithTimeout(b.ctx, sendPatience)
			if err := b.transport.Send(ctx, &transport.Request{Message: *m}); err != nil && b.ctx.Err() == nil {
				b.log.Debug("cannot send a message to the server", "method", m.Method, "error", err)
			}
			cancel()
		case task := <-b.pingTasks:
			b.tasks.Go(task) // close waits for run, and so for this task
		}
	}
}

// post queues a message and does not block. It drops the message if the queue is full.
func (b *base) post(m *jsonrpc.Message) {
	select {
	case b.outbox <- m:
	default:
		b.log.Debug("dropped a message to the server: too many wait to be sent", "method", m.Method)
	}
}

func (b *base) Info() *Info { return &b.info }

func (b *base) Child() stdio.Child {
	c, _ := b.transport.(stdio.Child)
	return c
}

func (b *base) Wait() error { return b.transport.Wait() }

func (b *base) Close() error {
	b.stop()
	err := b.transport.Close()
	b.tasks.Wait()
	return err
}

// abandon stops the base without closing its transport, which another conn takes over.
func (b *base) abandon() {
	b.stop()
	b.tasks.Wait()
}

func (b *base) nextID() jsonrpc.ID { return jsonrpc.NumberID(b.ids.Add(1)) }

// receive handles a message that is no response and came on a stream shared by all requests.
func (b *base) receive(m *jsonrpc.Message) { b.deliver(nil, m) }

// ownRequest is the flight of Junction's own requests. A server request on such a stream belongs to
// no client and is rejected.
var ownRequest = &flight{}

// deliver handles a message that is no response. own is the call on whose response stream the
// message came, ownRequest for one of Junction's own requests, and nil for any other stream.
func (b *base) deliver(own *flight, m *jsonrpc.Message) {
	switch {
	case m.IsResponse():
		b.answered(m)
	case m.IsRequest():
		b.answer(own, m)
	case m.Method == string(mcp.MethodNotificationProgress):
		b.progress(m)
	case m.Method == string(mcp.MethodNotificationMessage):
		if f, reason := b.callOf(own, m); f != nil && f.peer != nil {
			if f.clock != nil {
				f.clock.Touch()
			}
			f.peer.Notify(m.Method, m.Params)
		} else {
			b.log.Debug("dropped a log message of the server", "reason", reason)
		}
	case m.Method == mcp.MethodNotificationToolsListChanged, m.Method == mcp.MethodNotificationPromptsListChanged,
		m.Method == mcp.MethodNotificationResourcesListChanged:
		b.hooks.Changed()
	case m.Method == methodElicitationComplete && b.era == EraLegacy:
		b.completed(m)
	case m.Method == string(mcp.MethodNotificationCancelled) && b.era == EraLegacy:
		b.takeBack(m)
	case m.Method == mcp.MethodNotificationResourceUpdated:
		uri, err := m.Body.String("uri")
		if err != nil || b.hooks.Updated == nil {
			return
		}
		var matches func(string) bool
		if b.aim != nil {
			var wanted bool
			if matches, wanted = b.aim(m, uri); !wanted {
				return
			}
		}
		b.hooks.Updated(uri, matches)
	case m.Method == notificationAcknowledged && b.acked != nil:
		b.acked(m)
	case m.Method == string(mcp.MethodNotificationCancelled) && b.cuts != nil && b.cuts(m):
	case own != nil && relaysExtension(own.peer, m):
	default:
		b.log.Debug("notification ignored", "method", m.Method)
		if o := b.observed; o.Observer != nil {
			o.Ignored(o.upstream)
		}
	}
}

// answer responds to a server request. It answers a ping itself; the client of the call that a
// server request belongs to answers the others.
func (b *base) answer(own *flight, m *jsonrpc.Message) {
	switch {
	case b.era == EraModern:
		b.violationLog.Warn(b.log, "ignored a request: modern servers send none", "method", m.Method)
	case m.Method == string(mcp.MethodPing):
		q := b.observe(own, m)
		q.end(nil, "") // before the server has the answer
		b.post(&jsonrpc.Message{ID: m.ID, Result: []byte("{}")})
	case b.hooks.Roots != nil && m.Method == string(mcp.MethodListRoots):
		q := b.observe(own, m)
		q.end(nil, "")
		b.post(&jsonrpc.Message{ID: m.ID, Result: b.hooks.Roots()})
	case isServerRequest(m.Method):
		b.serverRequest(own, m)
	default:
		b.refuse(b.observe(own, m), m.ID, mcp.METHOD_NOT_FOUND, "Method not found: "+m.Method)
	}
}

// progress relays a progress notification to its call under the client's own token. A notification
// with an unknown token is dropped.
func (b *base) progress(m *jsonrpc.Message) {
	params := m.Body
	token, err := params.Get("progressToken")
	if err != nil {
		return
	}
	b.mu.Lock()
	f := byID(b.flights, token)
	b.mu.Unlock()
	if f == nil || f.token == nil && !f.counts {
		return
	}
	if f.clock != nil {
		f.clock.Advance()
	}
	if f.token == nil {
		return // the client did not ask for progress
	}
	if relayed, err := params.Splice(raw.Edit{Name: "progressToken", Value: f.token}); err == nil {
		f.peer.Notify(m.Method, relayed)
	}
}

// roundTrip sends one request of a call and waits for the response. If ctx ends first and
// tellCancel is set, it sends notifications/cancelled to the server.
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
		if f != nil && unfinished(err) {
			b.abandoned(f)
		}
		if ctx.Err() != nil && tellCancel {
			reason := "the request was cancelled"
			if _, late := context.Cause(ctx).(*timeoutError); late {
				reason = "the request timed out"
			}
			params := append([]byte(`{"requestId":`), req.ID...)
			params = raw.AppendQuote(append(params, `,"reason":`...), reason)
			b.post(&jsonrpc.Message{Method: string(mcp.MethodNotificationCancelled), Params: append(params, '}')})
		}
		return nil, err
	}
	return m, nil
}

// resultOf returns the result of a response, or its error.
func resultOf(m *jsonrpc.Message) (raw.Object, error) {
	switch {
	case m.Error != nil:
		return raw.Object{}, m.Error
	case !m.Body.Present():
		return raw.Object{}, fmt.Errorf("%w: the result is no object", transport.ErrInvalid)
	}
	return m.Body, nil
}

// implementation returns the clientInfo (JSON) that Junction sends in handshakes.
func implementation(version string) []byte {
	b := raw.AppendQuote([]byte(`{"name":"junction","version":`), strings.TrimSpace(version))
	return append(b, '}')
}
