//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"junction/integration/harness/process"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file has the stand-in of a model API. Each request of an agent that offers tools becomes a
// turn, which the test answers. Requests without tools, such as for a title, get a short text.

// prompt is what every agent is asked to do. The answers do not depend on it.
const prompt = "Call the tools that you are asked to call."

// turn is one model request of an agent, and waits for its answer.
type turn struct {
	t       *testing.T
	tools   []string // names as the request has them; tools of a namespace are "namespace/name"
	results []string // of the tool calls of the last answer
	answers chan answer
}

// answer is a tool call or, if tool is empty, a text that ends the run.
type answer struct {
	id        string // of the call
	tool      string // as in turn.tools
	arguments string // a JSON object
	text      string
}

// wire is how an agent talks to its model API.
type wire struct {
	// path is the end of the path to which model requests go; other requests are not for the model.
	path string
	// read returns the tools and the results of the last calls.
	read func(body []byte) (tools, results []string, err error)
	// write streams an answer.
	write func(w io.Writer, a answer)
	// other answers all other requests.
	other func(w http.ResponseWriter, r *http.Request)
}

// model is the server side of one agent's run.
type model struct {
	url   string
	turns chan *turn
	log   *process.Output // one line for each request
}

func startModel(t *testing.T, w wire) *model {
	t.Helper()
	m := &model{turns: make(chan *turn), log: process.NewOutput()}
	ids := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for i := 1; ; i++ {
			select {
			case ids <- fmt.Sprintf("call_%d", i):
			case <-ctx.Done():
				return
			}
		}
	}()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m.serve(ctx, t, w, rw, r, ids)
	}))
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
	})
	m.url = server.URL
	return m
}

func (m *model) serve(ctx context.Context, t *testing.T, w wire,
	rw http.ResponseWriter, r *http.Request, ids chan string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent has gone
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, w.path) {
		fmt.Fprintf(m.log, "%s %s\n", r.Method, r.URL)
		w.other(rw, r)
		return
	}
	tools, results, err := w.read(body)
	fmt.Fprintf(m.log, "%s %s: %d tools, %.300q, %v\n", r.Method, r.URL, len(tools), results, err)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	a := answer{text: "A title"}
	if len(tools) > 0 {
		turn := &turn{t: t, tools: tools, results: results, answers: make(chan answer, 1)}
		select {
		case m.turns <- turn:
		case <-r.Context().Done():
			return
		case <-ctx.Done():
			return
		}
		select {
		case a = <-turn.answers:
		case <-r.Context().Done():
			return
		case <-ctx.Done():
			return
		}
	}
	select {
	case a.id = <-ids:
	case <-ctx.Done():
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	w.write(rw, a)
}

// call answers with a call of a tool of Junction that has the argument text.
func (tn *turn) call(tool, text string) {
	tn.t.Helper()
	tn.callWith(tool, fmt.Sprintf(`{"text":%q}`, text))
}

// callWith answers with a call of a tool of Junction, under the name that the agent gave it.
func (tn *turn) callWith(tool, arguments string) {
	tn.t.Helper()
	name, ok := tn.find(tool)
	if !ok {
		tn.t.Fatalf("the agent does not offer %s to its model: %q", tool, tn.tools)
	}
	tn.answers <- answer{tool: name, arguments: arguments}
}

// pass answers with a call that the agent rejects, so that another model request follows.
func (tn *turn) pass() { tn.answers <- answer{tool: "no_such_tool", arguments: "{}"} }

// say answers with a text, which ends the run.
func (tn *turn) say(text string) { tn.answers <- answer{text: text} }

// find returns the agent's name for a tool of Junction.
func (tn *turn) find(tool string) (string, bool) {
	i := slices.IndexFunc(tn.tools, func(n string) bool { return strings.HasSuffix(n, tool) })
	if i < 0 {
		return "", false
	}
	return tn.tools[i], true
}

// offers reports whether the request has a tool of Junction.
func (tn *turn) offers(tool string) bool {
	_, ok := tn.find(tool)
	return ok
}

// expect checks the last result: it contains each of the texts.
func (tn *turn) expect(texts ...string) {
	tn.t.Helper()
	for _, text := range texts {
		if len(tn.results) != 1 || !strings.Contains(tn.results[0], text) {
			tn.t.Errorf("the agent returns %q to its model, want one result with %q", tn.results, text)
		}
	}
}

// event writes an event of a stream. An empty name leaves out the line with the event's name.
func event(w io.Writer, name string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // of data that this package made
	}
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", text)
}

// object is any JSON object.
type object = map[string]any

// contents returns the text of a string or of a list of parts with a member text.
func contents(text json.RawMessage) string {
	var s string
	if json.Unmarshal(text, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	if json.Unmarshal(text, &parts) != nil {
		return string(text)
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}

// next returns the next turn of a run.
func (m *model) next(t *testing.T, ended <-chan struct{}) *turn {
	t.Helper()
	select {
	case turn := <-m.turns:
		return turn
	case <-ended:
		t.Fatal("the agent ends without another model request")
	case <-time.After(patience):
		t.Fatalf("the agent sends no model request within %v", patience)
	}
	return nil
}
