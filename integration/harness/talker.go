package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Patient returns a context that ends with the test, or after Patience.
func Patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Talker is a client of either era that writes and reads JSON itself.
type Talker struct {
	URL          string
	Era          client.Era
	session      string // legacy
	declared     []byte // legacy: the capabilities of the server
	Version      string // legacy
	Capabilities string // JSON
	Key          string // shown with every request; "" is none
	Name         string // of the client, as it says; "" is talker
	Agent        string // User-Agent; "" is that of Go
	IDs          *atomic.Int64
}

// Query is one request of a talker.
type Query struct {
	ID     string // JSON; "" is a number of the talker's
	Method string
	Params string // the members of params but for _meta
	Meta   string // further members of _meta
	Header http.Header
}

// Talk begins to talk to an endpoint: a legacy client initializes.
func Talk(t *testing.T, url string, era client.Era) *Talker {
	t.Helper()
	return TalkAs(t, url, era, "2025-11-25", AllCapabilities)
}

// TalkAs is talk for a client of a certain version, which the modern era has one of, and with
// certain capabilities.
func TalkAs(t *testing.T, url string, era client.Era, version, capabilities string) *Talker {
	t.Helper()
	return (&Talker{URL: url, Era: era, Version: version, Capabilities: capabilities}).Start(t)
}

// Start begins to talk, as the talker says that it does.
func (c *Talker) Start(t *testing.T) *Talker {
	t.Helper()
	if c.IDs = new(atomic.Int64); c.Name == "" {
		c.Name = "talker"
	}
	if c.Era == client.EraModern {
		return c
	}
	p := c.Begin(t, Query{Method: "initialize",
		Params: `"protocolVersion":"` + c.Version + `","capabilities":` + c.Capabilities + `,"clientInfo":{"name":"` +
			c.Name + `","version":"1"}`})
	m := p.Answer(t)
	if m.Error != nil {
		t.Fatalf("initialize: %v", m.Error)
	}
	c.declared, _ = raw.Get(m.Result, "capabilities")
	if c.session = p.Header.Get("Mcp-Session-Id"); c.session == "" {
		t.Fatal("initialize gave no session id")
	}
	own := http.Header{}
	c.Own(own)
	endSession(t, c.URL, own)
	c.Notify(t, "notifications/initialized", "")
	return c
}

// Declared returns the capabilities of the server. A legacy client has those of its handshake.
func (c *Talker) Declared(t *testing.T) []byte {
	t.Helper()
	if c.Era == client.EraLegacy {
		return c.declared
	}
	declared, _ := raw.Get(c.Must(t, "server/discover", ""), "capabilities")
	return declared
}

// Answering is a request that was sent. Its messages come as they arrive; the channel is closed
// when the response has ended.
type Answering struct {
	ID       string
	Messages chan jsonrpc.Message
	Drop     context.CancelFunc // hangs up
	begun    chan struct{}      // closed when status and header are known, or there will be none
	Status   int
	Header   http.Header
	Err      error // why messages was closed, when that was no end
}

// Begin sends a request and returns at once.
func (c *Talker) Begin(t *testing.T, q Query) *Answering {
	t.Helper()
	if q.ID == "" {
		q.ID = fmt.Sprint(c.IDs.Add(1))
	}
	return c.send(t, q.ID, func(ctx context.Context) *http.Request { return c.Request(t, ctx, q) })
}

