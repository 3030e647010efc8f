package proxy

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds who listens to changes: a legacy GET stream, or a modern subscriptions/listen. Each listener is the goroutine of its own HTTP request.

// listener is one stream.
type listener struct {
	endpoint string
	session  *session             // of the legacy era, whose streams share what there is to tell; nil otherwise
	first    []byte               // written before anything else, so that the client sees the stream open
	meta     []byte               // put into each notification as _meta; nil for none
	last     []byte               // written when we end the stream ourselves; nil for nothing
	wants    [upstream.Parts]bool // changes of which lists; that of the resources is about their templates as well
	pending  []note               // not written yet; guarded by listeners.mu
	changed  chan struct{}        // 1-buffered: pending has grown
	end      context.CancelFunc   // ends the stream
}

// note is something to tell. Equal ones that wait merge.
type note struct {
	method string
	uri    string // of the resource that it is about; "" for none
	params string // JSON, instead of that
}

// listeners are the open streams, and who has subscribed to resources.
type listeners struct {
	mu      sync.Mutex
	queue   int // notes that wait for one client at most
	open    map[*listener]struct{}
	hearers map[*hearer]struct{}
}

// hearer is who has subscribed to resources on an endpoint: a subscriptions/listen, or a legacy session, with or without a stream. Guarded by listeners.mu.
type hearer struct {
	endpoint string
	stream   *listener // of a subscriptions/listen; nil for a session
	session  *session
	subs     map[resourceKey]subscription
	waiting  []note // of a session without a stream
}

type resourceKey struct{ upstream, uri string } // the upstream's own

type subscription struct {
	exposed string // as the client has subscribed to it
	backend backend
}

func (ls *listeners) add(l *listener, max int) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.open) >= max {
		return false
	}
	ls.open[l] = struct{}{}
	for h := range ls.hearers {
		if l.session != nil && h.session == l.session && h.endpoint == l.endpoint && len(h.waiting) > 0 {
			l.pending, h.waiting = append(l.pending, h.waiting...), nil
			l.nudge()
		}
	}
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

// tell tells all who listen to the endpoint that a list has changed; each session on one of its streams.
func (ls *listeners) tell(endpoint string, p upstream.Part, method string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	told := map[*session]bool{}
	for l := range ls.open {
		if l.endpoint != endpoint || !l.wants[p] || l.session != nil && told[l.session] {
			continue
		}
		told[l.session] = true
		l.pending = ls.push(l.pending, note{method: method})
		l.nudge()
	}
}

// push adds a note that is not there yet, if there is room.
func (ls *listeners) push(list []note, n note) []note {
	if slices.Contains(list, n) || len(list) >= ls.queue {
		return list
	}
	return append(list, n)
}

func (l *listener) nudge() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// updated tells of a changed resource those who have subscribed to it, or to what it is a part of; where nobody has, which only the upstream understands, all who have
// subscribed to something of the upstream's.
func (ls *listeners) updated(name, uri string, bare func(endpoint string) bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	type found struct {
		h       *hearer
		exposed string
	}
	var certain, others []found
	for h := range ls.hearers {
		any, sure, exposed := false, false, exposeURI(name, uri)
		if bare(h.endpoint) {
			exposed = uri
		}
		for key, sub := range h.subs {
			if key.upstream != name {
				continue
			}
			any = true
			if key.uri == uri {
				exposed, sure = sub.exposed, true
			} else if isPart(uri, key.uri) {
				sure = true
			}
		}
		if sure {
			certain = append(certain, found{h, exposed})
		} else if any {
			others = append(others, found{h, exposed})
		}
	}
	if len(certain) == 0 {
		certain = others
	}
	for _, f := range certain {
		ls.deliver(f.h, note{method: mcp.MethodNotificationResourceUpdated, uri: f.exposed})
	}
}

// isPart reports whether a URI is below another one.
func isPart(uri, of string) bool {
	rest, ok := strings.CutPrefix(uri, strings.TrimSuffix(of, "/"))
	return ok && rest != "" && strings.ContainsRune("/?#", rune(rest[0]))
}

