package upstreamtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Server is one MCP server, on as many wires as a test likes. Its methods may be called from
// several goroutines.
type Server struct {
	Journal
	script Script
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	exit   func(code int) // of a child process; nil in a test's own

	counted atomic.Int64 // calls of the tool count

	state    sync.Mutex // guards the rest; never held while a connection is written to
	lists    map[listKind][]json.RawMessage
	rules    []*ruleState
	asked    map[string]bool     // methods of requests so far
	sessions map[string]*session // of legacy HTTP and of HTTP+SSE by id, of stdio by a made-up one
	latest   *session
	listens  map[*listen]bool
	gates    map[string]chan struct{}
	asks     map[jsonrpc.ID]chan jsonrpc.Message
	tasks    map[string]*task
	serial   int // of the last session id, question, stream or task
	executed int // how often tools that ask have done their work
}

type ruleState struct {
	Rule
	seen int
}

// session is what a legacy server remembers of a client; over stdio also what a modern one
// remembers of the calls in progress.
type session struct {
	id  string
	out *stream         // for what belongs to no call
	ctx context.Context // of the event stream of HTTP+SSE, and so of the calls on it

	mu           sync.Mutex
	version      string
	capabilities []byte // that the client declared
	clientInfo   []byte
	level        string // of the log
	subscribed   map[string]bool
	initialized  bool
	greeted      bool // asked as AsksRoots says
	ended        bool
	calls        map[jsonrpc.ID]context.CancelFunc
	// HTTP: cancelled and not in calls; the request may be on another connection and on its way
	early   map[jsonrpc.ID]bool
	running sync.WaitGroup     // the goroutines of calls on HTTP+SSE
	streams map[string]*stream // by the prefix of their event ids
}

// New returns a server that serves nothing yet. It panics when the script makes no sense, which is
// a mistake in a test.
func New(script Script) *Server {
	script = script.withDefaults()
	s := &Server{
		script: script, lists: map[listKind][]json.RawMessage{},
		sessions: map[string]*session{}, listens: map[*listen]bool{}, gates: map[string]chan struct{}{},
		asks: map[jsonrpc.ID]chan jsonrpc.Message{}, tasks: map[string]*task{},
	}
	for method, list := range map[string][]json.RawMessage{
		"tools/list": script.Tools, "prompts/list": script.Prompts, "resources/list": script.Resources,
		"resources/templates/list": script.Templates, "skills/list": script.Skills,
	} {
		s.lists[listKinds[method]] = list
	}
	s.quiet = script.Quiet
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.AddRules(script.Rules...)
	return s
}

// Close ends everything in progress: calls without an answer, streams and subscriptions at once. It
// waits for nothing; the wires do.
func (s *Server) Close() { s.cancel() }

// AddRules makes the server misbehave from now on. They come after the rules it has.
func (s *Server) AddRules(rules ...Rule) {
	s.state.Lock()
	defer s.state.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &ruleState{Rule: r})
	}
}

// ClearRules makes it behave.
func (s *Server) ClearRules() {
	s.state.Lock()
	defer s.state.Unlock()
	s.rules = nil
}

// rule returns the rule for a request of an era.
func (s *Server) rule(method string, modern bool) (Rule, bool) {
	s.state.Lock()
	defer s.state.Unlock()
	if s.asked == nil {
		s.asked = map[string]bool{}
	}
	defer func() { s.asked[method] = true }()
	for _, r := range s.rules {
		if r.Method != method && r.Method != "*" || r.Era != "" && modern != (r.Era == "modern") ||
			r.After != "" && !s.asked[r.After] {
			continue
		}
		if r.seen++; r.seen > r.Skip && (r.Times == 0 || r.seen <= r.Skip+r.Times) {
			return r.Rule, true
		}
	}
	return Rule{}, false
}

// Release lets one call, waiting or to come, through the gate of that name.
func (s *Server) Release(gate string) { s.gate(gate) <- struct{}{} }

func (s *Server) gate(name string) chan struct{} {
	s.state.Lock()
	defer s.state.Unlock()
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{}, 1000) // permits, so that Release need not wait for the call
	}
	return s.gates[name]
}

// EndSessions forgets all legacy sessions over HTTP and ends their streams: the next request of
// each client is answered 404.
func (s *Server) EndSessions() {
	s.state.Lock()
	var ended []*session
	for id, se := range s.sessions {
		if se.out.framing == events {
			ended = append(ended, se)
			delete(s.sessions, id)
		}
	}
	s.state.Unlock()
	for _, se := range ended {
		se.out.hangUp()
	}
}

