package upstreamtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

func TestMain(m *testing.M) {
	upstreamtest.RunIfChild()
	os.Exit(m.Run())
}

// meta is the _meta of a modern request.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// hostile is a result that any decoding would change.
const hostile = `{"content":[ {"type":"hologram","x":1.0} ],"n":12345678901234567890, "é":"\u00e9\/","isError" :false,"z":{},"a":[1e2]}`

// pipe is a raw client over stdio.
type pipe struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *pipe) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatalf("send %s: %v", l, err)
		}
	}
}

func (p *pipe) want(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		got, err := p.out.ReadString('\n')
		if got != want+"\n" {
			p.t.Fatalf("got  %s (%v)\nwant %s", got, err, want)
		}
	}
}

func (p *pipe) initialize() {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	p.want(`{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},` +
		`"serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}`)
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func stdio(t *testing.T, script upstreamtest.Script) (*upstreamtest.Server, *pipe, func() error) {
	t.Helper()
	s := upstreamtest.New(script)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := s.ServeStdio(inR, outW)
		outW.Close()
		done <- err
	}()
	var result error
	ended := false
	wait := func() error {
		if !ended {
			inW.Close()
			go io.Copy(io.Discard, outR)
			result, ended = <-done, true
		}
		return result
	}
	t.Cleanup(func() { wait() })
	return s, &pipe{t, inW, bufio.NewReader(outR)}, wait
}

func call(id, name, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s","arguments":%s}}`, id, name, args)
}

func modernCall(id, name, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"%s","arguments":%s,%s}}`, id, name, args, meta)
}

func text(id, s string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, id, s)
}

func mustAwait(t *testing.T, ctx context.Context, j interface {
	Await(context.Context, func(upstreamtest.Record) bool) (upstreamtest.Record, error)
}, match func(upstreamtest.Record) bool) upstreamtest.Record {
	t.Helper()
	r, err := j.Await(ctx, match)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestStdioLegacy(t *testing.T) {
	s, p, wait := stdio(t, upstreamtest.Script{Tools: []json.RawMessage{[]byte(`{"name":"a b", "x":1.0}`), []byte(`{"name":"gate"}`), []byte(`{"name":"ask"}`)}, PageSize: 2})
	p.send(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
	p.want(`{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"the session is not initialized"}}`)
	p.initialize()
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a b", "x":1.0},{"name":"gate"}],"nextCursor":"page-1"}}`)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"page-1"}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"ask"}]}}`)
	p.send(call(`12345678901234567890`, "a b", `{"result":`+hostile+`}`))
	p.want(`{"jsonrpc":"2.0","id":12345678901234567890,"result":` + hostile + `}`)
	p.send(call(`1`, "a b", `{"do":"fail","error":{"code":7, "data":{"n":1.0},"message":"no"}}`))
	p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":7, "data":{"n":1.0},"message":"no"}}`)
	p.send(call(`2`, "nothing", `{}`))
	p.want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown tool: nothing"}}`)
	p.send(`not JSON`)
	p.want(`{"jsonrpc":"2.0","error":{"code":-32700,"message":"not JSON at byte 1"}}`)

	p.send(call(`3`, "gate", `{"gate":"g"}`), `{"jsonrpc":"2.0","id":4,"method":"ping"}`)
	p.want(`{"jsonrpc":"2.0","id":4,"result":{}}`)
	s.Release("g")
	p.want(text(`3`, "here it is"))

	p.send(call(`5`, "a b", `{"do":"hang","late":true}`), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	p.want(text(`5`, "too late"))

	p.send(call(`6`, "ask", `{"method":"roots/list","always":true}`))
	p.want(`{"jsonrpc":"2.0","id":"ask-2","method":"roots/list"}`)
	p.send(`{"jsonrpc":"2.0","id":"ask-2","result":{"roots":[], "n":1.0}}`)
	p.want(`{"jsonrpc":"2.0","id":6,"result":{"content":[{"type":"text","text":"{\"answers\":[{\"result\":{\"roots\":[], \"n\":1.0}}],\"executions\":1}"}],` +
		`"structuredContent":{"answers":[{"result":{"roots":[], "n":1.0}}],"executions":1}}}`)

	changed := make(chan struct{})
	go func() {
		s.SetTools([]json.RawMessage{[]byte(`{"name":"new"}`)})
		close(changed)
	}()
	p.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	<-changed
	if err := wait(); err != nil {
		t.Fatalf("ServeStdio at the end of its input = %v, want nil", err)
	}
	if got := s.Received()[1]; string(got.Body) == "" || got.Message.Method != "initialize" || got.Verb != "STDIN" {
		t.Fatalf("second record = %+v, want the initialize request", got)
	}
}

