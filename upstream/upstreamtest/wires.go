package upstreamtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// errDied is how a server in a test's own process ends when it should have exited.
var errDied = errors.New("died as asked")

// ServeStdio serves one client over a pair of pipes until in ends, and returns nil then. It returns
// errors of in, and one when the server was told to die; in and out are closed in that case if they
// can be. It waits for the calls that it began.
func (s *Server) ServeStdio(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	hangUp := func() {
		for _, end := range []any{in, out} {
			if c, ok := end.(io.Closer); ok {
				c.Close()
			}
		}
	}
	o := &stream{w: out, die: func() {
		if s.exit != nil {
			s.exit(3)
		}
		cancel(errDied)
		hangUp()
	}}
	se := s.begin(o)
	defer s.forget(se)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, hangUp)()
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			m, bad := s.add(Record{Verb: "STDIN", Body: line, PID: os.Getpid()})
			c := &call{s: s, m: &m, se: se, out: o, modern: s.modern(&m, "")}
			switch {
			case bad != nil:
				c.fail(0, codeOf(bad), bad.Error(), nil)
			case !m.IsRequest():
				s.take(se, &m)
			case c.deaf():
				c.serve(c.register(ctx))
				c.end()
				args, _ := raw.Get(m.Params, "arguments", "gate")
				gate, _ := raw.String(args)
				c.pause(ctx, arguments{Gate: gate})
			default:
				answer, _ := c.plan()
				registered := c.register(ctx)
				calls.Go(func() {
					defer c.end()
					answer(registered)
				})
			}
		}
		switch {
		case context.Cause(ctx) == errDied:
			return errDied
		case err == io.EOF || s.ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read standard input: %w", err)
		}
	}
}

func (c *call) deaf() bool {
	name, _ := raw.Get(c.m.Params, "name")
	return c.m.Method == "tools/call" && string(name) == `"deaf"`
}

// modern decides of which era a message is.
func (s *Server) modern(m *jsonrpc.Message, header string) bool {
	if !s.script.speaks(false) {
		return m.Method != "initialize"
	}
	_, err := raw.Get(m.Params, "_meta", keyVersion)
	return s.script.speaks(true) && (err == nil || header >= firstModern && slices.Contains(s.script.Versions, header))
}

func codeOf(err error) int64 {
	if _, ok := errors.AsType[*raw.SyntaxError](err); ok {
		return -32700
	}
	return -32600
}

// exchange is a POST to the Streamable HTTP endpoint.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	status int // of a JSON answer; one that is not 200 makes the answer JSON
	out    *stream
	died   bool
}

// Handler serves Streamable HTTP on whatever path it stands.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, bad, ok := s.receive(w, r)
		if !ok {
			return
		}
		switch r.Method {
		case "POST":
			s.post(w, r, &m, bad)
		case "GET":
			s.get(w, r)
		case "DELETE":
			se := s.session(r.Header.Get("Mcp-Session-Id"))
			switch {
			case !s.script.speaks(false) || s.script.NoSession:
				http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
				return
			case se == nil:
				http.Error(w, "Session not found", 404)
				return
			}
			s.forget(se)
			se.out.hangUp()
		default:
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		}
	})
}