// EndStreams ends the listening streams of all clients: those of subscriptions/listen with their
// result if graceful, otherwise without a word.
func (s *Server) EndStreams(graceful bool) {
	s.state.Lock()
	sessions, listens := slices.Collect(maps.Values(s.sessions)), slices.Collect(maps.Keys(s.listens))
	s.state.Unlock()
	for _, se := range sessions {
		se.out.hangUp()
	}
	for _, l := range listens {
		if graceful {
			l.finish(errGraceful)
		} else {
			l.finish(nil)
		}
	}
}

// Ask sends a request outside of any call to the session that was begun last, and blocks until it
// is answered. The error comes from ctx, or reports that there is no session.
func (s *Server) Ask(ctx context.Context, method string, params json.RawMessage) (jsonrpc.Message, error) {
	s.state.Lock()
	se := s.latest
	s.state.Unlock()
	if se == nil {
		return jsonrpc.Message{}, fmt.Errorf("ask %s: no session", method)
	}
	return s.ask(ctx, se.out, method, params)
}

func (s *Server) ask(ctx context.Context, out *stream, method string, params json.RawMessage) (jsonrpc.Message, error) {
	q, err := s.put(out, method, params)
	defer s.withdraw(q)
	if err != nil {
		return jsonrpc.Message{}, err
	}
	return s.answerTo(ctx, q)
}

// asked is a request to the client that is on its way.
type asked struct {
	id     jsonrpc.ID
	method string
	answer chan jsonrpc.Message // 1-buffered
}

// put sends a request to the client. The caller withdraws it, whatever the error.
func (s *Server) put(out *stream, method string, params json.RawMessage) (asked, error) {
	q := asked{jsonrpc.ID(raw.Quote("ask-" + s.next())), method, make(chan jsonrpc.Message, 1)}
	s.state.Lock()
	s.asks[q.id] = q.answer
	s.state.Unlock()
	if err := out.send(bytes.NewReader(jsonrpc.AppendRequest(nil, q.id, method, params)), false); err != nil &&
		out.ids == "" {
		return q, fmt.Errorf("ask %s: %w", method, err)
	}
	return q, nil
}

func (s *Server) withdraw(q asked) {
	s.state.Lock()
	defer s.state.Unlock()
	delete(s.asks, q.id)
}

// answerTo waits for the answer to a request to the client.
func (s *Server) answerTo(ctx context.Context, q asked) (jsonrpc.Message, error) {
	select {
	case m := <-q.answer:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, fmt.Errorf("ask %s: %w", q.method, context.Cause(ctx))
	case <-s.ctx.Done():
		return jsonrpc.Message{}, fmt.Errorf("ask %s: the server was closed", q.method)
	}
}

func (s *Server) next() string {
	s.state.Lock()
	defer s.state.Unlock()
	s.serial++
	return strconv.Itoa(s.serial)
}

func newSession(out *stream) *session {
	return &session{out: out, calls: map[jsonrpc.ID]context.CancelFunc{}, early: map[jsonrpc.ID]bool{},
		streams: map[string]*stream{}, subscribed: map[string]bool{}}
}

func (s *Server) begin(out *stream) *session {
	se := newSession(out)
	se.id = "session-" + s.next() + "-" + rand.Text() // a later server at the address does not know it
	s.state.Lock()
	defer s.state.Unlock()
	s.sessions[se.id], s.latest = se, se
	return se
}

func (s *Server) session(id string) *session {
	s.state.Lock()
	defer s.state.Unlock()
	return s.sessions[id]
}

func (s *Server) forget(se *session) {
	s.state.Lock()
	defer s.state.Unlock()
	delete(s.sessions, se.id)
	if s.latest == se {
		s.latest = nil
	}
}

func (se *session) ready() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.initialized
}

// take handles a message that is no request.
func (s *Server) take(se *session, m *jsonrpc.Message) {
	switch {
	case m.IsResponse():
		s.state.Lock()
		defer s.state.Unlock()
		if answer := s.asks[m.ID]; answer != nil {
			delete(s.asks, m.ID)
			answer <- *m
		}
	case m.Method == "notifications/initialized":
		se.mu.Lock()
		se.initialized = se.version != ""
		se.mu.Unlock()
		s.greet(se)
	case m.Method == "notifications/cancelled":
		id, _ := raw.Get(m.Params, "requestId")
		se.mu.Lock()
		defer se.mu.Unlock()
		if cancel := se.calls[jsonrpc.ID(id)]; cancel != nil {
			cancel()
		} else if se.out != nil && se.out.framing == events {
			se.early[jsonrpc.ID(id)] = true
		}
	}
}
