package harness

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Helpers for tests of questions, resources and subscriptions, for clients and servers, whatever
// their eras and wires are.

// ServerRequest is a question as a client gets it.
type ServerRequest struct {
	Method string
	Params []byte     // nil when there are none
	Key    string     // modern: in inputRequests
	ID     jsonrpc.ID // legacy
}

// Converse makes a request and answers the questions that come, until the answer is there. answer
// returns `"result":…` or, for a legacy client, `"error":…`; with "" the question is left open: a
// modern client then comes back without an answer to it.
func (c *Talker) Converse(t *testing.T, q Query, answer func(ServerRequest) string) (m jsonrpc.Message,
	asked []ServerRequest) {
	t.Helper()
	if c.Era == client.EraModern {
		base := q.Params
		for range 50 {
			q.ID = ""
			if m = c.Begin(t, q).Answer(t); m.Error != nil || Member(m.Result, "resultType") != `"input_required"` {
				return m, asked
			}
			var responses []string
			for _, p := range Requested(t, m) {
				asked = append(asked, p)
				if a := answer(p); a != "" {
					responses = append(responses,
						fmt.Sprintf(`%s:%s`, raw.Quote(p.Key), strings.TrimPrefix(a, `"result":`)))
				}
			}
			q.Params = Retried(base, m, responses...)
		}
		t.Fatalf("the questions do not end: %s", m.Result)
	}
	p := c.Begin(t, q)
	for {
		m, ok := p.Next(t)
		switch {
		case !ok:
			t.Fatalf("the response ended without an answer: %v", p.Err)
		case m.IsResponse():
			return m, asked
		case m.IsRequest():
			question := ServerRequest{Method: m.Method, Params: m.Params, ID: m.ID}
			asked = append(asked, question)
			if a := answer(question); a != "" {
				c.Respond(t, m.ID, a)
			}
		}
	}
}

// Requested returns the questions of a result that requires input. It fails unless each of them is
// one as 2026-07-28 writes it.
func Requested(t *testing.T, m jsonrpc.Message) (questions []ServerRequest) {
	t.Helper()
	if m.Error != nil || Member(m.Result, "resultType") != `"input_required"` {
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
		questions = append(questions, ServerRequest{Method: method, Params: params, Key: key})
	}
	return questions
}

// Retried returns the params of a call that comes again with these members of inputResponses, and
// the state that it was given.
func Retried(base string, m jsonrpc.Message, responses ...string) string {
	params := base
	if Member(m.Result, "inputRequests") != "" {
		params += `,"inputResponses":{` + strings.Join(responses, ",") + `}`
	}
	if state := Member(m.Result, "requestState"); state != "" {
		authtest.Secret("a requestState", strings.Trim(state, `"`))
		params += `,"requestState":` + state
	}
	return params
}

// Respond posts the answer to a question, which must be accepted.
func (c *Talker) Respond(t *testing.T, id jsonrpc.ID, member string) {
	t.Helper()
	if status := c.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, member)); status != http.StatusAccepted {
		t.Fatalf("the answer to question %s = status %d, want 202", id, status)
	}
}

// Post posts a text of a legacy client and returns the status of the response.
func (c *Talker) Post(t *testing.T, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(Patient(t), "POST", c.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	c.Own(r.Header)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// Ask makes a request and waits for the answer.
func (c *Talker) Ask(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	return c.Begin(t, Query{Method: method, Params: params}).Answer(t)
}

// Must makes a request that must succeed, and returns the result.
func (c *Talker) Must(t *testing.T, method, params string) []byte {
	t.Helper()
	m := c.Ask(t, method, params)
	if m.Error != nil {
		t.Fatalf("%s {%s} = error %v %s", method, params, m.Error, m.Error.Data)
	}
	return m.Result
}

// Deleted ends a session and returns the status.
func Deleted(t *testing.T, c *Talker) int {
	t.Helper()
	legacy := &Client{URL: c.URL, era: c.Era, Session: c.session, version: c.Version, Key: c.Key,
		HTTP: NewClient(t, &Endpoint{URL: c.URL}, c.Era).HTTP}
	return legacy.MustDo(t, "DELETE")
}

// WantNote wants the next message of a stream to be this notification. Members of params may come
// in any order.
func (p *Answering) WantNote(t *testing.T, method, params string) {
	t.Helper()
	m, ok := p.Next(t)
	if !ok || m.Method != method || m.ID != "" || !SameJSON(t, ObjectText(m.Params), ObjectText([]byte(params))) {
		t.Fatalf("got  %s\nwant %s %s", m.Append(nil), method, params)
	}
}

// WantSilence wants nothing to have come. It is called when what could have come would have.
func (p *Answering) WantSilence(t *testing.T) {
	t.Helper()
	select {
	case m, ok := <-p.Messages:
		if ok {
			t.Errorf("got %s, want nothing", m.Append(nil))
		}
	default:
	}
}
