package protocol

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file shows, for each pair of eras, how a call with a question in it goes over the wires:
// every HTTP request and answer between a client, the program and an upstream but for an empty 202,
// in testdata/wire. go test ./integration/protocol -run TestWire -update writes what goes there now, to be
// reviewed like code.

var update = flag.Bool("update", false, "write the golden files of testdata/wire")

// transcript is what has been said, in order.
type transcript struct {
	mu      sync.Mutex
	waiting bool // until begin
	said    []saying
	names   map[string]string // of values that differ from run to run
}

// saying is one message on its way.
type saying struct {
	between string // who → whom
	text    string
}

// say records a message, with the first line of what it came in and the headers that are MCP's.
func (s *transcript) say(between, line string, header http.Header, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting {
		return
	}
	var b strings.Builder
	b.WriteString(line + "\n")
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if strings.HasPrefix(name, "Mcp-") {
			fmt.Fprintf(&b, "%s: %s\n", name, header.Get(name))
		}
	}
	if len(body) > 0 {
		b.WriteString("\n")
		b.Write(spread(nil, ourVersion.ReplaceAll(body, []byte("${1}VERSION")), 0))
		b.WriteString("\n")
	}
	s.said = append(s.said, saying{between, b.String()})
}

// begin has what is said from now on recorded.
func (s *transcript) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
}

// call gives a value that differs from run to run the name that it has in the transcript.
func (s *transcript) call(value, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[value] = name
}

// ourVersion is what we say of ourselves, up to the version.
var ourVersion = regexp.MustCompile(`("name":"junction",(?:"title":"Junction",)?"version":")[^"]*`)

// archive is the transcript with that comment before it.
func (s *transcript) archive(comment []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &txtar.Archive{Comment: comment}
	s.nameIDs()
	for i, one := range s.said {
		text := one.text
		for value, name := range s.names {
			text = strings.ReplaceAll(text, value, name)
		}
		a.Files = append(a.Files, txtar.File{Name: fmt.Sprintf("%02d %s", i+1, one.between), Data: []byte(text)})
	}
	return txtar.Format(a)
}

// upstreamID is an id of Junction's requests to the upstream: they begin at a random number.
var upstreamID = regexp.MustCompile(`"id": ?([0-9]{4,})`)

// nameIDs counts the ids of Junction's requests to the upstream from 3, the first after the handshake and
// the list; s.mu is held.
func (s *transcript) nameIDs() {
	first := 0
	for _, one := range s.said {
		for _, m := range upstreamID.FindAllStringSubmatch(one.text, -1) {
			n, _ := strconv.Atoi(m[1])
			first = cmp.Or(first, n)
			s.names[m[1]] = strconv.Itoa(n - first + 3)
		}
	}
}

// spreadWidth is how long a line of JSON may be before it is spread over several.
const spreadWidth = 120

// spread appends a JSON text with line breaks where it is long. It changes nothing else.
func spread(b, v []byte, depth int) []byte {
	v = bytes.TrimSpace(v)
	if len(v)+2*depth <= spreadWidth || v[0] != '{' && v[0] != '[' {
		return append(b, v...)
	}
	indent := "\n" + strings.Repeat("  ", depth+1)
	b = append(b, v[0])
	if v[0] == '{' {
		o, err := raw.Parse(v)
		if err != nil {
			return append(b, v[1:]...)
		}
		for i, m := range o.Members() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, indent...), m.Key...), ": "...)
			b = spread(b, m.Value, depth+1)
		}
	} else {
		elements, err := raw.Elements(v)
		if err != nil {
			return append(b, v[1:]...)
		}
		for i, e := range elements {
			if i > 0 {
				b = append(b, ',')
			}
			b = spread(append(b, indent...), e, depth+1)
		}
	}
	return append(append(b, indent[:len(indent)-2]...), v[len(v)-1])
}

const (
	toJunction   = "client → junction"
	toUpstream   = "junction → upstream"
	fromUpstream = "upstream → junction"
	fromJunction = "junction → client"
)

