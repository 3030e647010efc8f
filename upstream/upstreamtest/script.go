// Package upstreamtest is a scriptable MCP server for tests. It serves stdio, Streamable HTTP and
// HTTP+SSE in both eras, and can misbehave in all of them. The server keeps bytes: it sends the
// texts of a Script and of a call's arguments unchanged, and records received messages unchanged.
//
//	script.go     Script: the properties of the server; Rule: how it misbehaves;
//	              Journal: the messages that it received
//	server.go     Server: the methods that a test calls; its sessions
//	call.go       call: one request, of either era; its checks, and its answer
//	offers.go     the lists, their pages, and notifications of changes;
//	              prompts/get, resources/read, completion/complete
//	subscribe.go  subscriptions/listen, resources/subscribe, and the delivery of updates
//	logging.go    logging/setLevel, and the log
//	tools.go      the behaviour of tools/call for each tool name
//	questions.go  questions to the client: server requests in the legacy era, input_required in the modern era
//	tasks.go      calls that become tasks: of 2025-11-25, and of the extension
//	stream.go     stream: the delivery of the server's messages, on every wire
//	wires.go      ServeStdio, Handler (Streamable HTTP), SSEHandler (HTTP+SSE of 2024-11-05)
//	start.go      Start and StartSSE for tests in one process; Command, RunIfChild
//	              and Child for a server in a process of its own
package upstreamtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Script is what the server is. It is JSON, so that a child process can be given one. The zero
// value is a well-behaved server of both eras whose tools are the behaviours of tools.go.
type Script struct {
	Era          string            // legacy, modern or both; "" is both
	Versions     []string          // offered; nil: every version of the era
	Name         string            // serverInfo.name; "" is upstreamtest
	Instructions string            // "" is none
	Capabilities json.RawMessage   `json:",omitempty"` // instead of those that follow from the rest of the script
	Tools        []json.RawMessage // listed verbatim; nil: one for each behaviour
	PageSize     int               // of every list; 0: one page
	Pad          map[string]int    // by method: bytes that each result has more, in the member pad
	LoopCursor   bool              // every page names the same next cursor
	EmptyCursor  bool              // the cursor of the second page is ""

	// A nil list is of a kind that the server does not have; an empty one is of one that it has,
	// and has none of now.
	Prompts []json.RawMessage // listed verbatim
	// by name: the result of prompts/get, verbatim; a listed prompt without one says its arguments
	Messages  map[string]json.RawMessage
	Resources []json.RawMessage // listed verbatim
	Templates []json.RawMessage // listed verbatim
	// by URI: the contents of resources/read, verbatim; what is listed, or begins like a template,
	// says its URI without one
	Contents map[string]json.RawMessage
	// the extension for skills: listed verbatim
	Skills []json.RawMessage
	// by URI: the skill of skills/get, verbatim; a listed skill without one is as the list has it
	Gets map[string]json.RawMessage
	// by URI: the resources of a directory, verbatim; nil: the server cannot read directories
	Directories map[string]json.RawMessage
	// by a prompt's name, or a URI or template: the completion, verbatim; nil: completes nothing
	Completions map[string]json.RawMessage
	// by a prompt's name or a URI: arguments as of a tool, with "do", which is done in place of
	// prompts/get or resources/read
	Instead     map[string]json.RawMessage
	NoSubscribe bool // to resources
	Logging     bool // takes logging/setLevel, and declares that it logs
	Tasks       bool // declares tasks, and takes tasks/…

	// legacy: asks for roots once it is initialized (HTTP: and has a listening stream), if the
	// client declared them
	AsksRoots  bool
	AsksDuring map[string]Question // by method: asked before a request is answered, whatever the client declared

	ListenGate string // modern: subscriptions/listen is acknowledged once this gate is open; "" is at once
	TTLMs      int    // modern: ttlMs of lists and of server/discover
	CacheScope string // modern: "" is private

	JSONAnswers bool // HTTP: an answer before which nothing was sent is JSON; otherwise everything is an event stream
	// events as the standard allows and no server writes them: CRLF, no space after the colon,
	// comments, no event field
	OddFraming bool
	Resumable  bool   // legacy HTTP: events have ids, streams begin with an empty event, and Last-Event-ID is honoured
	RetryMs    int    // with Resumable: the retry that a stream begins with; 0: none
	NoSession  bool   // legacy HTTP: no session id, no GET stream
	NoGET      bool   // legacy HTTP: GET is answered 405
	Host       string // HTTP: any other Host header is answered 403
	Endpoint   string // HTTP+SSE: what the endpoint event says, instead of the place where messages are taken

	NoListChanged bool   // neither declared nor sent
	Stubborn      string // a child process: eof outlives the end of its input, term a SIGTERM too
	// a child process: an address that it listens on; while it is taken, another one exits with
	// status 1
	Exclusive string
	Starts    int    // a child process: milliseconds before it reads anything
	Quiet     bool   // records nothing, for benchmarks
	Rules     []Rule // the first that matches a request decides
	// DiscoverFails is how the server answers server/discover: 404, 400 (-32000, id null),
	// unsupported (400), 32601, code0, silence, exit, 401, 403, 500, or listsLegacy (a result that
	// offers only legacy versions). "" answers as its era does.
	DiscoverFails string

	Report string // address of the test that wants to know what a child receives; Command sets it
}