func TestCursors(t *testing.T) {
	tools := []json.RawMessage{[]byte(`1`), []byte(`2`), []byte(`3`)}
	list := func(script upstreamtest.Script, cursor, want string) {
		t.Helper()
		script.Tools, script.PageSize = tools, 1
		_, p, _ := stdio(t, script)
		p.initialize()
		p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + cursor + `}}`)
		p.want(`{"jsonrpc":"2.0","id":1,` + want + `}`)
	}
	empty, loop := upstreamtest.Script{EmptyCursor: true}, upstreamtest.Script{LoopCursor: true}
	list(empty, ``, `"result":{"tools":[1],"nextCursor":""}`)
	list(empty, `"cursor":""`, `"result":{"tools":[2],"nextCursor":"page-2"}`)
	list(empty, `"cursor":"page-2"`, `"result":{"tools":[3]}`)
	list(empty, `"cursor":"page-3"`, `"error":{"code":-32602,"message":"Invalid cursor"}`)
	list(loop, ``, `"result":{"tools":[1],"nextCursor":"again"}`)
	list(loop, `"cursor":"again"`, `"result":{"tools":[2],"nextCursor":"again"}`)
}

func TestLineBreaksInResult(t *testing.T) {
	const broken = "{\"a\":\n1,\r\n\"b\":2}"
	for _, json := range []bool{false, true} {
		want := strings.NewReplacer("\n", " ", "\r", " ").Replace(broken)
		if json {
			want = broken
		}
		_, url := upstreamtest.Start(t, upstreamtest.Script{JSONAnswers: json, NoSession: true})
		post(t, url, call(`1`, "echo", `{"result":`+broken+`}`)).want(t, 200, `{"jsonrpc":"2.0","id":1,"result":`+want+`}`)
	}
}

func TestStdioProgress(t *testing.T) {
	_, p, _ := stdio(t, upstreamtest.Script{})
	p.initialize()
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{"n":1,"late":true},"_meta":{"progressToken":"7"}}}`)
	p.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","progress":1,"total":1,"message":"step 1"}}`,
		text(`1`, "done"),
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"7","progress":2,"total":1,"message":"step 2"}}`)
	p.send(call(`2`, "progress", `{"n":1}`))
	p.want(text(`2`, "done"))
}

func TestStdioModern(t *testing.T) {
	s, p, _ := stdio(t, upstreamtest.Script{Era: "modern", Tools: []json.RawMessage{[]byte(`{"name":"ask"}`)}, TTLMs: 5, CacheScope: "public"})
	const tail = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}}`
	p.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":5,"cacheScope":"public",` + tail)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"ask"}],"ttlMs":5,"cacheScope":"public",` + tail)
	p.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	p.want(`{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"_meta lacks the protocol version or the client's capabilities"}}`)
	p.send(`{"jsonrpc":"2.0","id":4,"method":"ping","params":{` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found"}}`)
	p.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	p.want(`{"jsonrpc":"2.0","id":5,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-06-18"}}}`)

	p.send(modernCall(`6`, "ask", `{"method":"roots/list","always":true}`))
	p.want(`{"jsonrpc":"2.0","id":6,"result":{"resultType":"input_required","inputRequests":{"q1":{"method":"roots/list"}},` +
		`"requestState":"what the server wants to see again"}}`)
	p.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{"method":"roots/list"},"inputResponses":{"q1":{"roots":[]}},"requestState":"what the server wants to see again",` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{\"answers\":[{\"result\":{\"roots\":[]}}],\"executions\":1}"}],"structuredContent":{"answers":[{"result":{"roots":[]}}],"executions":1},` + tail)

	p.send(`{"jsonrpc":"2.0","id":"L1","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/subscriptionId":"L1"}}}`)
	go s.SetTools(nil)
	p.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L1"}}}`)
	s.EndStreams(true)
	p.want(`{"jsonrpc":"2.0","id":"L1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"L1"}}}`)
}

