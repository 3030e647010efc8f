package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

const (
	methodCancelled   = "notifications/cancelled"
	methodInitialized = "notifications/initialized"
)

// session is the legacy session of the client at the endpoint. After the endpoint has ended it, a
// session with the same state replaces it.
type session struct {
	transport.Transport
	version string           // of the protocol
	hello   *jsonrpc.Message // the client's initialize
	lists   []string         // methods of the notifications about changed lists that the endpoint sends
	state   *sessionState    // shared with the session that replaces it
}

// sessionState contains the values that the client has set in its session. The endpoint forgets
// them when it restarts.
type sessionState struct {
	mu            sync.Mutex
	ready         bool // the client has sent notifications/initialized
	listening     *session
	level         []byte            // params of the last logging/setLevel; nil if there was none
	subscriptions map[string][]byte // params of resources/subscribe, by URI
}

// note remembers the value that a request has set. The request must have succeeded.
func (st *sessionState) note(m *jsonrpc.Message) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch mcp.MCPMethod(m.Method) {
	case mcp.MethodSetLogLevel:
		st.level = m.Params
	case mcp.MethodResourcesSubscribe:
		if uri, err := m.Body.String("uri"); err == nil {
			st.subscriptions[uri] = m.Params
		}
	case mcp.MethodResourcesUnsubscribe:
		if uri, err := m.Body.String("uri"); err == nil {
			delete(st.subscriptions, uri)
		}
	}
}

// requests returns the requests that set the state again.
func (st *sessionState) requests() []jsonrpc.Message {
	st.mu.Lock()
	defer st.mu.Unlock()
	var list []jsonrpc.Message
	if st.level != nil {
		list = append(list, jsonrpc.Message{Method: string(mcp.MethodSetLogLevel), Params: st.level})
	}
	for _, uri := range slices.Sorted(maps.Keys(st.subscriptions)) {
		list = append(list, jsonrpc.Message{Method: string(mcp.MethodResourcesSubscribe),
			Params: st.subscriptions[uri]})
	}
	for i := range list {
		list[i].ID = jsonrpc.ID(fmt.Sprintf(`"junction-state-%d"`, i))
	}
	return list
}

// current returns the session, or nil before the first.
func (b *bridge) current() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

// initialize opens the session of the client. It replaces an earlier one.
func (b *bridge) initialize(ctx context.Context, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	var s *session
	answer, err := b.persist(ctx, func() (answer *jsonrpc.Message, err error) {
		s, answer, err = b.open(ctx, m, m.ID)
		return answer, err
	})
	if s == nil {
		return answer, err
	}
	s.state = &sessionState{subscriptions: map[string][]byte{}}
	return answer, b.replace(ctx, s)
}