// deliver queues a note for exactly one stream of the hearer's. A session without a stream gets it on its next one.
func (ls *listeners) deliver(h *hearer, n note) {
	l := h.stream
	if l == nil {
		for o := range ls.open {
			if o.session == h.session && o.endpoint == h.endpoint {
				l = o
				break
			}
		}
	}
	if l == nil {
		h.waiting = ls.push(h.waiting, n)
		return
	}
	l.pending = ls.push(l.pending, n)
	l.nudge()
}

// tellSession queues a note for one stream of a session's; without one nobody hears it.
func (ls *listeners) tellSession(s *session, endpoint string, n note) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		if l.session == s && l.endpoint == endpoint {
			l.pending = ls.push(l.pending, n)
			l.nudge()
			return
		}
	}
}

// take returns what waits for a stream.
func (ls *listeners) take(l *listener) []note {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	list := l.pending
	l.pending = nil
	return list
}

// hear adds a hearer, or returns the one that the session has on the endpoint.
func (ls *listeners) hear(endpoint string, stream *listener, session *session) *hearer {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for h := range ls.hearers {
		if session != nil && h.session == session && h.endpoint == endpoint {
			return h
		}
	}
	h := &hearer{endpoint: endpoint, stream: stream, session: session, subs: map[resourceKey]subscription{}}
	ls.hearers[h] = struct{}{}
	return h
}

// release ends the subscriptions of a hearer that keep says nothing of, and the hearer when none is left.
func (ls *listeners) release(h *hearer, keep func(resourceKey) bool) {
	gone := map[backend][]string{}
	ls.mu.Lock()
	for key, sub := range h.subs {
		if !keep(key) {
			gone[sub.backend] = append(gone[sub.backend], key.uri)
			delete(h.subs, key)
		}
	}
	if len(h.subs) == 0 {
		delete(ls.hearers, h)
	}
	ls.mu.Unlock()
	for b, uris := range gone {
		b.Unsubscribe(uris)
	}
}

func nothing(resourceKey) bool { return false }

// forget ends the subscriptions of a session that is over.
func (ls *listeners) forget(s *session) {
	ls.mu.Lock()
	var its []*hearer
	for h := range ls.hearers {
		if h.session == s {
			its = append(its, h)
		}
	}
	ls.mu.Unlock()
	for _, h := range its {
		ls.release(h, nothing)
	}
}

// asking is how long an upstream may take to accept a subscription.
const asking = 10 * time.Second

// subscribeTo subscribes the hearer to resources, each from the upstream that has it, and returns those that an upstream accepted. The error is why one was not.
func (s *Server) subscribeTo(ctx context.Context, h *hearer, targets []*target) (map[*target]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	type group struct {
		uris    []string
		targets []*target
	}
	groups := map[backend]*group{}
	ls := &s.listeners
	ls.mu.Lock()
	accepted := map[*target]bool{}
	for _, t := range targets {
		key := resourceKey{t.backend.Name(), t.name}
		if _, twice := h.subs[key]; twice {
			accepted[t] = true
			continue
		}
		g := groups[t.backend]
		if g == nil {
			g = &group{}
			groups[t.backend] = g
		}
		if !slices.Contains(g.uris, t.name) {
			g.uris = append(g.uris, t.name)
		}
		g.targets = append(g.targets, t)
	}
	ls.mu.Unlock()
	var (
		all    sync.WaitGroup
		failed error
	)
	for b, g := range groups {
		all.Go(func() {
			got, err := b.Subscribe(ctx, g.uris)
			ls.mu.Lock()
			if err != nil {
				failed = err
			}
			_, alive := ls.hearers[h]
			var twice []string
			for _, uri := range got {
				key := resourceKey{b.Name(), uri}
				if _, there := h.subs[key]; there || !alive {
					twice = append(twice, uri)
					continue
				}
				for _, t := range g.targets {
					if t.name == uri {
						h.subs[key] = subscription{t.exposed, b}
						break
					}
				}
			}
			for _, t := range g.targets {
				if slices.Contains(got, t.name) && alive {
					accepted[t] = true
				}
			}
			ls.mu.Unlock()
			b.Unsubscribe(twice)
		})
	}
	all.Wait()
	return accepted, failed
}