func TestStdioMisbehaves(t *testing.T) {
	t.Run("die", func(t *testing.T) {
		_, p, wait := stdio(t, upstreamtest.Script{Era: "modern"})
		p.send(modernCall(`1`, "die", `{}`))
		if _, err := p.out.ReadString('\n'); err != io.EOF && err != io.ErrClosedPipe {
			t.Fatalf("read of a dead server = %v, want the end", err)
		}
		if err := wait(); err == nil {
			t.Fatal("ServeStdio = nil, want an error: it was told to die")
		}
	})
	t.Run("half and garbage", func(t *testing.T) {
		_, p, _ := stdio(t, upstreamtest.Script{})
		p.initialize()
		p.send(call(`1`, "flood", `{"n":2,"what":"garbage"}`))
		p.want("this is not JSON-RPC", "this is not JSON-RPC", text(`1`, "flooded"))
		p.send(call(`2`, "half", `{}`))
		got := make([]byte, 40)
		if _, err := io.ReadFull(p.out, got); err != nil || !strings.HasPrefix(string(got), `{"jsonrpc":"2.0","id":2,"result":{`) {
			t.Fatalf("half a response = %s, %v", got, err)
		}
	})
	t.Run("rules", func(t *testing.T) {
		_, p, _ := stdio(t, upstreamtest.Script{
			DiscoverFails: "code0",
			Rules:         []upstreamtest.Rule{{Method: "ping", Skip: 1, Times: 1, Result: []byte(`{"odd":1.0}`)}},
		})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
		p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"unknown method"}}`)
		for i, want := range []string{`{}`, `{"odd":1.0}`, `{}`} {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
			p.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i, want))
		}
	})
	t.Run("deaf", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, p, _ := stdio(t, upstreamtest.Script{})
			p.initialize()
			p.send(call(`1`, "deaf", `{"gate":"ears"}`))
			p.want(text(`1`, "not listening any more"))
			var sent atomic.Bool
			go func() {
				io.WriteString(p.in, `{"jsonrpc":"2.0","id":2,"method":"ping"}`+"\n")
				sent.Store(true)
			}()
			if synctest.Wait(); sent.Load() {
				t.Fatal("a deaf server read its input")
			}
			s.Release("ears")
			p.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		})
	})
}

// response is what came of one HTTP request: for an event stream the data of its events.
type response struct {
	status int
	header http.Header
	body   string
	events []string
	err    error
}

func request(t *testing.T, verb, url, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func do(t *testing.T, r *http.Request) response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return response{err: err}
	}
	defer resp.Body.Close()
	got := response{status: resp.StatusCode, header: resp.Header}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		b, err := io.ReadAll(resp.Body)
		got.body, got.err = string(b), err
		return got
	}
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	for {
		e, err := events.Next()
		if err != nil {
			if err != io.EOF {
				got.err = err
			}
			return got
		}
		got.events = append(got.events, string(e.Data))
	}
}

func post(t *testing.T, url, body string, header ...string) response {
	t.Helper()
	return do(t, request(t, "POST", url, body, header...))
}

func (r response) want(t *testing.T, status int, events ...string) {
	t.Helper()
	got := r.events
	if r.body != "" {
		got = []string{r.body}
	}
	if r.err != nil || r.status != status || !slices.Equal(got, events) {
		t.Fatalf("got  %d %q (%v)\nwant %d %q", r.status, got, r.err, status, events)
	}
}

func initializeHTTP(t *testing.T, url, version string) (session string) {
	t.Helper()
	got := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{}}}`)
	session = got.header.Get("Mcp-Session-Id")
	if got.status != 200 || session == "" {
		t.Fatalf("initialize = %+v, want 200 and a session", got)
	}
	post(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", session).want(t, 202)
	return session
}

