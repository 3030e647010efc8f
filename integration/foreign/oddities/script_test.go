package oddities

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// This file decides what a server answers: by the first rule of the script that matches, or else as a
// server without faults.

// rule is an answer that differs from that of a server without faults.
type rule struct {
	// On is what is asked: a method of MCP; any of them; lost for a request in a session that the
	// server has lost; the method of HTTP, and after it another path than that of MCP.
	On string `yaml:"on"`
	// At is the time of asking: 1, 2.. or 1..3; "" is each time.
	At string `yaml:"at"`
	// When has values of the request that must be so. A value that begins with ! must not be so.
	When map[string]string `yaml:"when"`

	Status  int               `yaml:"status"`
	Headers map[string]string `yaml:"headers"` // "" removes one
	Result  string            `yaml:"result"`
	Error   string            `yaml:"error"`
	Set     map[string]any    `yaml:"set"`    // members of the document that is the answer; null removes one
	Body    *string           `yaml:"body"`   // all bytes; over stdio, of the line
	Coding  string            `yaml:"coding"` // how the body is compressed
	Posted  string            `yaml:"posted"` // what the POST request of HTTP+SSE gets
	Before  []string          `yaml:"before"` // messages before the answer, or lines
	// Asks is a request to the client before the answer, which waits for the response: the method and the
	// params. $reply is what the client answered.
	Asks   string `yaml:"asks"`
	Stderr string `yaml:"stderr"`
	// Then follows: lose forgets all sessions; close ends the connection or the process, after the
	// answer; cut does so without an answer; hang never answers; linger keeps the response open.
	Then string `yaml:"then"`
}

var thens = []string{"", "lose", "close", "cut", "hang", "linger"}

// mistake says what is wrong with a rule; "" if nothing is.
func (r *rule) mistake() string {
	_, _, err := r.times()
	switch {
	case r.On == "":
		return "it has no on"
	case err != nil:
		return err.Error()
	case !slices.Contains(thens, r.Then):
		return fmt.Sprintf("then is none of %q", thens)
	case r.Result != "" && !json.Valid([]byte(strings.NewReplacer(words(r.Result)...).Replace(r.Result))):
		return "the result is no JSON"
	}
	return ""
}

// words replaces everything that begins with $, so that the rest can be checked.
func words(text string) (pairs []string) {
	for _, name := range []string{"$echo", "$id", "$cursor"} {
		pairs = append(pairs, name, "0")
	}
	return append(pairs, "$", "")
}

// times returns the first and the last time of asking.
func (r *rule) times() (from, to int, err error) {
	from, to = 1, 1<<30
	if r.At == "" {
		return from, to, nil
	}
	first, last, ranges := strings.Cut(r.At, "..")
	if !ranges {
		last = first
	}
	for text, n := range map[string]*int{first: &from, last: &to} {
		if !ranges {
			from, err = strconv.Atoi(text)
			return from, from, err
		}
		if text == "" {
			continue
		}
		if *n, err = strconv.Atoi(text); err != nil {
			return 0, 0, fmt.Errorf("at: %w", err)
		}
	}
	return from, to, nil
}

// ask is a request or a notification, or a request of HTTP without a message.
type ask struct {
	on      []string // the names by which rules know it
	method  string   // of MCP; "" if there is no message
	id      json.RawMessage
	reply   string // of a client to a request of the server; "" if it is none
	modern  bool
	session string
	values  map[string]string // for rule.When
}

// isRequest reports whether the ask has an answer of MCP.
func (a *ask) isRequest() bool { return a.id != nil }

// message is what is decoded of a message.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		Cursor          *string                    `json:"cursor"`
		ProtocolVersion string                     `json:"protocolVersion"`
		Meta            map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// read makes an ask of a message.
func read(text []byte) (*ask, error) {
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	a := &ask{method: m.Method, id: m.ID, on: []string{m.Method, "any"}, values: map[string]string{}}
	if m.Method == "" {
		a.reply = replied(m.Result)
	}
	if m.Params.Cursor != nil {
		a.values["cursor"] = *m.Params.Cursor
	}
	_, a.modern = m.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	a.values["version"] = m.Params.ProtocolVersion
	a.values["era"] = map[bool]string{true: "modern", false: "legacy"}[a.modern]
	return a, nil
}

