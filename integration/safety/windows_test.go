package safety

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth"
	"junction/integration/harness"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/folder"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// This file is about windows of agents that call one server at the same time, over a stream that does not name the
// call of a question. A window is a session. Clients of the modern era have none, so Junction tells their windows
// apart only by the program and the folder, and only where these have processes of their own.

// a windowRow is two calls at the same time, and the entry of their server.
type windowRow struct {
	name             string // of the windows
	same             bool   // both calls are of one window
	folders, program bool   // the windows are in two folders; they are of two programs
	keyed            bool   // two people have one key
	caller           client.Era
	isolation        upstream.Isolation
	stateful         bool
}

// alike reports whether Junction knows that both calls are of one window.
func (r *windowRow) alike() bool { return r.same && r.caller == client.EraLegacy }

// apart reports whether the windows have a process each.
func (r *windowRow) apart() bool {
	switch r.isolation {
	case upstream.IsolationSession:
		return !r.same && r.caller == client.EraLegacy || r.folders && r.caller == client.EraModern
	case upstream.IsolationFolder:
		return r.folders || r.program
	}
	return false
}

// windowRows are all windows, in both eras, with each isolation, with and without a state.
func windowRows() (list []windowRow) {
	for _, w := range []windowRow{
		{name: "one window", same: true},
		{name: "two windows of one program in one folder"},
		{name: "two windows of one program in two folders", folders: true},
		{name: "two programs in one folder", program: true},
		{name: "two people with one key", keyed: true},
	} {
		for _, w.caller = range harness.Eras {
			for _, w.isolation = range []upstream.Isolation{upstream.IsolationShared, upstream.IsolationPrincipal,
				upstream.IsolationSession, upstream.IsolationFolder} {
				for _, w.stateful = range []bool{false, true} {
					list = append(list, w)
				}
			}
		}
	}
	return list
}

// pair are the windows of a row. They call a server over stdio in the legacy era.
type pair struct {
	*windowRow
	child    *upstreamtest.Child
	one, two *harness.Talker
	dir      string
	home     string // the process that has the state of the first window
}

func newPair(t *testing.T, r *windowRow) *pair {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := &pair{windowRow: r, dir: dir, child: upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})}
	guard, key := &auth.Guard{}, ""
	if r.keyed {
		team, keys := harness.Keyring(t, "team")
		guard, key = team, keys["team"]
	}
	e := harness.MustProxy(t, map[string]upstream.Config{"up": {Command: p.child.Command, Env: p.child.Env,
		Era: client.EraLegacy, Isolation: r.isolation, Stateful: &r.stateful}},
		func(_ *front.Options, c *scope.Config, _ *upstream.Options) {
			c.Folders = folder.New(folder.Rules{Within: []string{dir}})
			c.Guard, c.Policy = guard, harness.MustPolicy(t, allowing)
		})
	talk := func(agent string) *harness.Talker {
		c := &harness.Talker{URL: e.URL, Era: r.caller, Version: "2025-11-25", Capabilities: harness.AllCapabilities, Key: key, Agent: agent}
		return c.Start(t)
	}
	p.one = talk("first")
	if p.two = p.one; !r.same {
		p.two = talk(map[bool]string{false: "first", true: "second"}[r.program])
	}
	p.home = p.process(t, p.one.Begin(t, p.first(whoami)))
	return p
}

// first is a query of the first window, and second one of the second.
func (p *pair) first(q harness.Query) harness.Query { return p.in("a", q) }

func (p *pair) second(q harness.Query) harness.Query {
	return p.in(map[bool]string{false: "a", true: "b"}[p.folders], q)
}

func (p *pair) in(name string, q harness.Query) harness.Query {
	q.Header = http.Header{"Junction-Folder": {filepath.Join(p.dir, name)}}
	return q
}

// process returns the process of a call of whoami, whose client is asked nothing.
func (p *pair) process(t *testing.T, a *harness.Answering) string {
	t.Helper()
	pid := harness.Member(p.unasked(t, a).Result, "structuredContent", "pid")
	if pid == "" {
		t.Fatal("the call has told no process")
	}
	return pid
}

// unasked returns the answer to a call whose client is asked nothing.
func (p *pair) unasked(t *testing.T, a *harness.Answering) jsonrpc.Message {
	t.Helper()
	notes, m := a.All(t)
	for _, note := range notes {
		if note.IsRequest() {
			t.Errorf("the other call is asked %s", note.Append(nil))
		}
	}
	if m.Error != nil || strings.Contains(string(m.Result), "input_required") {
		t.Fatalf("the other call = %s", m.Append(nil))
	}
	return m
}

// asked is a call that asks for the name of its window. Its client has the question, or the answer m without one.
type asked struct {
	c    *harness.Talker
	who  string
	q    harness.Query
	a    *harness.Answering
	m    jsonrpc.Message
	open *harness.ServerRequest // nil if the call has ended without a question
}

// ask begins a call of the first window that asks once the gate is open.
func (p *pair) ask(t *testing.T, gate string) *asked { return askIn(t, p.one, "first", gate, p.first) }

func askIn(t *testing.T, c *harness.Talker, who, gate string, in func(harness.Query) harness.Query) *asked {
	t.Helper()
	q := in(harness.Called("up__ask", fmt.Sprintf(`{"gate":%q,"questions":[{"method":"elicitation/create","params":`+
		`{"message":"which window, %s?","requestedSchema":{"type":"object","properties":{}}}}]}`, gate, who)))
	return &asked{c: c, who: who, q: q, a: c.Begin(t, q)}
}

