package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What the tests of questions, resources and subscriptions need of clients and servers, whatever
// their eras and wires are.

// set, updated, notify, ask and misbehave do to a server what the methods of upstreamtest.Server
// do. They do not wait for it to be done.
func (s *served) set(t *testing.T, method string, items []json.RawMessage) {
	t.Helper()
	if s.inside != nil {
		s.inside.Set(method, items)
	} else if err := s.child.Set(method, items); err != nil {
		t.Fatal(err)
	}
}

func (s *served) updated(t *testing.T, uri string) {
	t.Helper()
	if s.inside != nil {
		s.inside.Updated(uri)
	} else if err := s.child.Updated(uri); err != nil {
		t.Fatal(err)
	}
}

func (s *served) notify(t *testing.T, method, params string) {
	t.Helper()
	if s.inside != nil {
		s.inside.Notify(method, []byte(params))
	} else if err := s.child.Notify(method, []byte(params)); err != nil {
		t.Fatal(err)
	}
}

// ask puts a question outside of any call, and returns the answer of the proxy.
func (s *served) ask(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	known := map[jsonrpc.ID]bool{}
	for _, r := range s.Received() {
		known[r.Message.ID] = true
	}
	if s.inside != nil {
		m, err := s.inside.Ask(patient(t), method, []byte(params))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := s.child.Ask(method, []byte(params)); err != nil {
		t.Fatal(err)
	}
	return await(t, s.Journal, "answer", func(r upstreamtest.Record) bool {
		return r.Body != nil && r.Message.IsResponse() && !known[r.Message.ID]
	}).Message
}

func (s *served) openGate(t *testing.T, gate string) {
	t.Helper()
	if err := s.release(gate); err != nil {
		t.Fatal(err)
	}
}

// requestsOf returns the requests of a method that a server has received, once there are that many:
// a process of its own reports them a moment later.
func (s *served) requestsOf(t *testing.T, method string, least int) []upstreamtest.Record {
	t.Helper()
	n := 0
	if least > 0 {
		await(t, s.Journal, fmt.Sprintf("%d %s", least, method), func(r upstreamtest.Record) bool {
			if upstreamtest.Method(method)(r) {
				n++
			}
			return n >= least
		})
	}
	return slices.DeleteFunc(s.Received(), func(r upstreamtest.Record) bool { return !upstreamtest.Method(method)(r) })
}

// put is a question as a client gets it.
type put struct {
	method string
	params []byte     // nil when there are none
	key    string     // modern: in inputRequests
	id     jsonrpc.ID // legacy
}

// converse makes a request and answers the questions that come, until the answer is there. answer
// returns `"result":…` or, for a legacy client, `"error":…`; with "" the question is left open: a
// modern client then comes back without an answer to it.
func (c *talker) converse(t *testing.T, q query, answer func(put) string) (m jsonrpc.Message, asked []put) {
	t.Helper()
	if c.era == upstream.EraModern {
		base := q.params
		for range 50 {
			q.id = ""
			if m = c.begin(t, q).answer(t); m.Error != nil || member(m.Result, "resultType") != `"input_required"` {
				return m, asked
			}
			var responses []string
			for _, p := range requested(t, m) {
				asked = append(asked, p)
				if a := answer(p); a != "" {
					responses = append(responses, fmt.Sprintf(`%s:%s`, raw.Quote(p.key), strings.TrimPrefix(a, `"result":`)))
				}
			}
			q.params = retried(base, m, responses...)
		}
		t.Fatalf("the questions do not end: %s", m.Result)
	}
	p := c.begin(t, q)
	for {
		m, ok := p.next(t)
		switch {
		case !ok:
			t.Fatalf("the response ended without an answer: %v", p.err)
		case m.IsResponse():
			return m, asked
		case m.IsRequest():
			question := put{method: m.Method, params: m.Params, id: m.ID}
			asked = append(asked, question)
			if a := answer(question); a != "" {
				c.respond(t, m.ID, a)
			}
		}
	}
}

// requested returns the questions of a result that requires input. It fails unless each of them is
// one as 2026-07-28 writes it.
func requested(t *testing.T, m jsonrpc.Message) (questions []put) {
	t.Helper()
	if m.Error != nil || member(m.Result, "resultType") != `"input_required"` {
		t.Fatalf("got %s, want input_required", m.Append(nil))
	}
	text, err := raw.Get(m.Result, "inputRequests")
	if err == raw.ErrAbsent {
		return nil
	}
	requests, err := raw.Parse(text)
	if err != nil {
		t.Fatalf("inputRequests of %s: %v", m.Result, err)
	}
	for _, r := range requests.Members() {
		key, _ := r.Name()
		o, err := raw.Parse(r.Value)
		if err != nil {
			t.Fatalf("%s of %s: %v", key, text, err)
		}
		for _, entry := range o.Members() {
			if name, _ := entry.Name(); name != "method" && name != "params" {
				t.Errorf("%s of %s has a member %s", key, text, name)
			}
		}
		params, err := o.Get("params")
		for _, name := range []string{"_meta", "task", "elicitationId"} {
			if _, err := raw.Get(params, name); len(params) > 0 && err == nil {
				t.Errorf("the params of %s in %s have a member %s", key, text, name)
			}
		}
		if err != nil {
			params = nil
		}
		method, _ := o.String("method")
		questions = append(questions, put{method: method, params: params, key: key})
	}
	return questions
}

// retried returns the params of a call that comes again with these members of inputResponses, and
// the state that it was given.
func retried(base string, m jsonrpc.Message, responses ...string) string {
	params := base
	if member(m.Result, "inputRequests") != "" {
		params += `,"inputResponses":{` + strings.Join(responses, ",") + `}`
	}
	if state := member(m.Result, "requestState"); state != "" {
		authtest.Secret("a requestState", strings.Trim(state, `"`))
		params += `,"requestState":` + state
	}
	return params
}

// respond posts the answer to a question, which must be accepted.
func (c *talker) respond(t *testing.T, id jsonrpc.ID, member string) {
	t.Helper()
	if status := c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, member)); status != http.StatusAccepted {
		t.Fatalf("the answer to question %s = status %d, want 202", id, status)
	}
}