// receive reads and records a request, and answers one that goes no further.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (m jsonrpc.Message, bad error, ok bool) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "read the request: "+err.Error(), 400)
		return m, nil, false
	}
	record := Record{Verb: r.Method, Header: r.Header.Clone(), Query: r.URL.RawQuery, PID: os.Getpid()}
	record.Header.Set("Host", r.Host)
	if r.Method == "POST" {
		record.Body = text
	}
	m, bad = s.add(record)
	switch {
	case s.script.Host != "" && s.script.Host != r.Host:
		http.Error(w, "Host not allowed", http.StatusForbidden)
	case r.Method == "GET" && !accepts(r, "text/event-stream"):
		http.Error(w, "Not acceptable: GET is for text/event-stream", http.StatusNotAcceptable)
	case r.Method == "POST" && !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		http.Error(w, "Unsupported media type: POST application/json", http.StatusUnsupportedMediaType)
	default:
		if r.Method != "POST" {
			if rule, matched := s.rule(r.Method, false); matched {
				c := &call{s: s, m: &m, out: &stream{die: func() { panic(http.ErrAbortHandler) }}}
				c.http = &exchange{w: w, r: r, out: c.out}
				c.obey(r.Context(), rule)
				return m, bad, false
			}
		}
		return m, bad, true
	}
	return m, bad, false
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, bad error) {
	x := &exchange{w: w, r: r, status: 200, out: &stream{w: w, odd: s.script.OddFraming}}
	c := &call{s: s, m: m, http: x, out: x.out, modern: s.modern(m, r.Header.Get("Mcp-Protocol-Version"))}
	c.se = newSession(nil) // until admit finds a better one
	c.se.initialized = s.script.NoSession
	x.out.die = func() { x.died = true }
	x.out.open = func(final bool) { x.open(c, final) }
	switch {
	case bad != nil:
		x.invalid(400, codeOf(bad), bad.Error())
	case !accepts(r, "application/json") || !accepts(r, "text/event-stream"):
		x.invalid(406, -32000, "Not acceptable: accept application/json and text/event-stream")
	case !m.IsRequest():
		if c.admit() {
			s.take(c.se, m)
			w.WriteHeader(202)
		}
	default:
		if answer, ruled := c.plan(); ruled || c.admit() {
			x.run(c, answer)
		}
	}
}

func accepts(r *http.Request, mime string) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), mime)
}

// admit finds the session of a legacy message, and answers a message that does not belong here.
func (c *call) admit() bool {
	x, s := c.http, c.s
	version, id := x.r.Header.Get("Mcp-Protocol-Version"), x.r.Header.Get("Mcp-Session-Id")
	known := s.session(id)
	switch {
	case c.modern && c.m.IsResponse():
		return x.invalid(400, -32600, "clients send no responses")
	case c.modern:
		return true
	case version != "" && (version >= firstModern || !slices.Contains(s.script.Versions, version)):
		return x.invalid(400, -32000, "Bad Request: Unsupported protocol version")
	case s.script.NoSession || c.m.Method == "initialize":
		return true
	case id == "":
		return x.invalid(400, -32000, "Bad Request: Server not initialized")
	case known == nil:
		return x.invalid(404, -32001, "Session not found")
	}
	c.se = known
	if s.script.Resumable && c.m.IsRequest() {
		c.out.ids = s.next()
		known.mu.Lock()
		known.streams[c.out.ids] = c.out
		known.mu.Unlock()
	}
	return true
}

// run answers a request on the goroutine of its HTTP handler. What ends it is, in the modern era,
// the client closing the response.
func (x *exchange) run(c *call, answer func(context.Context)) {
	s, r := c.s, x.r
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	if down, ok := r.Context().Value(downKey{}).(context.Context); ok {
		defer context.AfterFunc(down, cancel)()
	}
	recorded := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(recorded)
		done := c.out.done()
		if c.modern { // before the record, after which tests release gates for other calls
			cancel()
		}
		if !done {
			s.add(Record{Verb: "CLOSE", Header: r.Header.Clone(), Body: c.m.Append(nil), PID: os.Getpid()})
		}
	})
	answer(c.register(ctx))
	c.end()
	if !stop() {
		<-recorded
	}
	if x.died {
		panic(http.ErrAbortHandler)
	}
	if !x.out.done() {
		x.out.bytes("") // an event stream that ends without a response
	}
	x.out.detach(x.w)
}

// open writes the header of the response once it is known what comes first.
func (x *exchange) open(c *call, final bool) {
	if final && (c.s.script.JSONAnswers || x.status != 200) {
		x.out.framing, x.out.ids = body, ""
		x.w.Header().Set("Content-Type", "application/json")
		x.w.WriteHeader(x.status)
		return
	}
	x.out.framing = events
	eventStream(x.w)
	c.se.mu.Lock()
	defer c.se.mu.Unlock()
	if x.out.ids != "" && c.se.version >= "2025-11-25" { // older clients would take the empty event for a message
		retry := ""
		if c.s.script.RetryMs > 0 {
			retry = fmt.Sprintf("retry: %d\n", c.s.script.RetryMs)
		}
		x.out.log = append(x.out.log, fmt.Appendf(nil, "id: %s-1\n%sdata:\n\n", x.out.ids, retry))
		x.out.write(bytes.NewReader(x.out.log[0]))
	}
}

func eventStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(200)
	http.NewResponseController(w).Flush()
}