func TestHTTPLegacy(t *testing.T) {
	for _, json := range []bool{false, true} {
		t.Run(fmt.Sprint("JSON ", json), func(t *testing.T) {
			s, url := upstreamtest.Start(t, upstreamtest.Script{JSONAnswers: json, OddFraming: true})
			session := initializeHTTP(t, url, "2025-11-25")
			post(t, url, call(`"1"`, "echo", `{"result":`+hostile+`}`), "Mcp-Session-Id", session).want(t, 200, `{"jsonrpc":"2.0","id":"1","result":`+hostile+`}`)
			post(t, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`).want(t, 400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
			post(t, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "1900-01-01").
				want(t, 400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"},"id":null}`)
			s.EndSessions()
			post(t, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, "Mcp-Session-Id", session).
				want(t, 404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
			session = initializeHTTP(t, url, "2025-03-26")
			do(t, request(t, "DELETE", url, "", "Mcp-Session-Id", session)).want(t, 200)
			do(t, request(t, "GET", url, "", "Mcp-Session-Id", session)).want(t, 404, "Session not found\n")
			if got, want := s.Received()[2].Header.Get("Mcp-Session-Id"), "session-1-"; !strings.HasPrefix(got, want) {
				t.Fatalf("recorded session = %q, want %q", got, want)
			}
		})
	}
}

func TestHTTPListeningStream(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{})
	ctx := within(t)
	session := initializeHTTP(t, url, "2025-11-25")
	resp, err := http.DefaultClient.Do(request(t, "GET", url, "", "Mcp-Session-Id", session))
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET = %v, %v", resp, err)
	}
	defer resp.Body.Close()
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	next := func(want string) {
		t.Helper()
		if e, err := events.Next(); err != nil || string(e.Data) != want {
			t.Fatalf("event = %s, %v, want %s", e.Data, err, want)
		}
	}
	answer := make(chan string, 1)
	go func() {
		m, err := s.Ask(ctx, "ping", nil)
		answer <- fmt.Sprintf("%s %v", m.Result, err)
	}()
	e, err := events.Next()
	if err != nil {
		t.Fatal(err)
	}
	m, err := jsonrpc.Parse(e.Data, 10)
	if err != nil || m.Method != "ping" {
		t.Fatalf("question = %s, %v, want a ping", e.Data, err)
	}
	post(t, url, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"x":1.0}}`, "Mcp-Session-Id", session).want(t, 202)
	if got, want := <-answer, `{"x":1.0} <nil>`; got != want {
		t.Fatalf("answer = %s, want %s", got, want)
	}
	s.SetTools(nil)
	next(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	s.EndStreams(true)
	if _, err := events.Next(); err != io.EOF {
		t.Fatalf("after EndStreams: %v, want EOF", err)
	}
}

func TestHTTPResumes(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{Resumable: true, RetryMs: 10})
	session := initializeHTTP(t, url, "2025-11-25")
	resp, err := http.DefaultClient.Do(request(t, "POST", url, call(`1`, "drop", `{"gate":"g"}`), "Mcp-Session-Id", session))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	first, err := events.Next()
	if err != nil || first.ID == "" || len(first.Data) != 0 || first.Retry != 10*time.Millisecond {
		t.Fatalf("first event = %+v, %v, want an empty one with id and retry", first, err)
	}
	id := first.ID
	if _, err := events.Next(); err == nil || err == io.EOF {
		t.Fatalf("after the drop: %v, want a broken connection", err)
	}
	s.Release("g")
	do(t, request(t, "GET", url, "", "Mcp-Session-Id", session, "Last-Event-Id", id)).want(t, 200, text(`1`, "after the drop"))
}

// TestHTTPDisconnect pins what a client that goes away means: in the legacy era nothing, in the
// modern one that the call is cancelled.
func TestHTTPDisconnect(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{Resumable: true})
	leave := func(body, id string, header ...string) (event string) {
		t.Helper()
		ctx, cancel := context.WithCancel(within(t))
		sent := make(chan string, 1)
		r := request(t, "POST", url, body, header...).WithContext(ctx)
		go func() {
			defer close(sent)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				events := jsonrpc.NewEventReader(resp.Body, 1<<20)
				events.Next() // the empty one
				e, _ := events.Next()
				sent <- e.ID
				<-ctx.Done()
				resp.Body.Close()
			}
		}()
		mustAwait(t, within(t), s, func(r upstreamtest.Record) bool { return r.Verb == "POST" && string(r.Message.ID) == id })
		if header[0] == "Mcp-Session-Id" {
			event = <-sent // the first progress
		}
		cancel()
		mustAwait(t, within(t), s, func(r upstreamtest.Record) bool { return r.Verb == "CLOSE" && string(r.Message.ID) == id })
		for range sent {
		}
		return event
	}
	session := initializeHTTP(t, url, "2025-11-25")
	s.Release("legacy")
	legacy := `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"progress","arguments":{"n":2,"gate":"legacy"},"_meta":{"progressToken":1}}}`
	at := leave(legacy, "8", "Mcp-Session-Id", session)
	s.Release("legacy")
	got := do(t, request(t, "GET", url, "", "Mcp-Session-Id", session, "Last-Event-Id", at))
	if n := len(got.events); n == 0 || got.events[n-1] != text("8", "done") {
		t.Fatalf("events of a call whose client left and came back = %q, want the answer at the end", got.events)
	}

	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "gate"}
	leave(modernCall("9", "gate", `{"gate":"modern"}`), "9", header...)
	s.Release("modern") // not for the call that was left
	if got := post(t, url, modernCall("10", "gate", `{"gate":"modern"}`), header...); len(got.events) != 1 {
		t.Fatalf("gate = %+v, want an answer", got)
	}
}

func TestHTTPModern(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{Rules: []upstreamtest.Rule{upstreamtest.HeaderMismatch("tools/list")}})
	header := func(method, name string) []string {
		return []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name}
	}
	echo := modernCall(`1`, "echo", `{"result":`+hostile+`}`)
	mismatch := func(id, what string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32020,"message":"Header mismatch` + what + `"}}`
	}
	post(t, url, echo, header("tools/call", "echo")...).want(t, 200, `{"jsonrpc":"2.0","id":1,"result":`+hostile+`}`)
	post(t, url, echo, header("tools/call", "=?base64?ZWNobw==?=")...).want(t, 200, `{"jsonrpc":"2.0","id":1,"result":`+hostile+`}`)
	post(t, url, echo, header("tools/call", "fail")...).want(t, 400, mismatch(`1`, ": Mcp-Name"))
	post(t, url, echo, header("TOOLS/CALL", "echo")...).want(t, 400, mismatch(`1`, ": Mcp-Method"))
	post(t, url, echo, "Mcp-Method", "tools/call", "Mcp-Name", "echo").want(t, 400, mismatch(`1`, ": MCP-Protocol-Version"))
	post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{`+meta+`}}`, header("ping", "")...).
		want(t, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
	post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`, header("tools/list", "")...).want(t, 400, mismatch(`1`, ""))
	if got := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`, header("tools/list", "")...); got.status != 200 {
		t.Fatalf("tools/list after the rule's one time = %+v, want 200", got)
	}
	post(t, url, `{"jsonrpc":"2.0","id":1,"result":{}}`, header("", "")...).
		want(t, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"clients send no responses"},"id":null}`)
	post(t, url, modernCall(`1`, "status", `{"code":302,"header":{"X-A":"b","Content-Type":"text/html"},"body":"<p>"}`), header("tools/call", "status")...).
		want(t, 302, "<p>")
	if got := post(t, url, modernCall(`1`, "die", `{}`), header("tools/call", "die")...); got.err == nil {
		t.Fatalf("die = %+v, want a broken connection", got)
	}
	if got := post(t, url, modernCall(`1`, "half", `{"then":"die"}`), header("tools/call", "half")...); got.err == nil {
		t.Fatalf("half = %+v, want a broken connection", got)
	}
	got := post(t, url, modernCall(`1`, "big", `{"n":100000}`), header("tools/call", "big")...)
	if len(got.events) != 1 || len(got.events[0]) < 100000 || !json.Valid([]byte(got.events[0])) {
		t.Fatalf("big: %d events, want one of 100,000 bytes", len(got.events))
	}

	for _, name := range []string{"hang", "endless"} {
		ctx, cancel := context.WithCancel(within(t))
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			r := request(t, "POST", url, modernCall(`"`+name+`"`, name, `{}`), header("tools/call", name)...).WithContext(ctx)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		byID := func(verb string) func(upstreamtest.Record) bool {
			return func(r upstreamtest.Record) bool { return r.Verb == verb && string(r.Message.ID) == `"`+name+`"` }
		}
		mustAwait(t, within(t), s, byID("POST"))
		cancel()
		mustAwait(t, within(t), s, byID("CLOSE"))
		<-gone
	}
}

