package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// mode is one way for a client and a server to meet in the proxy.
type mode struct {
	client, upstream upstream.Era
	wire             string // stdio, http or sse
}

func (m mode) String() string { return string(m.client) + "-" + string(m.upstream) + "-" + m.wire }

// run runs f in every mode that there is; HTTP+SSE has no modern era.
func run(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	for _, client := range clientEras() {
		for _, up := range clientEras() {
			for _, wire := range []string{"stdio", "http", "sse"} {
				if m := (mode{client, up, wire}); wire != "sse" || up == upstream.EraLegacy {
					t.Run(m.String(), func(t *testing.T) { f(t, m) })
				}
			}
		}
	}
}

// runClients runs f for both eras of clients, where it does not matter what is behind the proxy.
func runClients(t *testing.T, f func(t *testing.T, era upstream.Era)) {
	t.Helper()
	for _, era := range clientEras() {
		t.Run(string(era), func(t *testing.T) { f(t, era) })
	}
}

func clientEras() []upstream.Era { return []upstream.Era{upstream.EraLegacy, upstream.EraModern} }

// start starts the server of the mode, and returns the configuration of it and what it receives.
func (m mode) start(t testing.TB, script upstreamtest.Script) (upstream.Config, *upstreamtest.Journal) {
	t.Helper()
	script.Era = string(m.upstream)
	switch m.wire {
	case "http":
		s, url := upstreamtest.Start(t, script)
		return upstream.Config{URL: url}, &s.Journal
	case "sse":
		s, url := upstreamtest.StartSSE(t, script)
		return upstream.Config{URL: url, Transport: upstream.TransportSSE}, &s.Journal
	}
	c := upstreamtest.Command(t, script)
	return upstream.Config{Command: c.Command, Env: c.Env}, &c.Journal
}

// allCapabilities is what clients of the tests declare: all that is bridged, so that their calls go
// over the connection that reads the catalog.
const allCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

// endpoint is a proxy in this process.
type endpoint struct {
	URL    string // of the merged endpoint
	Server *proxy.Server
	Set    upstream.Set
}

// option changes how mustProxy sets up.
type option func(*proxy.Options, *proxy.WorldConfig, *upstream.Options)

// mustProxy starts a proxy over the upstreams, until the test ends. It returns when each of them is
// ready and the proxy offers what it has.
func mustProxy(t testing.TB, configs map[string]upstream.Config, options ...option) *endpoint {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{}
	log := authtest.Log(t)
	server, world, up := proxy.Options{Key: key, Log: log}, proxy.WorldConfig{}, upstream.Options{Log: log}
	for _, o := range options {
		o(&server, &world, &up)
	}
	if world.Guard == nil {
		world.Guard, world.Policy = &auth.Guard{}, policy.Open()
	}
	if e.Server, err = proxy.New(server); err != nil {
		t.Fatal(err)
	}
	var (
		refresh = make(chan struct{}, 1)
		ready   = make(chan string, 1000)
		over    = make(chan struct{})
		loop    sync.WaitGroup
	)
	up.Hooks.StateChanged = func(name string, s upstream.State, err error) {
		if s != upstream.StateReady {
			return
		}
		select {
		case ready <- name:
		default:
		}
	}
	up.Hooks.ResourceUpdated = func(u upstream.Update) { e.Server.Updated(u) }
	up.Hooks.CatalogChanged = func(string) {
		select {
		case refresh <- struct{}{}:
		default:
		}
	}
	loop.Go(func() {
		for {
			select {
			case <-refresh:
				e.Server.Refresh()
			case <-over:
				return
			}
		}
	})
	e.Set.Apply(configs, up, func(us []*upstream.Upstream) { e.Server.Apply(world, us) })
	ts := httptest.NewServer(e.Server)
	e.URL = ts.URL + "/mcp"
	t.Cleanup(func() {
		e.Server.Shutdown()
		e.Server.Kill()
		ts.CloseClientConnections()
		ts.Close()
		e.Set.Close()
		close(over)
		loop.Wait()
	})
	missing := maps.Clone(configs)
	late := time.NewTimer(patience)
	defer late.Stop()
	for len(missing) > 0 {
		select {
		case name := <-ready:
			delete(missing, name)
		case <-late.C:
			t.Fatalf("not ready: %v", slices.Sorted(maps.Keys(missing)))
		}
	}
	e.Server.Refresh()
	return e
}