// Question is a request of the server to the client.
type Question struct {
	Key    string // modern: in inputRequests; "" is q1, q2 … by position
	Method string
	Params json.RawMessage `json:",omitempty"` // verbatim
}

// Rule is a misbehaviour toward the requests of one method. It comes before every check of the
// request.
type Rule struct {
	Method string // of MCP, or GET or DELETE; * is any
	Skip   int    // so many matching requests are served properly first
	Times  int    // so many after them are not; 0: all
	Era    string // modern or legacy: only requests of that era; "" is both
	After  string // only after a request of this method, to the same process; "" is always

	// The first of these that is set is what happens.
	Hang   bool            // nothing, until the request is cancelled or the connection ends
	Die    bool            // the process exits, the connection is cut
	Result json.RawMessage `json:",omitempty"` // sent verbatim
	Error  json.RawMessage `json:",omitempty"` // sent verbatim, on HTTP with Status
	Status int             // HTTP: with Body and Header; on other wires an error
	Body   string
	Header map[string]string
}

// HeaderMismatch is a rule that answers one request of the method with -32020 (modern HTTP).
func HeaderMismatch(method string) Rule {
	return Rule{Method: method, Times: 1, Status: 400, Error: []byte(`{"code":-32020,"message":"Header mismatch"}`)}
}

// UnsupportedVersion is a rule that answers one request of the method with -32022 and the versions
// (modern).
func UnsupportedVersion(method string, supported ...string) Rule {
	e := fmt.Appendf(nil,
		`{"code":-32022,"message":"Unsupported protocol version","data":{"supported":%s,"requested":""}}`,
		mustJSON(supported))
	return Rule{Method: method, Times: 1, Status: 400, Error: e}
}