// post posts a text of a legacy client and returns the status of the response.
func (c *talker) post(t *testing.T, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(patient(t), "POST", c.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	c.own(r.Header)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// ask makes a request and waits for the answer.
func (c *talker) ask(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	return c.begin(t, query{method: method, params: params}).answer(t)
}

// must makes a request that must succeed, and returns the result.
func (c *talker) must(t *testing.T, method, params string) []byte {
	t.Helper()
	m := c.ask(t, method, params)
	if m.Error != nil {
		t.Fatalf("%s {%s} = error %v %s", method, params, m.Error, m.Error.Data)
	}
	return m.Result
}

// deleted ends a session and returns the status.
func deleted(t *testing.T, c *talker) int {
	t.Helper()
	legacy := &client{url: c.url, era: c.era, session: c.session, version: c.version, key: c.key, http: newClient(t, &endpoint{URL: c.url}, c.era).http}
	return legacy.mustDo(t, "DELETE")
}

// get opens the listening stream of a legacy client, and waits until it is open.
func (c *talker) get(t *testing.T, header ...string) *answering {
	t.Helper()
	p := c.send(t, "", func(ctx context.Context) *http.Request {
		r, err := http.NewRequestWithContext(ctx, "GET", c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		c.own(r.Header)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	})
	select {
	case <-p.begun:
	case <-patient(t).Done():
		t.Fatal("the stream does not open")
	}
	if p.status != http.StatusOK {
		t.Fatalf("GET = status %d, want a stream", p.status)
	}
	return p
}

// wantNote wants the next message of a stream to be this notification. Members of params may come
// in any order.
func (p *answering) wantNote(t *testing.T, method, params string) {
	t.Helper()
	m, ok := p.next(t)
	if !ok || m.Method != method || m.ID != "" || !sameJSON(t, objectText(m.Params), objectText([]byte(params))) {
		t.Fatalf("got  %s\nwant %s %s", m.Append(nil), method, params)
	}
}

// wantSilence wants nothing to have come. It is called when what could have come would have.
func (p *answering) wantSilence(t *testing.T) {
	t.Helper()
	select {
	case m, ok := <-p.messages:
		if ok {
			t.Errorf("got %s, want nothing", m.Append(nil))
		}
	default:
	}
}

// objectText is a text that is a JSON object where nothing means an empty one.
func objectText(text []byte) []byte {
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// wantJSON compares two values.
func wantJSON(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if len(got) == 0 || !sameJSON(t, got, []byte(want)) {
		t.Errorf("%s = %s\nwant %s", what, got, want)
	}
}

// wantCode wants an error of this code.
func wantCode(t *testing.T, m jsonrpc.Message, code int64) {
	t.Helper()
	if m.Error == nil || m.Error.Code != code {
		t.Errorf("got %s, want an error %d", m.Append(nil), code)
	}
}

// answersOf returns what the tool ask says it was answered.
func answersOf(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("got an error %v %s, want answers", m.Error, m.Error.Data)
	}
	return member(m.Result, "structuredContent", "answers")
}