func TestHTTPDiscoverFails(t *testing.T) {
	for how, want := range map[string]struct {
		status int
		body   string
	}{
		"404": {404, "Not Found\n"}, "500": {500, "Internal Server Error\n"}, "401": {401, "unauthorized\n"},
		"400":   {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`},
		"32601": {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`},
	} {
		_, url := upstreamtest.Start(t, upstreamtest.Script{Era: "legacy", DiscoverFails: how})
		post(t, url, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover").
			want(t, want.status, want.body)
	}
}

func TestServeAgain(t *testing.T) {
	s := upstreamtest.New(upstreamtest.Script{})
	url, stop := upstreamtest.Serve(t, "127.0.0.1:0", s.Handler())
	session := initializeHTTP(t, url, "2025-11-25")
	hung := make(chan response)
	go func() { hung <- post(t, url, call(`1`, "hang", `{}`), "Mcp-Session-Id", session) }()
	mustAwait(t, within(t), s, upstreamtest.Method("tools/call"))
	stop()
	if got := <-hung; got.err == nil && len(got.events) > 0 {
		t.Fatalf("a call on a stopped server = %+v, want no answer", got)
	}
	if got := post(t, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, "Mcp-Session-Id", session); got.err == nil {
		t.Fatalf("a stopped server answered %+v", got)
	}
	upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), s.Handler())
	post(t, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, "Mcp-Session-Id", session).want(t, 200, `{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestSSE(t *testing.T) {
	s, url := upstreamtest.StartSSE(t, upstreamtest.Script{Era: "legacy"})
	resp, err := http.DefaultClient.Do(request(t, "GET", url, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	e, err := events.Next()
	if err != nil || e.Name != "endpoint" {
		t.Fatalf("first event = %+v, %v, want the endpoint", e, err)
	}
	at := strings.TrimSuffix(url, "/sse") + string(e.Data)
	next := func(want string) {
		t.Helper()
		if e, err := events.Next(); err != nil || string(e.Data) != want {
			t.Fatalf("event = %s, %v\nwant %s", e.Data, err, want)
		}
	}
	post(t, at, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`).want(t, 202)
	next(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}`)
	post(t, at, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).want(t, 202)
	post(t, at, call(`"1"`, "echo", `{"result":`+hostile+`}`)).want(t, 202)
	next(`{"jsonrpc":"2.0","id":"1","result":` + hostile + `}`)
	s.SetTools([]json.RawMessage{[]byte(`{"name":"die"}`)})
	next(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	post(t, url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).want(t, 405, "Method not allowed\n")
	post(t, at, call(`2`, "die", `{}`)).want(t, 202)
	if _, err := events.Next(); err == nil || err == io.EOF {
		t.Fatalf("after die: %v, want a broken connection", err)
	}
	post(t, at, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).want(t, 404, "Session not found\n")
}

func start(t *testing.T, c *upstreamtest.Child) (*exec.Cmd, *pipe) {
	t.Helper()
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &pipe{t, in, bufio.NewReader(out)}
}

func TestChild(t *testing.T) {
	ctx := within(t)
	c := upstreamtest.Command(t, upstreamtest.Script{Era: "legacy", Stubborn: "eof"})
	cmd, p := start(t, c)
	p.initialize()
	p.send(call(`1`, "gate", `{"gate":"g"}`))
	mustAwait(t, ctx, c, upstreamtest.Method("tools/call"))
	if err := c.Release("g"); err != nil {
		t.Fatal(err)
	}
	p.want(text(`1`, "here it is"))
	if err := c.SetTools([]json.RawMessage{[]byte(`{"name":"spawn"}`), []byte(`{"name":"die"}`)}); err != nil {
		t.Fatal(err)
	}
	p.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.send(call(`2`, "spawn", `{"stubborn":"term"}`))
	grandchild := mustAwait(t, ctx, c, func(r upstreamtest.Record) bool { return r.Verb == "START" && r.PID != cmd.Process.Pid }).PID
	p.send(call(`3`, "die", `{"code":7}`))
	mustAwait(t, ctx, c, func(r upstreamtest.Record) bool { return r.Verb == "EXIT" && r.PID == cmd.Process.Pid })
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Fatalf("exit code = %d, want 7", got)
	}
	deaf, p := start(t, upstreamtest.Command(t, upstreamtest.Script{Stubborn: "term"}))
	p.initialize()
	if err := deaf.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	deaf.Process.Kill()
	deaf.Wait()
	if left, err := os.FindProcess(grandchild); err != nil || left.Kill() != nil {
		t.Fatalf("the grandchild is gone before it was killed: %v", err)
	}
	mustAwait(t, ctx, c, func(r upstreamtest.Record) bool { return r.Verb == "EXIT" && r.PID == grandchild })
}