// wait returns when the client has the question, or the call has ended.
func (a *asked) wait(t *testing.T) *asked {
	t.Helper()
	for {
		m, ok := a.a.Next(t)
		switch {
		case !ok:
			t.Fatalf("the call that asks ended without an answer: %v", a.a.Err)
		case m.IsRequest():
			a.open = &harness.ServerRequest{Method: m.Method, Params: m.Params, ID: m.ID}
			return a
		case m.IsResponse() && strings.Contains(string(m.Result), `"input_required"`):
			a.m, a.open = m, &harness.Requested(t, m)[0]
			return a
		case m.IsResponse():
			a.m = m
			return a
		}
	}
}

// answer answers the question, which must be the call's own, and wants the call to have this answer.
func (a *asked) answer(t *testing.T) {
	t.Helper()
	if a.open == nil {
		t.Fatalf("the window is not asked; its call = %s", a.m.Append(nil))
	}
	if !strings.Contains(string(a.open.Params), "which window, "+a.who+"?") {
		t.Errorf("the %s window is asked %s", a.who, a.open.Params)
	}
	mine := fmt.Sprintf(`{"action":"accept","content":{"who":%q}}`, a.who)
	if a.c.Era == client.EraLegacy {
		a.c.Respond(t, a.open.ID, `"result":`+mine)
		a.m = a.a.Answer(t)
	} else {
		again := a.q
		again.Params = harness.Retried(a.q.Params, a.m, fmt.Sprintf("%q:%s", a.open.Key, mine))
		a.m = a.c.Begin(t, again).Answer(t)
	}
	if got := harness.AnswersOf(t, a.m); got != `[{"result":`+mine+`}]` {
		t.Errorf("the call that asks has the answer %s", got)
	}
}

// received waits until the server has a call with a text in its arguments, and returns its place in the journal.
func (p *pair) received(t *testing.T, text string) (at int) {
	t.Helper()
	match := func(r upstreamtest.Record) bool { return strings.Contains(string(r.Body), text) }
	harness.Await(t, &p.child.Journal, text, match)
	for i, r := range p.child.Received() {
		if match(r) {
			return i
		}
	}
	return -1
}

func (p *pair) release(t *testing.T, gate string) {
	t.Helper()
	if err := p.child.Release(gate); err != nil {
		t.Fatal(err)
	}
}

// TestWindowsDoNotMeet: two calls at the same time, one of which asks. A question and its answer stay in their window,
// or it is refused; and no call loses what the server keeps of its window, as long as one window calls at a time.
func TestWindowsDoNotMeet(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test, and each process starts the server")
	for _, r := range windowRows() {
		name := fmt.Sprintf("%s/%s %s stateful %v", r.name, r.caller, r.isolation, r.stateful)
		t.Run(name+"/question first", func(t *testing.T) {
			harness.Waits(t)
			p := newPair(t, &r)
			call := p.ask(t, "")
			call.wait(t)
			// A call of the same window goes to its process, as directly. Another one waits for the state, or has
			// a process of its own.
			beside := p.two.Begin(t, p.second(harness.Called("up__whoami", `{"names":["BESIDE"]}`)))
			waits, pid := r.stateful && !r.alike() && !r.apart(), ""
			if !waits {
				pid = p.process(t, beside)
			}
			call.answer(t)
			if waits {
				if pid = p.process(t, beside); p.received(t, "BESIDE") < p.received(t, `"who":"first"`) {
					t.Error("the other call has not waited for the answer")
				}
			}
			if home := pid == p.home; home != (r.alike() || waits) {
				t.Errorf("the other call was in the process of the first window: %v", home)
			}
			if pid := p.process(t, p.one.Begin(t, p.first(whoami))); pid != p.home {
				t.Error("the window has lost its process")
			}
		})
		t.Run(name+"/both ask", func(t *testing.T) {
			harness.Waits(t)
			p := newPair(t, &r)
			one := p.ask(t, "").wait(t)
			two := askIn(t, p.two, "second", "", p.second)
			if r.stateful && !r.alike() && !r.apart() { // the second call waits
				one.answer(t)
				two.wait(t).answer(t)
			} else {
				two.wait(t).answer(t)
				one.answer(t)
			}
			if pid := p.process(t, p.one.Begin(t, p.first(whoami))); pid != p.home {
				t.Error("the window has lost its process")
			}
		})
		t.Run(name+"/call first", func(t *testing.T) {
			harness.Waits(t)
			p := newPair(t, &r)
			both := func(round string) (*asked, *harness.Answering) {
				other := p.two.Begin(t, p.second(harness.Called("up__gate", fmt.Sprintf(`{"gate":"end%s"}`, round))))
				p.received(t, "end"+round)
				return p.ask(t, "ask"+round), other
			}
			call, other := both("1")
			p.received(t, "ask1")
			p.release(t, "ask1")
			if call.wait(t); r.alike() || r.apart() {
				call.answer(t)
				p.release(t, "end1")
				p.unasked(t, other)
			} else {
				if call.open != nil || !strings.Contains(string(call.m.Append(nil)), "several windows") {
					t.Errorf("the question that could be of two windows = %s", call.m.Append(nil))
				}
				p.release(t, "end1")
				p.unasked(t, other)
				// From now on a call of the tool has a process for itself, or waits for the others.
				if call, other = both("2"); r.stateful {
					p.release(t, "end2")
					p.unasked(t, other)
				}
				p.received(t, "ask2")
				p.release(t, "ask2")
				call.wait(t).answer(t)
				if !r.stateful {
					p.release(t, "end2")
					p.unasked(t, other)
				}
			}
			if pid := p.process(t, p.one.Begin(t, p.first(whoami))); pid != p.home {
				t.Error("the window has lost its process")
			}
		})
	}
}