// Updated says that a resource of an upstream's has changed, by its own URI. It does not block.
func (s *Server) Updated(name, uri string) {
	w := s.world.Load()
	s.listeners.updated(name, uri, func(endpoint string) bool { return endpoint != "" && w.endpoints[endpoint] != nil })
}

// follow has the subscriptions to upstreams that were replaced go to those in their place, without waiting for them.
func (s *Server) follow(w *world) {
	type moved struct {
		h        *hearer
		key      resourceKey
		old, now backend
	}
	var list []moved
	ls := &s.listeners
	ls.mu.Lock()
	for h := range ls.hearers {
		for key, sub := range h.subs {
			for _, b := range w.backends {
				if b.Name() == key.upstream && b != sub.backend {
					list = append(list, moved{h, key, sub.backend, b})
				}
			}
		}
	}
	ls.mu.Unlock()
	if len(list) == 0 || s.ending.Err() != nil {
		return
	}
	s.moving.Go(func() {
		for _, m := range list {
			ctx, cancel := context.WithTimeout(s.ending, asking)
			got, err := m.now.Subscribe(ctx, []string{m.key.uri})
			cancel()
			if err != nil {
				s.log.Warn("a subscription was lost with the configuration that it was made under", "upstream", m.key.upstream, "error", err)
			}
			ls.mu.Lock()
			sub, there := m.h.subs[m.key]
			switch {
			case !there || sub.backend != m.old: // it was taken back meanwhile
				ls.mu.Unlock()
				m.now.Unsubscribe(got)
				continue
			case len(got) > 0:
				m.h.subs[m.key] = subscription{sub.exposed, m.now}
				ls.deliver(m.h, note{method: mcp.MethodNotificationResourceUpdated, uri: sub.exposed}) // something may have been missed
			default:
				delete(m.h.subs, m.key)
			}
			ls.mu.Unlock()
			m.old.Unsubscribe([]string{m.key.uri})
		}
	})
}

// subscribeResource answers resources/subscribe of a legacy session.
func subscribeResource(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	if !x.endpoint.view.offers.subscribe {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	t, err := x.resource(info)
	if err != nil {
		return result{}, err
	}
	h := s.listeners.hear(x.endpoint.name, nil, x.session)
	accepted, err := s.subscribeTo(ctx, h, []*target{t})
	if !accepted[t] {
		s.listeners.release(h, func(resourceKey) bool { return true })
		if err == nil {
			err = invalidParams("The upstream %s does not tell of changes to this resource", t.backend.Name())
		}
		if peer, ok := err.(*jsonrpc.Error); ok {
			err = t.renameError(peer)
		}
		return result{}, err
	}
	if x.session.over() {
		s.listeners.forget(x.session)
	}
	return result{body: []byte("{}")}, nil
}

// unsubscribeResource answers resources/unsubscribe of a legacy session. One that was not subscribed to is none afterwards, either.
func unsubscribeResource(_ context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	if !x.endpoint.view.offers.subscribe {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	t, err := x.resource(info)
	if err != nil {
		return result{}, err
	}
	gone := resourceKey{t.backend.Name(), t.name}
	s.listeners.release(s.listeners.hear(x.endpoint.name, nil, x.session), func(k resourceKey) bool { return k != gone })
	return result{body: []byte("{}")}, nil
}

// listen keeps the stream open until ctx ends, because the client goes or deletes its session, or until we shut down.
func (s *Server) listen(ctx context.Context, w http.ResponseWriter, r *http.Request, l *listener) {
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
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		var event []byte
		select {
		case <-ctx.Done():
			return
		case <-s.ending.Done():
			if l.last != nil {
				p.flush(l.last)
			}
			return
		case <-l.changed:
			for _, n := range s.listeners.take(l) {
				event = l.appendEvent(event, n)
			}
			if len(event) == 0 {
				continue
			}
		case <-alive.C:
			event = []byte(":\n\n")
		}
		if !p.flush(event) {
			return
		}
	}
}

// appendEvent appends a note as the stream's client reads it.
func (l *listener) appendEvent(b []byte, n note) []byte {
	var params []byte
	if n.params != "" {
		return jsonrpc.AppendEvent(b, "", jsonrpc.AppendRequest(nil, "", n.method, []byte(n.params)))
	}
	if n.uri != "" {
		params = raw.AppendQuote([]byte(`{"uri":`), n.uri)
	}
	if l.meta != nil {
		if params == nil {
			params = []byte{'{'}
		} else {
			params = append(params, ',')
		}
		params = append(append(params, `"_meta":`...), l.meta...)
	}
	if params != nil {
		params = append(params, '}')
	}
	return jsonrpc.AppendEvent(b, "", jsonrpc.AppendRequest(nil, "", n.method, params))
}

func tooManyStreams(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "Too many streams are open (limits.streams).", http.StatusServiceUnavailable)
}