// metaText is the _meta of a modern client called name.
func metaText(version, name string) string {
	return `{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientInfo":{"name":"` + name +
		`","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + allCapabilities + `}`
}

// client is a client that writes and reads JSON and headers itself. It is of one goroutine.
type client struct {
	url     string
	era     upstream.Era
	name    string
	session string // legacy: the id, once there was a handshake
	version string // legacy: negotiated
	key     string // an API key; "" sends none
	http    *http.Client
	serial  int
}

// newClient returns a client that has sent nothing yet.
func newClient(t testing.TB, e *endpoint, era upstream.Era) *client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{url: e.URL, era: era, name: "raw", http: &http.Client{Transport: transport}}
}

// mustClient returns a client that may call; a legacy one has had its handshake in 2025-11-25.
func mustClient(t testing.TB, e *endpoint, era upstream.Era) *client {
	t.Helper()
	c := newClient(t, e, era)
	if era == upstream.EraLegacy {
		c.mustInitialize(t, "2025-11-25")
	}
	return c
}

// mustInitialize has the handshake of a legacy client.
func (c *client) mustInitialize(t testing.TB, version string) {
	t.Helper()
	a := c.call(t, "initialize", initializeParams(version, c.name))
	if a.status != http.StatusOK || a.message.Error != nil {
		t.Fatalf("initialize: %s", a)
	}
	v, err := raw.Get(a.message.Result, "protocolVersion")
	if err != nil {
		t.Fatalf("initialize: %v: %s", err, a)
	}
	c.version, _ = raw.String(v)
	c.session = a.header.Get("Mcp-Session-Id")
	if a := c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != http.StatusAccepted {
		t.Fatalf("notifications/initialized: %s", a)
	}
}

func initializeParams(version, name string) string {
	return `{"protocolVersion":"` + version + `","capabilities":` + allCapabilities + `,"clientInfo":{"name":"` + name + `","version":"1"}}`
}

// answered is the answer to one request.
type answered struct {
	status  int
	header  http.Header
	body    []byte          // as it came; of an event stream the data of the last event
	events  [][]byte        // of an event stream: the data of all events
	message jsonrpc.Message // parsed from body, as far as it can be
}

func (a answered) String() string { return fmt.Sprintf("HTTP %d %s", a.status, a.body) }

// change is made to the header of a request before it is sent.
type change func(http.Header)

// without leaves a header out; with sets one, under exactly that name and to exactly these values.
func without(name string) change {
	return func(h http.Header) { delete(h, http.CanonicalHeaderKey(name)) }
}
func with(name string, values ...string) change {
	return func(h http.Header) {
		delete(h, http.CanonicalHeaderKey(name))
		h[name] = values
	}
}

// call sends a request of the client's era and reads its answer. params is JSON; "" is none. A
// modern client puts its _meta first into params, unless they have one, and sends the headers that
// belong to the request.
func (c *client) call(t testing.TB, method, params string, changes ...change) answered {
	t.Helper()
	c.serial++
	return c.callID(t, strconv.Itoa(c.serial), method, params, changes...)
}

// callID is call with an id of the caller's choice, as JSON.
func (c *client) callID(t testing.TB, id, method, params string, changes ...change) answered {
	t.Helper()
	body, own := c.request(id, method, params)
	return c.post(t, body, append(own, changes...)...)
}

// request returns the text of a request, and what belongs to it in the header.
func (c *client) request(id, method, params string) (body string, own []change) {
	if c.era == upstream.EraModern {
		if _, err := raw.Get([]byte(params), "_meta"); params == "" || err == raw.ErrAbsent {
			rest := strings.TrimPrefix(params, "{")
			if rest == "" || rest == "}" {
				rest = "}"
			} else {
				rest = "," + rest
			}
			params = `{"_meta":` + metaText("2026-07-28", c.name) + rest
		}
		own = append(own, with("Mcp-Protocol-Version", "2026-07-28"), with("Mcp-Method", method))
		named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[method]
		if v, err := raw.Get([]byte(params), named); named != "" && err == nil {
			name, _ := raw.String(v)
			own = append(own, with("Mcp-Name", name))
		}
	}
	return string(jsonrpc.AppendRequest(nil, jsonrpc.ID(id), method, []byte(params))), own
}

// tool calls a tool; arguments is JSON.
func (c *client) tool(t testing.TB, name, arguments string, changes ...change) answered {
	t.Helper()
	return c.call(t, "tools/call", `{"name":`+string(raw.Quote(name))+`,"arguments":`+arguments+`}`, changes...)
}

// post sends a text, whatever it is, and reads the answer.
func (c *client) post(t testing.TB, body string, changes ...change) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.send(ctx, http.MethodPost, body, changes...)
	if err != nil {
		t.Fatalf("post %.200s: %v", body, err)
	}
	defer r.Body.Close()
	a := answered{status: r.StatusCode, header: r.Header}
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
				a.body = a.events[len(a.events)-1]
			}
		}
	} else if a.body, err = io.ReadAll(r.Body); err != nil {
		t.Fatalf("read the answer to %.200s: %v", body, err)
	}
	a.message, _ = jsonrpc.Parse(a.body, raw.DefaultDepth) // an answer without body, or of words, is none
	return a
}

// send sends a request of any HTTP method, and does not read the answer.
func (c *client) send(ctx context.Context, verb, body string, changes ...change) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, verb, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if verb == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.era == upstream.EraLegacy && c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", c.version)
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
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
	return c.http.Do(r)
}

// eventStream is an open stream of events.
type eventStream struct {
	header http.Header
	reader *jsonrpc.EventReader
	drop   context.CancelFunc // hangs up
}

// read returns the next event, for which it is patient.
func (s *eventStream) read() (jsonrpc.Event, error) {
	defer time.AfterFunc(patience, s.drop).Stop()
	return s.reader.Next()
}

// mustOpen opens the stream on which the client hears of changes: GET in the legacy era,
// subscriptions/listen in the modern one. The test's end closes it.
func (c *client) mustOpen(t testing.TB, changes ...change) *eventStream {
	t.Helper()
	verb, body := http.MethodGet, ""
	if c.era == upstream.EraModern {
		c.serial++
		var own []change
		verb = http.MethodPost
		body, own = c.request(strconv.Itoa(c.serial), "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
		changes = append(own, changes...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := time.AfterFunc(patience, cancel)
	r, err := c.send(ctx, verb, body, changes...)
	late.Stop()
	if err != nil {
		cancel()
		t.Fatalf("open a stream: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		r.Body.Close()
	})
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
		t.Fatalf("open a stream: HTTP %d %s", r.StatusCode, text)
	}
	return &eventStream{r.Header, jsonrpc.NewEventReader(r.Body, 64<<20), cancel}
}