// refuse answers without JSON-RPC.
func (x *exchange) refuse(status int, header map[string]string, text string) {
	x.out.mu.Lock()
	defer x.out.mu.Unlock()
	x.out.open, x.out.answered, x.out.w = nil, true, nil
	for k, v := range header {
		x.w.Header().Set(k, v)
	}
	x.w.WriteHeader(cmp.Or(status, 200))
	io.WriteString(x.w, text)
}

// invalid answers what is not served for the sake of its transport, without an id as the SDKs do.
// It returns false.
func (x *exchange) invalid(status int, code int64, text string) bool {
	x.refuse(status, map[string]string{"Content-Type": "application/json"},
		fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":%s},"id":null}`, code, raw.Quote(text)))
	return false
}

// drop cuts the connection under the response; the call goes on.
func (x *exchange) drop() {
	x.out.bytes("")
	x.out.mu.Lock()
	x.out.w = nil
	x.out.mu.Unlock()
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err == nil {
		conn.Close()
	}
}

// listening returns the stream of a session's GET.
func (s *Server) listening() *stream {
	o := &stream{framing: events, odd: s.script.OddFraming}
	if s.script.Resumable {
		o.ids = s.next()
	}
	return o
}

// get serves a listening stream, or what is left of the stream of a POST.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	se := s.session(r.Header.Get("Mcp-Session-Id"))
	switch {
	case s.script.NoGET || s.script.NoSession || !s.script.speaks(false):
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		return
	case se == nil && r.Header.Get("Mcp-Session-Id") == "":
		http.Error(w, "Bad Request: no session", 400)
		return
	case se == nil:
		http.Error(w, "Session not found", 404)
		return
	}
	out, after := se.out, -1
	if last := r.Header.Get("Last-Event-Id"); last != "" && s.script.Resumable {
		prefix, number, _ := strings.Cut(last, "-")
		after, _ = strconv.Atoi(number)
		se.mu.Lock()
		if o := se.streams[prefix]; o != nil {
			out = o
		}
		se.mu.Unlock()
	}
	end := out.attach(w, after)
	s.add(Record{Verb: "OPEN", PID: os.Getpid()})
	s.greet(se)
	select {
	case <-end:
	case <-r.Context().Done():
	case <-s.ctx.Done():
	}
	out.detach(w)
}

// SSEHandler serves HTTP+SSE of 2024-11-05: a GET of any path is the event stream, a POST with its
// query takes messages.
func (s *Server) SSEHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		se := s.session(r.URL.Query().Get("session"))
		m, bad, ok := s.receive(w, r)
		switch {
		case !ok:
		case r.Method == "GET":
			s.serveSSE(w, r)
		case r.Method != "POST" || r.URL.Query().Get("session") == "":
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		case se == nil:
			http.Error(w, "Session not found", 404)
		case bad != nil:
			http.Error(w, bad.Error(), 400)
		default:
			s.postSSE(w, se, &m)
		}
	})
}

func (s *Server) serveSSE(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	out := &stream{framing: events, odd: s.script.OddFraming, die: func() { cancel(errDied) }}
	se := s.begin(out)
	se.ctx = ctx // before the client knows the session
	end := out.attach(w, -1)
	endpoint := s.script.Endpoint
	if endpoint == "" {
		endpoint = "/messages?session=" + se.id
	}
	out.bytes("event: endpoint\ndata: " + endpoint + "\n\n")
	select {
	case <-end:
	case <-r.Context().Done():
	case <-ctx.Done():
	}
	died := context.Cause(ctx) == errDied
	s.forget(se)
	cancel(nil)
	se.mu.Lock()
	se.ended = true
	se.mu.Unlock()
	se.running.Wait()
	out.detach(w)
	if died {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) postSSE(w http.ResponseWriter, se *session, m *jsonrpc.Message) {
	if !m.IsRequest() {
		s.take(se, m)
		w.WriteHeader(202)
		return
	}
	c := &call{s: s, m: m, se: se, out: se.out}
	answer, _ := c.plan()
	se.mu.Lock()
	ended := se.ended
	if !ended {
		se.running.Add(1)
	}
	se.mu.Unlock()
	if ended {
		http.Error(w, "Session not found", 404)
		return
	}
	ctx := c.register(se.ctx)
	go func() {
		defer se.running.Done()
		defer c.end()
		answer(ctx)
	}()
	w.WriteHeader(202)
}