// maxSubscribe bounds the request of a subscription, which is held for as long as its stream is open.
const maxSubscribe = 64 << 10

// subscribe answers subscriptions/listen (2026-07-28, basic/patterns/subscriptions): it acknowledges what will be honoured.
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
	l := &listener{endpoint: x.endpoint.name, changed: make(chan struct{}, 1)}
	var honoured []string
	for p, name := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		v, err := wanted.Get(name)
		if err != nil && err != raw.ErrAbsent {
			return result{}, err
		}
		if l.wants[p] = string(v) == "true"; l.wants[p] {
			honoured = append(honoured, `"`+name+`":true`)
		}
	}
	l.meta = append([]byte(`{"`+mcp.MetaKeySubscriptionID+`":`), x.msg.ID...)
	l.meta = append(l.meta, '}')
	h := s.listeners.hear(x.endpoint.name, l, nil)
	defer s.listeners.release(h, nothing)
	uris, err := wanted.Elements("resourceSubscriptions")
	if err != nil && err != raw.ErrAbsent {
		return result{}, err
	}
	if x.endpoint.view.offers.subscribe && len(uris) > 0 {
		list, err := s.subscribeAll(ctx, x, h, uris)
		if err != nil {
			return result{}, err
		}
		if len(list) > 0 {
			honoured = append(honoured, `"resourceSubscriptions":[`+strings.Join(list, ",")+`]`)
		}
	}
	params := append([]byte(`{"notifications":{`+strings.Join(honoured, ",")+`},"_meta":`), l.meta...)
	l.first = jsonrpc.AppendEvent(nil, "", jsonrpc.AppendRequest(nil, "", "notifications/subscriptions/acknowledged", append(params, '}')))
	end := append(append([]byte(`{"resultType":"complete","_meta":`), l.meta...), '}')
	l.last = jsonrpc.AppendEvent(nil, "", append(append(jsonrpc.ResponseHead(nil, x.msg.ID), end...), '}'))
	x.reply.finish()
	s.requests.Add(-1) // a stream counts as one, and no longer as a request
	defer s.requests.Add(1)
	s.listen(ctx, x.reply.w, x.request, l)
	return result{}, errAnswered
}

// subscribeAll subscribes to the resources of a subscriptions/listen, and returns those that an upstream accepted, as JSON.
func (s *Server) subscribeAll(ctx context.Context, x *exchange, h *hearer, uris [][]byte) ([]string, error) {
	var targets []*target
	for _, v := range uris {
		uri, err := raw.String(v)
		if err == raw.ErrAbsent {
			return nil, invalidParams("Invalid params: a resource in resourceSubscriptions is no string")
		} else if err != nil {
			return nil, err
		}
		if t, err := x.endpoint.view.resource(x.era, uri); err == nil { // one that is of nobody is not acknowledged
			targets = append(targets, t)
		}
	}
	accepted, err := s.subscribeTo(ctx, h, targets)
	if err != nil {
		s.log.Debug("not all subscriptions were accepted", "error", err)
	}
	var list []string
	for _, t := range targets {
		if accepted[t] {
			list = append(list, string(raw.Quote(t.exposed)))
		}
	}
	return list, nil
}