// reply is an answer before it is written.
type reply struct {
	status  int
	headers http.Header
	message string   // of MCP; "" is none
	body    *string  // instead of the message
	before  []string // messages
	asks    string   // a request, before the answer
	stderr  string
	coding  string
	posted  string // what the POST request of HTTP+SSE gets
	then    string
}

// server is a server of a row, for one client.
type server struct {
	row    *row
	kind   string // of row.Servers
	wire   string
	origin map[string]string // by its word: url, as, other

	mu       sync.Mutex
	asked    map[string]int
	sessions map[string]bool // whether it is alive
	streams  []chan string   // of HTTP+SSE; nil if it has ended
	grants   *grants
	replies  map[string]chan string // of clients, by the id of the request
}

func newServer(r *row, kind string) *server {
	return &server{row: r, kind: kind, origin: map[string]string{}, asked: map[string]int{}, sessions: map[string]bool{},
		grants: newGrants(), replies: map[string]chan string{}}
}

// echo is the tool of a server without faults.
const echo = `{"name":"echo","inputSchema":{"type":"object"}}`

// expand replaces the words of a script.
func (s *server) expand(text string, a *ask, answer string) string {
	_, port, _ := strings.Cut(hostOf(s.origin["url"]), ":")
	pairs := []string{"%port", port, "$12000", strings.Repeat("a", 12000), "%ff", "\xff", "$answer", answer,
		"$echo", echo, "$id", string(a.id), "$state", a.values["state"], "$redirect", a.values["redirect"],
		"$code", a.values["code"], "$token", a.values["granted"]}
	for _, word := range slices.Sorted(maps.Keys(s.origin)) {
		pairs = append(pairs, "$"+word, s.origin[word], "%"+word, hostOf(s.origin[word]))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// hostOf returns the host and port of an origin.
func hostOf(origin string) string {
	_, host, _ := strings.Cut(origin, "://")
	return host
}

// answer decides. It counts the ask.
func (s *server) answer(a *ask) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive, known := s.sessions[a.session]
	lost := known && !alive
	if lost {
		a.on = []string{"lost"}
	}
	for _, on := range a.on {
		s.asked[on]++
	}
	base := s.base(a, lost)
	for i := range s.row.Script {
		if r := &s.row.Script[i]; s.matches(r, a) {
			s.apply(r, a, base)
			break
		}
	}
	return base
}

// matches reports whether a rule is for an ask, which was counted.
func (s *server) matches(r *rule, a *ask) bool {
	from, to, _ := r.times() // mistake has the error
	if n := s.asked[r.On]; !slices.Contains(a.on, r.On) || n < from || n > to {
		return false
	}
	for name, want := range r.When {
		if on, counts := strings.CutPrefix(name, "asked."); counts {
			a.values[name] = strconv.Itoa(s.asked[on])
		}
		not := strings.HasPrefix(want, "!")
		if (a.values[name] == s.expand(strings.TrimPrefix(want, "!"), a, "")) == not {
			return false
		}
	}
	return true
}

// apply changes the answer of a server without faults.
func (s *server) apply(r *rule, a *ask, p *reply) {
	answer := p.message
	if p.status == 0 || r.Status != 0 {
		p.status = r.Status
	}
	switch {
	case r.Result != "":
		p.message = s.response(a, `"result":`+s.completed(a, s.expand(r.Result, a, answer)))
		p.status = max(r.Status, http.StatusOK)
	case r.Error != "":
		p.message = s.response(a, `"error":`+s.expand(r.Error, a, answer))
		if r.Status == 0 {
			p.status = http.StatusOK
		}
	case r.Body != nil:
		p.body = new(s.expand(*r.Body, a, answer))
	case r.Status >= 400:
		p.message = ""
	case r.Set != nil:
		p.message = s.edited(answer, r.Set, a)
	}
	for name, value := range r.Headers {
		if p.headers.Set(name, s.expand(value, a, answer)); value == "" {
			p.headers[http.CanonicalHeaderKey(name)] = nil
		}
	}
	for _, text := range r.Before {
		p.before = append(p.before, s.expand(text, a, answer))
	}
	if r.Asks != "" && a.isRequest() {
		p.asks = s.question(r.Asks)
	}
	p.coding, p.stderr, p.then, p.posted = r.Coding, r.Stderr, r.Then, s.expand(r.Posted, a, answer)
	if r.Then == "lose" {
		for id := range s.sessions {
			s.sessions[id] = false
		}
	}
}

// edited sets members of a document.
func (s *server) edited(document string, set map[string]any, a *ask) string {
	members := map[string]any{}
	_ = json.Unmarshal([]byte(document), &members) // the answers of a server without faults are good
	for name, value := range set {
		if members[name] = value; value == nil {
			delete(members, name)
		}
	}
	text, _ := json.Marshal(members) // they were read from JSON and YAML
	return s.expand(string(text), a, document)
}

// response returns a response to a request; the member is its result or error.
func (s *server) response(a *ask, member string) string {
	return `{"jsonrpc":"2.0","id":` + string(a.id) + `,` + member + `}`
}

// completed adds the members that each result of the modern era has.
func (s *server) completed(a *ask, result string) string {
	rest, object := strings.CutPrefix(result, "{")
	if !object || !s.speaksModern(a) || strings.Contains(result, `"resultType"`) {
		return result
	}
	common := `"resultType":"complete"`
	if a.method != "tools/call" {
		common += `,"ttlMs":0,"cacheScope":"private"`
	}
	if rest != "}" {
		common += ","
	}
	return "{" + common + rest
}

// speaksModern reports whether a request gets the answer of the modern era.
func (s *server) speaksModern(a *ask) bool {
	return s.kind == "modern" || s.kind == "both" && a.modern
}

// base returns the answer of a server without faults.
func (s *server) base(a *ask, lost bool) *reply {
	p := &reply{status: http.StatusOK, headers: http.Header{}}
	failure := func(status, code int, text string) *reply {
		p.status = status
		if a.isRequest() {
			p.message = s.response(a, fmt.Sprintf(`"error":{"code":%d,"message":%q}`, code, text))
		}
		return p
	}
	modern := s.speaksModern(a)
	switch {
	case a.method == "":
		return s.plain(a, p)
	case s.row.SignIn != "" && !slices.Contains(s.row.OpenTo, a.method) && !s.grants.good(a.values["token"]):
		p.headers.Set("WWW-Authenticate",
			`Bearer resource_metadata="`+s.origin["url"]+`/.well-known/oauth-protected-resource/mcp"`)
		return failure(http.StatusUnauthorized, -32000, "Unauthorized")
	case modern && a.method == "initialize":
		p = failure(http.StatusBadRequest, -32022, "Unsupported protocol version")
		p.message = strings.TrimSuffix(p.message, "}}") +
			fmt.Sprintf(`,"data":{"supported":["2026-07-28"],"requested":%q}}}`, a.values["version"])
		return p
	case lost:
		return failure(http.StatusNotFound, -32001, "Session not found")
	case !modern && a.values["wire"] == wireHTTP && !s.row.Sessionless && a.method != "initialize" && a.session == "":
		return failure(http.StatusBadRequest, -32000, "Bad Request: Server not initialized")
	case !a.isRequest():
		p.status = http.StatusAccepted
		return p
	}
	results := map[string]string{
		"tools/list": `{"tools":[` + echo + `]}`,
		"tools/call": `{"content":[{"type":"text","text":"hello"}]}`,
	}
	if modern {
		results["server/discover"] = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"odd","version":"1"}}`
	} else {
		results["ping"] = "{}"
		results["initialize"] = fmt.Sprintf(
			`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`,
			legacyVersion(a.values["version"]))
	}
	result, known := results[a.method]
	if !known {
		return failure(map[bool]int{true: http.StatusNotFound, false: http.StatusOK}[modern], -32601, "Method not found")
	}
	if a.method == "initialize" && a.values["wire"] == wireHTTP && !s.row.Sessionless {
		id := fmt.Sprintf("session-%d", len(s.sessions)+1)
		s.sessions[id] = true
		p.headers.Set("Mcp-Session-Id", id)
	}
	p.message = s.response(a, `"result":`+s.completed(a, result))
	return p
}

// legacyVersion is the version that a legacy server answers with.
func legacyVersion(requested string) string {
	if slices.Contains([]string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}, requested) {
		return requested
	}
	return "2025-11-25"
}