// lock waits until no other session is being opened.
func (b *bridge) lock(ctx context.Context) error {
	select {
	case b.opening <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *bridge) unlock() { <-b.opening }

// open sends initialize and returns the new session. The session is nil if the endpoint rejects it;
// the answer is then the error.
func (b *bridge) open(ctx context.Context, hello *jsonrpc.Message, id jsonrpc.ID) (*session, *jsonrpc.Message, error) {
	s := &session{hello: hello}
	s.Transport = b.Open(func(m *jsonrpc.Message) { b.deliver(s, nil, m) })
	req := &transport.Request{Message: *hello}
	req.ID = id
	answer, err := s.Call(ctx, req, func(m *jsonrpc.Message) { b.deliver(s, nil, m) })
	if err == nil && answer.Error == nil {
		s.version, err = answer.Body.String("protocolVersion")
	}
	if err != nil || answer.Error != nil {
		s.Close()
		return nil, answer, err
	}
	s.SetVersion(s.version)
	for _, part := range []string{"tools", "prompts", "resources"} {
		if v, err := raw.Get(answer.Result, "capabilities", part, "listChanged"); err == nil && string(v) == "true" {
			s.lists = append(s.lists, "notifications/"+part+"/list_changed")
		}
	}
	return s, answer, nil
}

// replace makes s the session.
func (b *bridge) replace(ctx context.Context, s *session) error {
	b.mu.Lock()
	old, ended := b.session, ctx.Err() != nil
	if !ended {
		b.session = s
	}
	b.mu.Unlock()
	if ended {
		s.Close()
		return context.Cause(ctx)
	}
	if old != nil {
		b.withdraw(func(from question) bool { return from.session == old })
		old.Close()
	}
	return nil
}

// living returns the session, and opens it again if the endpoint has ended it. It is nil if the
// client has none.
func (b *bridge) living(ctx context.Context) (*session, error) {
	if s := b.current(); s == nil || !s.Ended() {
		return s, nil
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer b.unlock()
	old := b.current()
	if !old.Ended() { // another request was faster
		return old, nil
	}
	s, answer, err := b.open(ctx, old.hello, `"junction-initialize"`)
	switch {
	case err != nil:
		return nil, err
	case answer.Error != nil:
		return nil, fmt.Errorf("the endpoint does not open the session again: %w; restart the client", answer.Error)
	case s.version != old.version:
		s.Close()
		return nil, fmt.Errorf("the endpoint now uses the protocol version %s instead of %s; restart the client",
			s.version, old.version)
	}
	s.state = old.state
	if err := b.replace(ctx, s); err != nil {
		return nil, err
	}
	s.state.mu.Lock()
	ready := s.state.ready
	s.state.mu.Unlock()
	if ready {
		b.send(b.ctx, s, &jsonrpc.Message{Method: methodInitialized})
		b.listenLegacy(s)
		b.start(func() { b.restore(b.ctx, s) })
	}
	return s, nil
}

// listenLegacy opens the stream of messages that belong to no request. If the stream was lost, the
// endpoint may have restarted: it still knows the session, but not its state.
func (b *bridge) listenLegacy(s *session) {
	s.state.mu.Lock()
	again := s.state.listening == s
	s.state.ready, s.state.listening = true, s
	s.state.mu.Unlock()
	if again {
		return
	}
	first := true
	s.Listen(func() {
		if !first {
			b.start(func() { b.restore(b.ctx, s) })
		}
		first = false
	})
	go func() { // ends with the transport, at the latest with the bridge
		_ = s.Wait()
		b.start(func() { b.revive(s) })
	}()
}

// revive opens an ended session again without waiting for a request, so that the client gets
// notifications.
func (b *bridge) revive(s *session) {
	for pause := maxPause / 10; b.current() == s && b.ctx.Err() == nil; pause = min(2*pause, 30*maxPause) {
		_, err := b.living(b.ctx)
		if err == nil || !errors.Is(err, transport.ErrNotSent) || !b.sleep(b.ctx, pause) {
			return
		}
	}
}

// restore sets the state of the session again, and tells the client that the lists may have
// changed.
func (b *bridge) restore(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	for _, m := range s.state.requests() {
		req := &transport.Request{Message: m}
		if _, err := s.Call(ctx, req, func(m *jsonrpc.Message) { b.deliver(s, nil, m) }); err != nil {
			return // the session is lost again
		}
	}
	for _, method := range s.lists {
		b.out.tell(method, nil)
	}
}

// callLegacy sends a request in the session. Without a session, the endpoint rejects it.
func (b *bridge) callLegacy(ctx context.Context, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	var s *session
	answer, err := b.persist(ctx, func() (_ *jsonrpc.Message, err error) {
		if s, err = b.living(ctx); err != nil {
			return nil, err
		}
		if s == nil {
			return b.modern.Call(ctx, &transport.Request{Message: *m}, nil)
		}
		return s.Call(ctx, &transport.Request{Message: *m}, func(got *jsonrpc.Message) { b.deliver(s, m, got) })
	})
	b.withdraw(func(from question) bool { return from.call == m })
	if err == nil && answer.Error == nil && s != nil {
		s.state.note(m)
	}
	return answer, err
}
