package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds who listens to changes: a legacy GET stream, or a modern subscriptions/listen. Each listener is the goroutine of its own HTTP request.

// listener is one stream.
type listener struct {
	endpoint string
	first    []byte // written before anything else, so that the client sees the stream open
	meta     []byte // put into each notification as _meta; nil for none
	last     []byte // written when we end the stream ourselves; nil for nothing
	deaf     bool   // it did not ask for changes of tools

	changed chan struct{}      // 1-buffered: equal notifications merge
	end     context.CancelFunc // ends the stream
}

// listeners are the open streams.
type listeners struct {
	mu   sync.Mutex
	open map[*listener]struct{}
}

func (ls *listeners) add(l *listener, max int) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.open) >= max {
		return false
	}
	ls.open[l] = struct{}{}
	return true
}

func (ls *listeners) remove(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.open, l)
}

// endUnless ends the streams of endpoints that are no more.
func (ls *listeners) endUnless(exists func(endpoint string) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		if !exists(l.endpoint) {
			l.end()
		}
	}
}

// tell tells all who listen to the endpoint that its tools have changed.
func (ls *listeners) tell(endpoint string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		if l.endpoint == endpoint && !l.deaf {
			select {
			case l.changed <- struct{}{}:
			default:
			}
		}
	}
}

// listen keeps the stream open until ctx ends, because the client goes or deletes its session, or until we shut down.
func (s *Server) listen(ctx context.Context, w http.ResponseWriter, r *http.Request, l *listener) {
	l.changed = make(chan struct{}, 1)
	ctx, l.end = context.WithCancel(ctx)
	defer l.end()
	if !s.listeners.add(l, s.limits.Streams) {
		tooManyStreams(w)
		return
	}
	defer s.listeners.remove(l)
	clearReadDeadline(w)
	p := newReply(w, r, &s.limits)
	streamHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	if !p.flush(l.first) {
		return
	}
	params := []byte(nil)
	if l.meta != nil {
		params = append(append([]byte(`{"_meta":`), l.meta...), '}')
	}
	change := jsonrpc.AppendEvent(nil, "", jsonrpc.AppendRequest(nil, "", string(mcp.MethodNotificationToolsListChanged), params))
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		event := change
		select {
		case <-ctx.Done():
			return
		case <-s.ending.Done():
			if l.last != nil {
				p.flush(l.last)
			}
			return
		case <-l.changed:
		case <-alive.C:
			event = []byte(":\n\n")
		}
		if !p.flush(event) {
			return
		}
	}
}

func tooManyStreams(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "Too many streams are open (limits.streams).", http.StatusServiceUnavailable)
}

// maxSubscribe bounds the request of a subscription, which is held for as long as its stream is open.
const maxSubscribe = 64 << 10

// subscribe answers subscriptions/listen (2026-07-28, basic/patterns/subscriptions): it acknowledges what will be honoured, which so far is changes of tools.
func subscribe(ctx context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	wanted, err := x.params.Object("notifications")
	if err == raw.ErrAbsent {
		return result{}, refuse(http.StatusBadRequest, mcp.INVALID_PARAMS, "Invalid params: no notifications")
	} else if err != nil {
		return result{}, err
	}
	if x.size > maxSubscribe {
		return result{}, refuse(http.StatusRequestEntityTooLarge, mcp.INVALID_REQUEST, "a subscription has at most %d bytes", maxSubscribe)
	}
	if !x.reply.stream {
		return result{}, refuse(http.StatusNotAcceptable, mcp.INVALID_REQUEST, "a subscription is answered by text/event-stream, which this request does not accept")
	}
	tools, err := wanted.Get("toolsListChanged")
	if err != nil && err != raw.ErrAbsent {
		return result{}, err
	}
	l := &listener{endpoint: x.endpoint.name, deaf: string(tools) != "true"}
	l.meta = append([]byte(`{"`+mcp.MetaKeySubscriptionID+`":`), x.msg.ID...)
	l.meta = append(l.meta, '}')
	honoured := "{}"
	if !l.deaf {
		honoured = `{"toolsListChanged":true}`
	}
	params := append([]byte(`{"notifications":`+honoured+`,"_meta":`), l.meta...)
	l.first = jsonrpc.AppendEvent(nil, "", jsonrpc.AppendRequest(nil, "", "notifications/subscriptions/acknowledged", append(params, '}')))
	end := append(append([]byte(`{"resultType":"complete","_meta":`), l.meta...), '}')
	l.last = jsonrpc.AppendEvent(nil, "", append(append(jsonrpc.ResponseHead(nil, x.msg.ID), end...), '}'))
	x.reply.finish()
	s.requests.Add(-1) // a stream counts as one, and no longer as a request
	defer s.requests.Add(1)
	s.listen(ctx, x.reply.w, x.request, l)
	return result{}, errAnswered
}