func (s Script) discoverRule() Rule {
	r := Rule{Method: "server/discover"}
	invalid := func(status int, text string) Rule {
		r.Status, r.Header = status, map[string]string{"Content-Type": "application/json"}
		r.Body = `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: ` + text + `"}}`
		return r
	}
	switch s.DiscoverFails {
	case "400":
		return invalid(400, "Server not initialized")
	case "unsupported":
		return invalid(400, "Unsupported protocol version (supported versions: 2025-06-18, 2025-11-25)")
	case "401":
		r.Status, r.Header, r.Body = 401, map[string]string{"WWW-Authenticate": "Bearer"}, "unauthorized\n"
	case "404", "403", "500":
		fmt.Sscan(s.DiscoverFails, &r.Status)
		r.Body = http.StatusText(r.Status) + "\n"
	case "32601":
		r.Error = []byte(`{"code":-32601,"message":"Method not found"}`)
	case "code0":
		r.Error = []byte(`{"code":0,"message":"unknown method"}`)
	case "silence":
		r.Hang = true
	case "exit":
		r.Die = true
	case "listsLegacy":
		r.Result = []byte(`{"resultType":"complete","supportedVersions":["2025-11-25"],` +
			`"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)
	default:
		panic("upstreamtest: no such DiscoverFails: " + s.DiscoverFails) // a mistake in a test
	}
	return r
}

func (s Script) withDefaults() Script {
	legacy, modern := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}, []string{firstModern}
	if s.Versions == nil {
		s.Versions = map[string][]string{"legacy": legacy, "modern": modern}[s.Era]
		if s.Versions == nil {
			s.Versions = append(legacy, modern...)
		}
	}
	if s.Name == "" {
		s.Name = "upstreamtest"
	}
	if s.CacheScope == "" {
		s.CacheScope = "private"
	}
	if s.Tools == nil {
		for _, name := range behaviours() {
			s.Tools = append(s.Tools, fmt.Appendf(nil,
				`{"name":"%s","description":"does %[1]s","inputSchema":{"type":"object"}}`, name))
		}
	}
	if s.DiscoverFails != "" {
		s.Rules = append([]Rule{s.discoverRule()}, s.Rules...)
	}
	return s
}

const firstModern = "2026-07-28"

// capabilities returns what the server declares in an era.
func (s Script) capabilities(modern bool) []byte {
	if s.Capabilities != nil {
		return s.Capabilities
	}
	b := fmt.Appendf(nil, `{"tools":{"listChanged":%t}`, !s.NoListChanged)
	if s.prompts() {
		b = fmt.Appendf(b, `,"prompts":{"listChanged":%t}`, !s.NoListChanged)
	}
	if s.resources() {
		b = fmt.Appendf(b, `,"resources":{"subscribe":%t,"listChanged":%t}`, !s.NoSubscribe, !s.NoListChanged)
	}
	if s.Completions != nil {
		b = append(b, `,"completions":{}`...)
	}
	if s.Logging {
		b = append(b, `,"logging":{}`...)
	}
	var extensions []string
	if s.Tasks && modern {
		extensions = append(extensions, `"`+extensionTasks+`":{}`)
	}
	if s.Skills != nil {
		extensions = append(extensions, fmt.Sprintf(`"%s":{"directoryRead":%t}`, extensionSkills, s.Directories != nil))
	}
	if extensions != nil {
		b = fmt.Appendf(b, `,"extensions":{%s}`, strings.Join(extensions, ","))
	}
	if s.Tasks && !modern {
		b = append(b, `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`...)
	}
	return append(b, '}')
}

func (s Script) prompts() bool { return s.Prompts != nil || s.Messages != nil }

func (s Script) resources() bool {
	return s.Resources != nil || s.Templates != nil || s.Contents != nil || s.Skills != nil
}

// speaks reports whether one of the versions is of the era.
func (s Script) speaks(modern bool) bool {
	return slices.ContainsFunc(s.Versions, func(v string) bool { return modern == (v >= firstModern) })
}

// Record is a message or another event, in the order in which they came.
type Record struct {
	// Verb is STDIN, or the HTTP method, or an event without a message from the client: CLOSE (the
	// client closed the response to Message before it was complete), OPEN (a client listens on the
	// stream of a GET from now on), GIVEUP (a tool does not wait for answers any more, and takes
	// none), START and EXIT (of a child process).
	Verb    string
	Header  http.Header     // of HTTP, with Host
	Query   string          // of HTTP
	Body    []byte          // as it came; on stdio without the line break
	PID     int             // of the process that received it
	Message jsonrpc.Message `json:"-"` // parsed from Body, as far as it can be
}

// Journal is what was received. Its methods may be called from several goroutines.
type Journal struct {
	mu      sync.Mutex
	records []Record
	more    chan struct{} // closed and replaced at every record; nil until a test waits
	tee     func(Record)
	quiet   bool
}

func (j *Journal) add(r Record) (jsonrpc.Message, error) {
	var err error
	if r.Body != nil {
		r.Message, err = jsonrpc.Parse(r.Body, raw.DefaultDepth)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.quiet {
		return r.Message, err
	}
	j.records = append(j.records, r)
	if j.tee != nil {
		j.tee(r)
	}
	if j.more != nil {
		close(j.more)
		j.more = nil
	}
	return r.Message, err
}

// Received returns everything received so far, oldest first.
func (j *Journal) Received() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.records)
}

// Methods returns the methods of the messages received so far; a response is "".
func (j *Journal) Methods() []string {
	var methods []string
	for _, r := range j.Received() {
		if r.Body != nil && r.Verb != "CLOSE" {
			methods = append(methods, r.Message.Method)
		}
	}
	return methods
}

// Await returns the first record, past ones included, for which match is true. It blocks until
// there is one; the error comes from ctx.
func (j *Journal) Await(ctx context.Context, match func(Record) bool) (Record, error) {
	for seen := 0; ; {
		j.mu.Lock()
		if j.more == nil {
			j.more = make(chan struct{})
		}
		records, more := j.records, j.more
		j.mu.Unlock()
		for _, r := range records[seen:] {
			if match(r) {
				return r, nil
			}
		}
		seen = len(records)
		select {
		case <-more:
		case <-ctx.Done():
			return Record{}, fmt.Errorf("await a record among %d: %w", seen, context.Cause(ctx))
		}
	}
}

// Method matches the messages of one method.
func Method(name string) func(Record) bool {
	return func(r Record) bool { return r.Message.Method == name && r.Verb != "CLOSE" }
}

// Verb matches records such as GET, CLOSE, START or EXIT.
func Verb(verb string) func(Record) bool { return func(r Record) bool { return r.Verb == verb } }

// mustJSON keeps the bytes of what is JSON already, but for white space.
func mustJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