// send sends any request, which ends with its context, and returns at once.
func (c *Talker) send(t *testing.T, id string, request func(context.Context) *http.Request) *Answering {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p := &Answering{ID: id, Messages: make(chan jsonrpc.Message, 1000), begun: make(chan struct{}), Drop: cancel}
	r := request(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.Messages)
		p.Err = p.read(r)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// Request makes the HTTP request; without id it is a notification.
func (c *Talker) Request(t *testing.T, ctx context.Context, q Query) *http.Request {
	t.Helper()
	meta := q.Meta
	if c.Era == client.EraModern {
		if meta != "" {
			meta += ","
		}
		meta += `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"` +
			c.Name + `","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":` + c.Capabilities
	}
	params := q.Params
	if meta != "" {
		if params != "" {
			params += ","
		}
		params += `"_meta":{` + meta + `}`
	}
	body := jsonrpc.AppendRequest(nil, jsonrpc.ID(q.ID), q.Method, []byte("{"+params+"}"))
	r, err := http.NewRequestWithContext(ctx, "POST", c.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.Era == client.EraModern {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", q.Method)
		for _, member := range []string{"name", "uri", "taskId"} {
			if name, err := raw.Get([]byte("{"+q.Params+"}"), member); err == nil {
				s, _ := raw.String(name)
				encoded, _ := mcp.EncodeHeaderValue(s)
				r.Header.Set("Mcp-Name", encoded)
			}
		}
	}
	c.Own(r.Header)
	for name, values := range q.Header {
		r.Header[name] = values
	}
	return r
}

// Own sets what belongs to every request of a session.
func (c *Talker) Own(h http.Header) {
	if c.Key != "" {
		h.Set("Authorization", "Bearer "+c.Key)
	}
	if c.Agent != "" {
		h.Set("User-Agent", c.Agent)
	}
	if c.session != "" {
		h.Set("Mcp-Protocol-Version", c.Version)
		h.Set("Mcp-Session-Id", c.session)
	}
}

func (p *Answering) read(r *http.Request) error {
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		p.Status, p.Header = answer.StatusCode, answer.Header
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
		p.Messages <- m
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
		p.Messages <- m
	}
}

// Next waits for the next message; ok is false when there is none any more.
func (p *Answering) Next(t *testing.T) (m jsonrpc.Message, ok bool) {
	t.Helper()
	select {
	case m, ok = <-p.Messages:
		return m, ok
	case <-time.After(Patience):
		t.Fatal("no message came, and no end")
	}
	return m, false
}

// Answer waits for the response, and drops what comes before it.
func (p *Answering) Answer(t *testing.T) jsonrpc.Message {
	t.Helper()
	_, m := p.All(t)
	return m
}

// All waits for the end and returns the notifications and the response. After the response nothing
// may come.
func (p *Answering) All(t *testing.T) (notes []jsonrpc.Message, answer jsonrpc.Message) {
	t.Helper()
	answered := false
	for {
		m, ok := p.Next(t)
		switch {
		case !ok && !answered:
			t.Fatalf("the response ended without an answer: %v", p.Err)
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

// Notify sends a notification, which must be accepted.
func (c *Talker) Notify(t *testing.T, method, params string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(c.Request(t, Patient(t), Query{Method: method, Params: params}))
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Fatalf("%s = status %d, want 202", method, answer.StatusCode)
	}
}

// Called is the query that calls a tool.
func Called(name, arguments string) Query {
	return Query{Method: "tools/call", Params: fmt.Sprintf(`"name":%s,"arguments":%s`, raw.Quote(name), arguments)}
}

// Call calls a tool and waits for the answer.
func (c *Talker) Call(t *testing.T, name, arguments string) jsonrpc.Message {
	t.Helper()
	return c.Begin(t, Called(name, arguments)).Answer(t)
}

// Succeed calls a tool and returns the result.
func (c *Talker) Succeed(t *testing.T, name, arguments string) []byte {
	t.Helper()
	m := c.Call(t, name, arguments)
	if m.Error != nil {
		t.Fatalf("%s(%s) = error %v %s, want a result", name, arguments, m.Error, m.Error.Data)
	}
	return m.Result
}

// List asks for one page and returns the definitions, and the result whole.
func (c *Talker) List(t *testing.T, params string) (tools [][]byte, result []byte) {
	t.Helper()
	m := c.Begin(t, Query{Method: "tools/list", Params: params}).Answer(t)
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

// Names lists the names of the first page.
func (c *Talker) Names(t *testing.T) []string {
	t.Helper()
	tools, _ := c.List(t, "")
	return NamesOf(t, tools)
}

// NamesOf returns the names in definitions of tools.
func NamesOf(t *testing.T, tools [][]byte) []string {
	t.Helper()
	names := []string{}
	for _, tool := range tools {
		names = append(names, Text(t, tool, "name"))
	}
	return names
}

// PostTo posts a ping to a path beside /mcp and returns the status and the body.
func (c *Talker) PostTo(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	c.Own(r.Header)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Drain lists all pages, and returns the definitions and the results.
func (c *Talker) Drain(t *testing.T, method, list string) (items, results [][]byte) {
	t.Helper()
	for params := ""; ; {
		result := c.Must(t, method, params)
		results = append(results, result)
		v, err := raw.Get(result, list)
		if err != nil {
			t.Fatalf("%s = %s: %v", method, result, err)
		}
		page, _ := raw.Elements(v)
		items = append(items, page...)
		next := Member(result, "nextCursor")
		if next == "" {
			return items, results
		}
		if len(results) > 20 {
			t.Fatalf("%s has no end", method)
		}
		params = `"cursor":` + next
	}
}

// Read reads a resource, and returns the URI and the text of its first content.
func (c *Talker) Read(t *testing.T, uri string) (own, content string) {
	t.Helper()
	list, err := raw.Get(c.Must(t, "resources/read", `"uri":`+string(raw.Quote(uri))), "contents")
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	items, _ := raw.Elements(list)
	if len(items) == 0 {
		t.Fatalf("read %s: %s", uri, list)
	}
	return Text(t, items[0], "uri"), Text(t, items[0], "text")
}
