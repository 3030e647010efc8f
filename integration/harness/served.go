package harness

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// ToolWithProperties is a tool whose arguments go into headers.
func ToolWithProperties(name, properties string) json.RawMessage {
	return fmt.Appendf(nil, `{"name":"%s","inputSchema":{"type":"object","properties":%s}}`, name, properties)
}

// SilentToPings is a server that answers no ping, as one does that works on one request at a time.
// Otherwise a call ends only at its max_timeout.
var SilentToPings = upstreamtest.Rule{Method: "ping", Hang: true}

// Definitions are tools of these names that do nothing special.
func Definitions(names ...string) []json.RawMessage {
	list := []json.RawMessage{}
	for _, name := range names {
		list = append(list, fmt.Appendf(nil, `{"name":%s,"inputSchema":{"type":"object"}}`, raw.Quote(name)))
	}
	return list
}

// CallsOf returns the tools/call requests that a server has received, once there are that many: a
// process of its own reports them a moment later.
func CallsOf(t *testing.T, j *upstreamtest.Journal, least int) []upstreamtest.Record {
	t.Helper()
	n := 0
	if least > 0 {
		Await(t, j, fmt.Sprintf("%d calls", least), func(r upstreamtest.Record) bool {
			if upstreamtest.Method("tools/call")(r) {
				n++
			}
			return n >= least
		})
	}
	return slices.DeleteFunc(j.Received(),
		func(r upstreamtest.Record) bool { return !upstreamtest.Method("tools/call")(r) })
}

// Await waits for a record.
func Await(t *testing.T, j *upstreamtest.Journal, what string,
	match func(upstreamtest.Record) bool) upstreamtest.Record {
	t.Helper()
	r, err := j.Await(Patient(t), match)
	if err != nil {
		t.Fatalf("the upstream has received no %s: %v", what, err)
	}
	return r
}

// Served is an upstream that a test serves.
type Served struct {
	*upstreamtest.Journal
	Config   upstream.Config
	Inside   *upstreamtest.Server // nil when it is a process of its own
	child    *upstreamtest.Child  // nil unless it is
	Release  func(gate string) error
	SetTools func([]json.RawMessage) error
}

// Serve serves the script in the pair's era over its wire.
func (p Pair) Serve(t *testing.T, script upstreamtest.Script) *Served {
	t.Helper()
	if script.Era == "" {
		script.Era = string(p.Upstream)
	}
	if p.Transport == "stdio" {
		c := upstreamtest.Command(t, script)
		return &Served{&c.Journal, upstream.Config{Command: c.Command, Env: c.Env}, nil, c, c.Release, c.SetTools}
	}
	var s *upstreamtest.Server
	var config upstream.Config
	switch p.Transport {
	case "sse":
		s, config.URL = upstreamtest.StartSSE(t, script)
		config.Transport = client.TransportSSE
	case "http":
		s, config.URL = upstreamtest.Start(t, script)
	default:
		t.Fatalf("there is no server for the transport %q", p.Transport)
	}
	return &Served{&s.Journal, config, s, nil,
		func(gate string) error { s.Release(gate); return nil },
		func(tools []json.RawMessage) error { s.SetTools(tools); return nil }}
}

// Listened waits until the upstream can tell of changes, and the proxy has told everybody of what
// may have changed before that: a server over HTTP is asked in a request of its own, and for its
// lists once more when that stream has begun.
func (s *Served) Listened(t *testing.T, p Pair) {
	t.Helper()
	switch n := Processes(); {
	case p.Upstream == client.EraModern:
		s.RequestsOf(t, "subscriptions/listen", n)
	case p.Transport == "http":
		Await(t, s.Journal, "OPEN by all processes", func(r upstreamtest.Record) bool {
			if r.Verb == "OPEN" {
				n--
			}
			return n == 0
		})
		s.RequestsOf(t, "tools/list", 2*Processes())
	}
}

// Set, updated, notify, ask and misbehave do to a server what the methods of upstreamtest.Server
// do. They do not wait for it to be done.
func (s *Served) Set(t *testing.T, method string, items []json.RawMessage) {
	t.Helper()
	if s.Inside != nil {
		s.Inside.Set(method, items)
	} else if err := s.child.Set(method, items); err != nil {
		t.Fatal(err)
	}
}

// Updated has the server report a change of a resource.
func (s *Served) Updated(t *testing.T, uri string) {
	t.Helper()
	if s.Inside != nil {
		s.Inside.Updated(uri)
	} else if err := s.child.Updated(uri); err != nil {
		t.Fatal(err)
	}
}

// Notify has the server send a notification.
func (s *Served) Notify(t *testing.T, method, params string) {
	t.Helper()
	if s.Inside != nil {
		s.Inside.Notify(method, []byte(params))
	} else if err := s.child.Notify(method, []byte(params)); err != nil {
		t.Fatal(err)
	}
}

// Ask puts a question outside of any call, and returns the answer of the proxy.
func (s *Served) Ask(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	known := map[jsonrpc.ID]bool{}
	for _, r := range s.Received() {
		known[r.Message.ID] = true
	}
	if s.Inside != nil {
		m, err := s.Inside.Ask(Patient(t), method, []byte(params))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := s.child.Ask(method, []byte(params)); err != nil {
		t.Fatal(err)
	}
	return Await(t, s.Journal, "answer", func(r upstreamtest.Record) bool {
		return r.Body != nil && r.Message.IsResponse() && !known[r.Message.ID]
	}).Message
}

// OpenGate lets one request that waits for the gate go on, now or when it comes.
func (s *Served) OpenGate(t *testing.T, gate string) {
	t.Helper()
	if err := s.Release(gate); err != nil {
		t.Fatal(err)
	}
}

// RequestsOf returns the requests of a method that a server has received, once there are that many:
// a process of its own reports them a moment later.
func (s *Served) RequestsOf(t *testing.T, method string, least int) []upstreamtest.Record {
	t.Helper()
	n := 0
	if least > 0 {
		Await(t, s.Journal, fmt.Sprintf("%d %s", least, method), func(r upstreamtest.Record) bool {
			if upstreamtest.Method(method)(r) {
				n++
			}
			return n >= least
		})
	}
	return slices.DeleteFunc(s.Received(), func(r upstreamtest.Record) bool { return !upstreamtest.Method(method)(r) })
}

// ToolTexts are definitions of tools, as JSON.
func ToolTexts(texts ...string) (list []json.RawMessage) {
	for _, text := range texts {
		list = append(list, json.RawMessage(text))
	}
	return list
}

// Library is a server with a resource, a template and a prompt.
func Library(string) upstreamtest.Script {
	return upstreamtest.Script{
		Prompts:   []json.RawMessage{[]byte(`{"name":"p"}`)},
		Resources: []json.RawMessage{[]byte(`{"uri":"file:///dir","name":"d"}`)},
		Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{path}","name":"f"}`)},
	}
}