// restaurant is an upstream of one era with one tool, book, which asks for how many.
type restaurant struct {
	script *transcript
	era    client.Era
	answer chan []byte // legacy: the answer to its question
	tables atomic.Int32
}

const (
	restaurantTools = `{"tools":[{"name":"book","inputSchema":{"type":"object",` +
		`"properties":{"day":{"type":"string"}}}}]%s}`
	howMany = `{"method":"elicitation/create","params":{%s"message":"A table for how many?","requestedSchema":` +
		`{"type":"object","properties":{"people":{"type":"integer","minimum":1}},"required":["people"]}}%s}`
	booked = `{"content":[{"type":"text","text":"A table for %s on Friday."}]%s}`
)

func (r *restaurant) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	if req.Method != http.MethodGet { // the listening stream, which comes when it likes
		r.script.say(toUpstream, req.Method, req.Header, body)
	}
	var m jsonrpc.Message
	if req.Method == http.MethodPost {
		if m, err = jsonrpc.Parse(body, raw.DefaultDepth); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		r.script.say(fromUpstream, "200 application/json", w.Header(), text)
		w.Write(text)
	}
	modern := r.era == client.EraModern
	switch {
	case req.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.IsResponse():
		w.WriteHeader(http.StatusAccepted)
		r.answer <- bytes.Clone(m.Result)
	case m.ID == "":
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover" && modern:
		answer(
			`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",` +
				`"resultType":"complete"}`)
	case m.Method == "initialize" && !modern:
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("table-%d", r.tables.Add(1)))
		answer(
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"restaurant","version":"1"}}`)
	case m.Method == "tools/list" && modern:
		answer(fmt.Sprintf(restaurantTools, `,"ttlMs":0,"cacheScope":"private","resultType":"complete"`))
	case m.Method == "tools/list":
		answer(fmt.Sprintf(restaurantTools, ""))
	case m.Method == "tools/call" && modern:
		people, err := raw.Get(m.Params, "inputResponses", "table", "content", "people")
		if err != nil {
			answer(`{"resultType":"input_required","inputRequests":{"table":` + fmt.Sprintf(howMany, `"mode":"form",`, "") +
				`},"requestState":"the restaurant's own state"}`)
			return
		}
		answer(fmt.Sprintf(booked, people, `,"resultType":"complete"`))
	case m.Method == "tools/call":
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(text string) {
			r.script.say(fromUpstream, "text/event-stream: an event", nil, []byte(text))
			fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
		}
		event(fmt.Sprintf(howMany, "", `,"jsonrpc":"2.0","id":"table"`))
		select {
		case result := <-r.answer:
			people, _ := raw.Get(result, "content", "people")
			event(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, fmt.Sprintf(booked, people, "")))
		case <-req.Context().Done():
		}
	default:
		answer(`{}`)
	}
}

// guest is a client of one era that says what it sends and gets.
type guest struct {
	script  *transcript
	url     string
	era     client.Era
	session string
}

// send posts a message and hands on each message of the answer.
func (g *guest) send(ctx context.Context, name string, body string, on func(*jsonrpc.Message) error) error {
	m, err := jsonrpc.Parse([]byte(body), raw.DefaultDepth)
	if err != nil {
		return fmt.Errorf("%w in: %s", err, body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch {
	case g.era == client.EraModern:
		req.Header.Set("Mcp-Protocol-Version", harness.ModernVersion)
		req.Header.Set("Mcp-Method", m.Method)
		req.Header.Set("Mcp-Name", name)
	case g.session != "":
		req.Header.Set("Mcp-Protocol-Version", harness.LegacyVersion)
		req.Header.Set("Mcp-Session-Id", g.session)
	}
	g.script.say(toJunction, "POST", req.Header, []byte(body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		g.session = id
		g.script.call(id, "SESSION")
	}
	get := func(line string, header http.Header, text []byte) error {
		if state, err := raw.Get(text, "result", "requestState"); err == nil {
			sealed, _ := raw.String(state)
			g.script.call(sealed, "SEALED")
		}
		g.script.say(fromJunction, line, header, text)
		m, err := jsonrpc.Parse(text, raw.DefaultDepth)
		if err != nil {
			return fmt.Errorf("%w in: %s", err, text)
		}
		return on(&m)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(resp.Body)
		if err != nil || len(text) == 0 {
			return err
		}
		return get(fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type")), resp.Header, text)
	}
	for events := jsonrpc.NewEventReader(resp.Body, 1<<20); ; {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(e.Data) > 0:
			if err := get("text/event-stream: an event", nil, e.Data); err != nil {
				return err
			}
		}
	}
}

// book books a table, and is asked for how many; it returns what it is told at the end.
func (g *guest) book(ctx context.Context) (told string, err error) {
	const (
		me     = `"clientInfo":{"name":"guest","version":"1"}`
		modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"guest","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
		call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"restaurant__book",` +
			`"arguments":{"day":"Friday"}%s}}`
		four = `{"action":"accept","content":{"people":4}}`
	)
	end := func(m *jsonrpc.Message) error {
		told = string(m.Result)
		return nil
	}
	if g.era == client.EraLegacy {
		if err := g.send(ctx, "",
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{"elicitation":{}},`+me+`}}`, end); err != nil {
			return "", err
		}
		if err := g.send(ctx, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, end); err != nil {
			return "", err
		}
		err := g.send(ctx, "", fmt.Sprintf(call, 1, ""), func(m *jsonrpc.Message) error {
			if m.Method == "elicitation/create" {
				return g.send(ctx, "", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":`+four+`}`, m.ID), end)
			}
			return end(m)
		})
		return told, err
	}
	if err := g.send(ctx, "restaurant__book", fmt.Sprintf(call, 1, ","+modern), end); err != nil {
		return "", err
	}
	var asked struct {
		InputRequests map[string]json.RawMessage
		RequestState  json.RawMessage
	}
	if err := json.Unmarshal([]byte(told), &asked); err != nil || len(asked.InputRequests) != 1 {
		return "", fmt.Errorf("want one question in %s (%v)", told, err)
	}
	for key := range asked.InputRequests {
		again := fmt.Sprintf(`,"inputResponses":{%q:%s},"requestState":%s,%s`, key, four, asked.RequestState, modern)
		err = g.send(ctx, "restaurant__book", fmt.Sprintf(call, 2, again), end)
	}
	return told, err
}

