package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// talker is a client of either era that writes and reads JSON itself.
type talker struct {
	url          string
	era          upstream.Era
	session      string // legacy
	version      string // legacy
	capabilities string // JSON
	key          string // shown with every request; "" is none
	name         string // of the client, as it says; "" is talker
	ids          *atomic.Int64
}

// query is one request of a talker.
type query struct {
	id     string // JSON; "" is a number of the talker's
	method string
	params string // the members of params but for _meta
	meta   string // further members of _meta
	header http.Header
}

// talk begins to talk to an endpoint: a legacy client initializes.
func talk(t *testing.T, url string, era upstream.Era) *talker {
	t.Helper()
	return talkAs(t, url, era, "2025-11-25", allCapabilities)
}

// talkAs is talk for a client of a certain version, which the modern era has one of, and with
// certain capabilities.
func talkAs(t *testing.T, url string, era upstream.Era, version, capabilities string) *talker {
	t.Helper()
	return (&talker{url: url, era: era, version: version, capabilities: capabilities}).start(t)
}

// start begins to talk, as the talker says that it does.
func (c *talker) start(t *testing.T) *talker {
	t.Helper()
	if c.ids = new(atomic.Int64); c.name == "" {
		c.name = "talker"
	}
	if c.era == upstream.EraModern {
		return c
	}
	p := c.begin(t, query{method: "initialize", params: `"protocolVersion":"` + c.version + `","capabilities":` + c.capabilities + `,"clientInfo":{"name":"` + c.name + `","version":"1"}`})
	if m := p.answer(t); m.Error != nil {
		t.Fatalf("initialize: %v", m.Error)
	}
	if c.session = p.header.Get("Mcp-Session-Id"); c.session == "" {
		t.Fatal("initialize gave no session id")
	}
	c.notify(t, "notifications/initialized", "")
	return c
}

// answering is a request that was sent. Its messages come as they arrive; the channel is closed
// when the response has ended.
type answering struct {
	id       string
	messages chan jsonrpc.Message
	drop     context.CancelFunc // hangs up
	begun    chan struct{}      // closed when status and header are known, or there will be none
	status   int
	header   http.Header
	err      error // why messages was closed, when that was no end
}

// begin sends a request and returns at once.
func (c *talker) begin(t *testing.T, q query) *answering {
	t.Helper()
	if q.id == "" {
		q.id = fmt.Sprint(c.ids.Add(1))
	}
	return c.send(t, q.id, func(ctx context.Context) *http.Request { return c.request(t, ctx, q) })
}

// send sends any request, which ends with its context, and returns at once.
func (c *talker) send(t *testing.T, id string, request func(context.Context) *http.Request) *answering {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p := &answering{id: id, messages: make(chan jsonrpc.Message, 1000), begun: make(chan struct{}), drop: cancel}
	r := request(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.messages)
		p.err = p.read(r)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// request makes the HTTP request; without id it is a notification.
func (c *talker) request(t *testing.T, ctx context.Context, q query) *http.Request {
	t.Helper()
	meta := q.meta
	if c.era == upstream.EraModern {
		if meta != "" {
			meta += ","
		}
		meta += `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"` + c.name + `","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":` + c.capabilities
	}
	params := q.params
	if meta != "" {
		if params != "" {
			params += ","
		}
		params += `"_meta":{` + meta + `}`
	}
	body := jsonrpc.AppendRequest(nil, jsonrpc.ID(q.id), q.method, []byte("{"+params+"}"))
	r, err := http.NewRequestWithContext(ctx, "POST", c.url, bytes.NewReader(body))
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.era == upstream.EraModern {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", q.method)
		for _, member := range []string{"name", "uri", "taskId"} {
			if name, err := raw.Get([]byte("{"+q.params+"}"), member); err == nil {
				s, _ := raw.String(name)
				encoded, _ := mcp.EncodeHeaderValue(s)
				r.Header.Set("Mcp-Name", encoded)
			}
		}
	}
	c.own(r.Header)
	for name, values := range q.header {
		r.Header[name] = values
	}
	return r
}

// own sets what belongs to every request of a session.
func (c *talker) own(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	if c.session != "" {
		h.Set("Mcp-Protocol-Version", c.version)
		h.Set("Mcp-Session-Id", c.session)
	}
}

func (p *answering) read(r *http.Request) error {
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		p.status, p.header = answer.StatusCode, answer.Header
	}
	close(p.begun)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(answer.Body)
		if err != nil || len(text) == 0 {
			return err
		}
		m, err := jsonrpc.Parse(text, raw.DefaultDepth)
		if err != nil {
			return fmt.Errorf("status %d, %q: %w", answer.StatusCode, text, err)
		}
		p.messages <- m
		return nil
	}
	events := jsonrpc.NewEventReader(answer.Body, 64<<20)
	for {
		e, err := events.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if len(e.Data) == 0 {
			continue
		}
		m, err := jsonrpc.Parse(bytes.Clone(e.Data), raw.DefaultDepth)
		if err != nil {
			return fmt.Errorf("event %q: %w", e.Data, err)
		}
		p.messages <- m
	}
}

// next waits for the next message; ok is false when there is none any more.
func (p *answering) next(t *testing.T) (m jsonrpc.Message, ok bool) {
	t.Helper()
	select {
	case m, ok = <-p.messages:
		return m, ok
	case <-time.After(patience):
		t.Fatal("no message came, and no end")
	}
	return m, false
}

