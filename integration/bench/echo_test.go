package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"junction/integration/harness"
)

// echoServer is an MCP server that costs as little as one in net/http can: every result is made
// once and then only copied. It answers each request in the era that the request is of.
type echoServer struct {
	lists   map[string][]byte // by era: the result of tools/list
	events  bool              // calls are answered with event streams over HTTP
	results sync.Map          // resultKey → []byte: the results of tools/call so far
}

type resultKey struct {
	era  string
	size int
}

// echoRequest is what echo reads of a request.
type echoRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		ProtocolVersion string
		Arguments       struct{ Size, MS int }
		Meta            struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
}

func (r *echoRequest) era() string {
	if r.Params.Meta.Version != "" {
		return harness.ModernEra
	}
	return harness.LegacyEra
}

// newEcho makes a server of so many tools. The first is called echo; arguments.size is how many
// bytes of text every tool answers with, over HTTP after arguments.ms milliseconds.
func newEcho(tools int) *echoServer {
	defs := make([]string, max(tools, 1))
	for i := range defs {
		name := fmt.Sprintf("tool_%04d", i)
		if i == 0 {
			name = "echo"
		}
		// About 600 bytes, as the tools of real servers are.
		defs[i] = `{"name":"` + name + `","title":"A tool of the benchmark","description":"` +
			strings.Repeat("Says what such a tool is for. ", 8) +
			`","inputSchema":{"type":"object","properties":{"size":{"type":"integer","description":"how many bytes to answer ` +
			`with","minimum":0},` +
			`"filter":{"type":"array","items":{"type":"string","enum":["open","closed","all"]},"description":"unused"}},` +
			`"required":["size"]},` +
			`"annotations":{"readOnlyHint":true,"idempotentHint":true}}`
	}
	list := `{"tools":[` + strings.Join(defs, ",") + `]`
	return &echoServer{lists: map[string][]byte{
		harness.LegacyEra: []byte(list + `}`),
		harness.ModernEra: []byte(list + `,"ttlMs":3600000,"cacheScope":"public","resultType":"complete"}`),
	}}
}

// answer returns the result for a request, or the text of an error object. Both are nil for a
// notification.
func (e *echoServer) answer(r *echoRequest) (result, failure []byte) {
	era := r.era()
	switch {
	case len(r.ID) == 0:
		return nil, nil
	case r.Method == "tools/call":
		return e.text(resultKey{era, r.Params.Arguments.Size}), nil
	case r.Method == "tools/list":
		return e.lists[era], nil
	case r.Method == "initialize" && era == harness.LegacyEra:
		version := r.Params.ProtocolVersion
		if version == harness.ModernVersion || version == "" {
			version = harness.LegacyVersion
		}
		return []byte(`{"protocolVersion":` + strconv.Quote(version) +
			`,"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`), nil
	case r.Method == "ping" && era == harness.LegacyEra:
		return []byte(`{}`), nil
	case r.Method == "server/discover" && era == harness.ModernEra:
		return []byte(`{"supportedVersions":["` + harness.ModernVersion +
			`"],"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public",` +
			`"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"echo","version":"1"}}}`), nil
	}
	return nil, []byte(`{"code":-32601,"message":"no such method"}`)
}

// text returns the result of a call, which is shared: callers must not change it.
func (e *echoServer) text(k resultKey) []byte {
	if v, ok := e.results.Load(k); ok {
		return v.([]byte)
	}
	end := `"}]}`
	if k.era == harness.ModernEra {
		end = `"}],"resultType":"complete"}`
	}
	v, _ := e.results.LoadOrStore(k, []byte(`{"content":[{"type":"text","text":"`+echoed(k.size)+end))
	return v.([]byte)
}

// echoed returns so many bytes of a JSON string: lines of a program, as most large results are
// lines of something, with four escapes in each.
func echoed(size int) string {
	const line = `\tif err != nil { return fmt.Errorf(\"read %s: %w\", name, err) }\n`
	size = max(size, 0)
	return strings.Repeat(line, size/len(line)) + strings.Repeat("x", size%len(line))
}

// response returns the response to r without its closing brace, in two parts so that a large result
// is not copied; both are nil for a notification.
func (e *echoServer) response(r *echoRequest) (head, tail []byte) {
	result, failure := e.answer(r)
	if result == nil && failure == nil {
		return nil, nil
	}
	head = append(make([]byte, 0, 64), `{"jsonrpc":"2.0","id":`...)
	head = append(head, r.ID...)
	if failure != nil {
		return append(head, `,"error":`...), failure
	}
	return append(head, `,"result":`...), result
}

// ServeHTTP answers POST with JSON, or calls with an event stream, and refuses a listening stream.
func (e *echoServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(req.Body)
	var r echoRequest
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	head, tail := e.response(&r)
	if head == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if ms := r.Params.Arguments.MS; ms > 0 {
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-req.Context().Done():
			return
		}
	}
	h := w.Header()
	if e.events && r.Method == "tools/call" {
		h.Set("Content-Type", "text/event-stream")
		w.Write([]byte("event: message\ndata: "))
		w.Write(head)
		w.Write(tail)
		w.Write([]byte("}\n\n"))
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(head)+len(tail)+1))
	if r.Method == "initialize" {
		// the benchmark trusts its own proxies: one session is as good as many
		h.Set("Mcp-Session-Id", "0123456789abcdef0123456789abcdef")
	}
	w.Write(head)
	w.Write(tail)
	w.Write([]byte{'}'})
}

// echoHTTP is the echo server behind a URL.
func echoHTTP(args []string) error {
	fs := flag.NewFlagSet("bench-echo", flag.ContinueOnError)
	tools := fs.Int("tools", 1, "how many tools to list")
	events := fs.Bool("events", false, "answer calls with an event stream")
	if err := fs.Parse(args); err != nil {
		return err
	}
	e := newEcho(*tools)
	e.events = *events
	return serveRole(e)
}

// echoStdio is the echo server as a child process. It ends with its standard input.
func echoStdio(args []string) error {
	fs := flag.NewFlagSet("bench-echo-stdio", flag.ContinueOnError)
	tools := fs.Int("tools", 1, "how many tools to list")
	ready := fs.String("ready", "",
		"the file to write the time to, in nanoseconds of Unix, from which on requests are read")
	if err := fs.Parse(args); err != nil {
		return err
	}
	e := newEcho(*tools)
	in, out := bufio.NewReaderSize(os.Stdin, 64<<10), bufio.NewWriterSize(os.Stdout, 64<<10)
	if *ready != "" {
		if err := os.WriteFile(*ready, strconv.AppendInt(nil, time.Now().UnixNano(), 10), 0o600); err != nil {
			return fmt.Errorf("tell that requests are read: %w", err)
		}
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read: %w", err)
		}
		var r echoRequest
		if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if head, tail := e.response(&r); head != nil {
			out.Write(head)
			out.Write(tail)
			out.WriteString("}\n")
		}
		if in.Buffered() == 0 { // what came together is answered together
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
	}
}
