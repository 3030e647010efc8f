package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// MetaText is the _meta of a modern client called name.
func MetaText(version, name string) string {
	return `{"io.modelcontextprotocol/protocolVersion":"` + version +
		`","io.modelcontextprotocol/clientInfo":{"name":"` +
		name +
		`","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + AllCapabilities + `}`
}

// Client is a client that writes and reads JSON and headers itself. It is of one goroutine.
type Client struct {
	URL     string
	era     client.Era
	Name    string
	Session string // legacy: the id, once there was a handshake
	version string // legacy: negotiated
	Key     string // an API key; "" sends none
	HTTP    *http.Client
	serial  int
}

// NewClient returns a client that has sent nothing yet.
func NewClient(t testing.TB, e *Endpoint, era client.Era) *Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{URL: e.URL, era: era, Name: "raw", HTTP: &http.Client{Transport: transport}}
}

// MustClient returns a client that may call; a legacy one has had its handshake in 2025-11-25.
func MustClient(t testing.TB, e *Endpoint, era client.Era) *Client {
	t.Helper()
	c := NewClient(t, e, era)
	if era == client.EraLegacy {
		c.MustInitialize(t, "2025-11-25")
	}
	return c
}

// MustInitialize has the handshake of a legacy client.
func (c *Client) MustInitialize(t testing.TB, version string) {
	t.Helper()
	a := c.Call(t, "initialize", InitializeParams(version, c.Name))
	if a.Status != http.StatusOK || a.Message.Error != nil {
		t.Fatalf("initialize: %s", a)
	}
	v, err := raw.Get(a.Message.Result, "protocolVersion")
	if err != nil {
		t.Fatalf("initialize: %v: %s", err, a)
	}
	c.version, _ = raw.String(v)
	c.Session = a.Header.Get("Mcp-Session-Id")
	own := http.Header{"Mcp-Session-Id": {c.Session}, "Mcp-Protocol-Version": {c.version}}
	if c.Key != "" {
		own.Set("Authorization", "Bearer "+c.Key)
	}
	endSession(t, c.URL, own)
	if a := c.Post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.Status != http.StatusAccepted {
		t.Fatalf("notifications/initialized: %s", a)
	}
}

// InitializeParams are the params of initialize for a client with AllCapabilities.
func InitializeParams(version, name string) string {
	return `{"protocolVersion":"` + version + `","capabilities":` + AllCapabilities + `,"clientInfo":{"name":"` + name +
		`","version":"1"}}`
}

// Answered is the answer to one request.
type Answered struct {
	Status  int
	Header  http.Header
	Body    []byte          // as it came; of an event stream the data of the last event
	events  [][]byte        // of an event stream: the data of all events
	Message jsonrpc.Message // parsed from body, as far as it can be
}

func (a Answered) String() string { return fmt.Sprintf("HTTP %d %s", a.Status, a.Body) }

// HeaderChange is made to the header of a request before it is sent.
type HeaderChange func(http.Header)

// Without leaves a header out; with sets one, under exactly that name and to exactly these values.
func Without(name string) HeaderChange {
	return func(h http.Header) { delete(h, http.CanonicalHeaderKey(name)) }
}
func With(name string, values ...string) HeaderChange {
	return func(h http.Header) {
		delete(h, http.CanonicalHeaderKey(name))
		h[name] = values
	}
}

// Call sends a request of the client's era and reads its answer. params is JSON; "" is none. A
// modern client puts its _meta first into params, unless they have one, and sends the headers that
// belong to the request.
func (c *Client) Call(t testing.TB, method, params string, changes ...HeaderChange) Answered {
	t.Helper()
	c.serial++
	return c.CallID(t, strconv.Itoa(c.serial), method, params, changes...)
}

// CallID is call with an id of the caller's choice, as JSON.
func (c *Client) CallID(t testing.TB, id, method, params string, changes ...HeaderChange) Answered {
	t.Helper()
	body, own := c.Request(id, method, params)
	return c.Post(t, body, append(own, changes...)...)
}

// Request returns the text of a request, and what belongs to it in the header.
func (c *Client) Request(id, method, params string) (body string, own []HeaderChange) {
	if c.era == client.EraModern {
		if _, err := raw.Get([]byte(params), "_meta"); params == "" || err == raw.ErrAbsent {
			rest := strings.TrimPrefix(params, "{")
			if rest == "" || rest == "}" {
				rest = "}"
			} else {
				rest = "," + rest
			}
			params = `{"_meta":` + MetaText("2026-07-28", c.Name) + rest
		}
		own = append(own, With("Mcp-Protocol-Version", "2026-07-28"), With("Mcp-Method", method))
		named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[method]
		if v, err := raw.Get([]byte(params), named); named != "" && err == nil {
			name, _ := raw.String(v)
			own = append(own, With("Mcp-Name", name))
		}
	}
	return string(jsonrpc.AppendRequest(nil, jsonrpc.ID(id), method, []byte(params))), own
}

// Tool calls a tool; arguments is JSON.
func (c *Client) Tool(t testing.TB, name, arguments string, changes ...HeaderChange) Answered {
	t.Helper()
	return c.Call(t, "tools/call", `{"name":`+string(raw.Quote(name))+`,"arguments":`+arguments+`}`, changes...)
}

// Post sends a text, whatever it is, and reads the answer.
func (c *Client) Post(t testing.TB, body string, changes ...HeaderChange) Answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	r, err := c.Send(ctx, http.MethodPost, body, changes...)
	if err != nil {
		t.Fatalf("post %.200s: %v", body, err)
	}
	defer r.Body.Close()
	a := Answered{Status: r.StatusCode, Header: r.Header}
	if r.Header.Get("Content-Type") == "text/event-stream" {
		events := jsonrpc.NewEventReader(r.Body, 64<<20)
		for {
			v, err := events.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("read the answer to %.200s: %v", body, err)
			}
			if len(v.Data) > 0 {
				a.events = append(a.events, bytes.Clone(v.Data))
				a.Body = a.events[len(a.events)-1]
			}
		}
	} else if a.Body, err = io.ReadAll(r.Body); err != nil {
		t.Fatalf("read the answer to %.200s: %v", body, err)
	}
	a.Message, _ = jsonrpc.Parse(a.Body, raw.DefaultDepth) // an answer without body, or of words, is none
	return a
}

// Send sends a request of any HTTP method, and does not read the answer.
func (c *Client) Send(ctx context.Context, verb, body string, changes ...HeaderChange) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, verb, c.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if verb == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.era == client.EraLegacy && c.Session != "" {
		r.Header.Set("Mcp-Session-Id", c.Session)
		r.Header.Set("Mcp-Protocol-Version", c.version)
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	for _, ch := range changes {
		ch(r.Header)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
		r.Header.Del("Host")
	}
	authtest.Secret("the id of a session", r.Header.Get("Mcp-Session-Id"))
	for _, v := range r.Header["Authorization"] {
		_, token, _ := strings.Cut(v, " ")
		authtest.Secret("what a client shows", token)
	}
	return c.HTTP.Do(r)
}

// MustDo sends a request without body and returns the status. It must not be one that opens a
// stream.
func (c *Client) MustDo(t *testing.T, verb string, changes ...HeaderChange) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	r, err := c.Send(ctx, verb, "", changes...)
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	r.Body.Close()
	return r.StatusCode
}