// answer waits for the response, and drops what comes before it.
func (p *answering) answer(t *testing.T) jsonrpc.Message {
	t.Helper()
	_, m := p.all(t)
	return m
}

// all waits for the end and returns the notifications and the response. After the response nothing
// may come.
func (p *answering) all(t *testing.T) (notes []jsonrpc.Message, answer jsonrpc.Message) {
	t.Helper()
	answered := false
	for {
		m, ok := p.next(t)
		switch {
		case !ok && !answered:
			t.Fatalf("the response ended without an answer: %v", p.err)
		case !ok:
			return notes, answer
		case answered:
			t.Fatalf("after the answer came %s", m.Append(nil))
		case m.IsResponse():
			answered, answer = true, m
		default:
			notes = append(notes, m)
		}
	}
}

// notify sends a notification, which must be accepted.
func (c *talker) notify(t *testing.T, method, params string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(c.request(t, patient(t), query{method: method, params: params}))
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("%s = status %d, want 202", method, answer.StatusCode)
	}
}

// called is the query that calls a tool.
func called(name, arguments string) query {
	return query{method: "tools/call", params: fmt.Sprintf(`"name":%s,"arguments":%s`, raw.Quote(name), arguments)}
}

func (c *talker) call(t *testing.T, name, arguments string) jsonrpc.Message {
	t.Helper()
	return c.begin(t, called(name, arguments)).answer(t)
}

// succeed calls a tool and returns the result.
func (c *talker) succeed(t *testing.T, name, arguments string) []byte {
	t.Helper()
	m := c.call(t, name, arguments)
	if m.Error != nil {
		t.Fatalf("%s(%s) = error %v %s, want a result", name, arguments, m.Error, m.Error.Data)
	}
	return m.Result
}

// list asks for one page and returns the definitions, and the result whole.
func (c *talker) list(t *testing.T, params string) (tools [][]byte, result []byte) {
	t.Helper()
	m := c.begin(t, query{method: "tools/list", params: params}).answer(t)
	if m.Error != nil {
		t.Fatalf("tools/list = error %v", m.Error)
	}
	list, err := raw.Get(m.Result, "tools")
	if err != nil {
		t.Fatalf("tools/list = %s: %v", m.Result, err)
	}
	tools, err = raw.Elements(list)
	if err != nil {
		t.Fatalf("tools/list = %s: %v", m.Result, err)
	}
	return tools, m.Result
}

// names lists the names of the first page.
func (c *talker) names(t *testing.T) []string {
	t.Helper()
	tools, _ := c.list(t, "")
	return namesOf(t, tools)
}

func namesOf(t *testing.T, tools [][]byte) []string {
	t.Helper()
	names := []string{}
	for _, tool := range tools {
		names = append(names, text(t, tool, "name"))
	}
	return names
}

// text returns the string at the path of a JSON object.
func text(t *testing.T, o []byte, path ...string) string {
	t.Helper()
	v, err := raw.Get(o, path...)
	if err != nil {
		t.Fatalf("%s of %s: %v", strings.Join(path, "."), o, err)
	}
	s, err := raw.String(v)
	if err != nil {
		t.Fatalf("%s of %s: %v", strings.Join(path, "."), o, err)
	}
	return s
}

// member returns the JSON at the path, or "" when there is none.
func member(o []byte, path ...string) string {
	v, err := raw.Get(o, path...)
	if err != nil {
		return ""
	}
	return string(v)
}

// definitions are tools of these names that do nothing special.
func definitions(names ...string) []json.RawMessage {
	list := []json.RawMessage{}
	for _, name := range names {
		list = append(list, fmt.Appendf(nil, `{"name":%s,"inputSchema":{"type":"object"}}`, raw.Quote(name)))
	}
	return list
}

// callsOf returns the tools/call requests that a server has received, once there are that many: a
// process of its own reports them a moment later.
func callsOf(t *testing.T, j *upstreamtest.Journal, least int) []upstreamtest.Record {
	t.Helper()
	n := 0
	if least > 0 {
		await(t, j, fmt.Sprintf("%d calls", least), func(r upstreamtest.Record) bool {
			if upstreamtest.Method("tools/call")(r) {
				n++
			}
			return n >= least
		})
	}
	return slices.DeleteFunc(j.Received(), func(r upstreamtest.Record) bool { return !upstreamtest.Method("tools/call")(r) })
}

// await waits for a record.
func await(t *testing.T, j *upstreamtest.Journal, what string, match func(upstreamtest.Record) bool) upstreamtest.Record {
	t.Helper()
	r, err := j.Await(patient(t), match)
	if err != nil {
		t.Fatalf("the upstream has received no %s: %v", what, err)
	}
	return r
}

// ours fails unless the error is one of Junction's own about the upstream, of that kind.
func ours(t *testing.T, m jsonrpc.Message, name string, kind upstream.Kind) {
	t.Helper()
	if m.Error == nil {
		t.Fatalf("result %s, want an error of ours, %s", m.Result, kind)
	}
	if got, want := string(m.Error.Data), fmt.Sprintf(`{"junction":{"upstream":"%s","kind":"%s"}}`, name, kind); got != want || m.Error.Code != -32603 {
		t.Fatalf("error %d %s data %s, want -32603 and %s", m.Error.Code, m.Error.Message, got, want)
	}
}