// MustList waits until a tool is listed.
func mustList(ctx context.Context, t *testing.T, url, tool string) {
	t.Helper()
	c := harness.MustCaller(t, url, harness.ModernEra)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		x, err := c.Do(ctx, "tools/list", "", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(x.Answer, `"name":"`+tool+`"`) {
			return
		}
		<-again.C
	}
}

// TestWire compares what goes over the wires with the transcripts of testdata/wire, which are there
// for people.
func TestWire(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "its transcripts have the messages of one process")
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			name := string(client) + "-client-" + string(up) + "-upstream"
			t.Run(name, func(t *testing.T) {
				harness.Waits(t)
				script := &transcript{waiting: true, names: map[string]string{}}
				s := httptest.NewServer(&restaurant{script: script, era: up, answer: make(chan []byte, 1)})
				t.Cleanup(s.Close)
				p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  restaurant: {url: %q, era: %s}\n", s.URL, up))
				p.MustReady(t, harness.Patience)
				ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
				defer cancel()
				mustList(ctx, t, p.URL, "restaurant__book")
				script.begin()
				told, err := (&guest{script: script, url: p.URL, era: client}).book(ctx)
				if err != nil || !strings.Contains(told, "A table for 4 on Friday.") {
					t.Errorf("the guest is told %s (%v), want a table", told, err)
				}
				file := filepath.Join("testdata", "wire", name+".txtar")
				want, err := os.ReadFile(file)
				if err != nil && !(*update && errors.Is(err, os.ErrNotExist)) {
					t.Fatal(err)
				}
				got := script.archive(txtar.Parse(want).Comment)
				switch {
				case bytes.Equal(got, want):
				case *update:
					if err := os.WriteFile(file, got, 0o666); err != nil {
						t.Fatal(err)
					}
				default:
					t.Errorf("%s is out of date; what goes over the wires is\n%s", file, got)
				}
			})
		}
	}
}
