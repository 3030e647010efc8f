package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// TestQuestionOfACallThatWasGivenUp: a question that was meant for the previous caller does not reach
// the next one. Where questions do not name their call, Junction cannot know when a server has ended
// a cancelled call.
func TestQuestionOfACallThatWasGivenUp(t *testing.T) {
	b := &base{flights: map[jsonrpc.ID]*flight{}}
	next := &flight{id: "2", window: window{"one", "x"}}
	b.track(next)
	question := &jsonrpc.Message{ID: "1", Method: "elicitation/create"}
	if f, reason := b.callOf(nil, question); f != next {
		t.Fatalf("the question of the only call was not assigned to it: %s", reason)
	}
	b.abandoned(&flight{id: "1", window: window{"one", "y"}})
	if f, _ := b.callOf(nil, question); f != nil {
		t.Error("the question may be that of a call that was given up, and was taken for the next one's")
	}
	if f, _ := b.callOf(next, question); f != next {
		t.Error("a question on the stream of its call is not its own any more")
	}
	if b.Taken(&Call{}, false) != nil {
		t.Error("the next call would get another connection, where a server has another state")
	}
}

// breaking is a server whose answers end with an error, after those in answers.
type breaking struct {
	transport.Transport
	answers []string // results
	err     error
}

func (s *breaking) Call(context.Context, *transport.Request, func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	if len(s.answers) == 0 {
		return nil, s.err
	}
	body, err := raw.Parse([]byte(s.answers[0]))
	s.answers = s.answers[1:]
	return &jsonrpc.Message{Result: body.Text(), Body: body}, err
}

// TestQuestionOfACallThatWasLost: the server may still work on a call whose answer was lost, so its
// question does not reach the next caller. A server that got no call, or answered it, has no question.
func TestQuestionOfACallThatWasLost(t *testing.T) {
	lost := errors.New("the stream ended before the answer")
	working := `{"task":{"taskId":"t","status":"working","pollInterval":1}}`
	for name, row := range map[string]struct {
		asTask  bool
		answers []string
		err     error
		works   bool
	}{
		"lost":                          {false, nil, lost, true},
		"a gateway gave up":             {false, nil, &transport.StatusError{Status: 504}, true},
		"not sent":                      {false, nil, transport.NotSent(lost), false},
		"answered with an error":        {false, nil, &transport.StatusError{Status: 400, Message: &jsonrpc.Message{Error: &jsonrpc.Error{Code: -32602}}}, false},
		"answered":                      {false, []string{"{}"}, lost, false},
		"lost before the task":          {true, nil, lost, true},
		"task not sent":                 {true, nil, transport.NotSent(lost), false},
		"lost during the task":          {true, []string{working}, lost, true},
		"not connected during the task": {true, []string{working}, transport.NotSent(lost), true},
		"the task failed":               {true, []string{working}, &jsonrpc.Error{Code: -32603}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &legacyConn{}
				l.init(authtest.Log(t), Hooks{}, EraLegacy)
				defer l.stop()
				l.transport = &breaking{answers: row.answers, err: row.err}
				l.info.Capabilities, _ = raw.Parse([]byte(`{"tasks":{"requests":{"tools":{"call":{}}}}}`))
				l.Call(t.Context(), &Call{Method: "tools/call", Principal: "one", Session: "y", AsTask: row.asTask, Peer: struct{ Peer }{}}, nil)
				next := &flight{id: "next", window: window{"one", "x"}}
				l.track(next)
				f, reason := l.callOf(nil, &jsonrpc.Message{ID: "1", Method: "elicitation/create"})
				if works := f != next; works != row.works {
					t.Errorf("a question is held to be that of the earlier call: %t (%s), want %t", works, reason, row.works)
				}
			})
		})
	}
}

// TestTaskThatBeginsLate has a server begin a task after its call was given up: the task is cancelled,
// and the answer does not end the doubt, because the server works on.
func TestTaskThatBeginsLate(t *testing.T) {
	for name, early := range map[string]bool{"before the call has ended": true, "after the call has ended": false} {
		t.Run(name, func(t *testing.T) {
			b := new(base)
			b.init(authtest.Log(t), Hooks{}, EraLegacy)
			defer b.stop()
			f := &flight{id: "8", window: window{"a", "2"}}
			b.track(f)
			late := func(id jsonrpc.ID) {
				body, err := raw.Parse([]byte(`{"task":{"taskId":"t","status":"working"}}`))
				if err != nil {
					t.Fatal(err)
				}
				b.receive(&jsonrpc.Message{ID: id, Result: body.Text(), Body: body})
			}
			if early {
				late("8")
			}
			b.abandoned(f)
			delete(b.flights, f.id)
			if !early {
				late("8")
			}
			if len(b.outbox) != 1 {
				t.Fatalf("%d messages to the server, want tasks/cancel", len(b.outbox))
			}
			cancel := <-b.outbox
			if cancel.Method != "tasks/cancel" || string(cancel.Params) != `{"taskId":"t"}` {
				t.Errorf("the server gets %s %s, want tasks/cancel", cancel.Method, cancel.Params)
			}
			late(cancel.ID)
			if len(b.outbox) != 0 {
				t.Error("the answer to tasks/cancel is taken for a task that has begun")
			}
			b.track(&flight{id: "9", window: window{"a", "1"}})
			if f, _ := b.callOf(nil, &jsonrpc.Message{ID: "1", Method: "elicitation/create"}); f != nil {
				t.Error("the question may be that of the task, and was taken for the next call's")
			}
		})
	}
}

// TestQuestionAfterACallOfAnotherUser: a message that names no call belongs to the only call in
// progress, unless a call of another principal has ended within the grace.
func TestQuestionAfterACallOfAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{flights: map[jsonrpc.ID]*flight{}}
		question := &jsonrpc.Message{ID: "1", Method: "elicitation/create"}
		call := func(id jsonrpc.ID, principal string) *flight {
			f := &flight{id: id, window: window{principal, "x"}}
			b.track(f)
			return f
		}
		ofTheOnlyCall := func(principal string) bool {
			f := call("x", principal)
			got, _ := b.callOf(nil, question)
			delete(b.flights, f.id)
			return got == f
		}
		b.untrack(call("1", "one"))
		if !ofTheOnlyCall("one") {
			t.Error("a question is not passed to the user of the earlier call")
		}
		if ofTheOnlyCall("two") {
			t.Error("a question that the call of one may have caused was passed to two")
		}
		b.untrack(call("2", "two"))
		b.untrack(call("3", "two")) // the call of one is still remembered
		if ofTheOnlyCall("two") || ofTheOnlyCall("one") || ofTheOnlyCall("three") {
			t.Error("a question was passed to a user although a call of another one has just ended")
		}
		time.Sleep(abandonedGrace)
		for _, principal := range []string{"one", "two", "three"} {
			if !ofTheOnlyCall(principal) {
				t.Errorf("after the grace a question is not passed to %s", principal)
			}
		}
	})
}

// TestMessageOfSeveralCalls: a message that names no call belongs to the newest call whose client can
// answer, if everything that could have caused it is of one window, and to none
// otherwise.
func TestMessageOfSeveralCalls(t *testing.T) {
	asks := Profile{Form: true}
	type call struct {
		window
		profile   Profile
		abandoned bool
	}
	for name, row := range map[string]struct {
		calls []call
		want  int // the number of the call; -1 for none
	}{
		"four of one session":           {[]call{{window{"a", "1"}, asks, false}, {window{"a", "1"}, asks, false}, {window{"a", "1"}, asks, false}, {window{"a", "1"}, asks, false}}, 3},
		"the newest cannot answer":      {[]call{{window{"a", "1"}, asks, false}, {window{"a", "1"}, Profile{Sampling: true}, false}}, 0},
		"two sessions of one user":      {[]call{{window{"a", "1"}, asks, false}, {window{"a", "2"}, asks, false}}, -1},
		"two users":                     {[]call{{window{"a", "1"}, asks, false}, {window{"b", "1"}, asks, false}}, -1},
		"after one that was given up":   {[]call{{window{"a", "1"}, asks, true}, {window{"a", "1"}, asks, false}}, 1},
		"given up in another session":   {[]call{{window{"a", "2"}, asks, true}, {window{"a", "1"}, asks, false}}, -1},
		"given up by another user":      {[]call{{window{"b", "1"}, asks, true}, {window{"a", "1"}, asks, false}}, -1},
		"of sessions that are unknown":  {[]call{{window{"a", ""}, asks, false}, {window{"a", ""}, asks, false}}, -1},
		"the only one, unknown session": {[]call{{window{"", ""}, asks, false}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := &base{flights: map[jsonrpc.ID]*flight{}}
			var flights []*flight
			for i, c := range row.calls {
				f := &flight{id: jsonrpc.NumberID(uint64(i)), window: c.window, profile: c.profile}
				flights = append(flights, f)
				b.track(f)
			}
			for i, c := range row.calls {
				if c.abandoned {
					b.abandoned(flights[i])
					delete(b.flights, flights[i].id)
				}
			}
			var want *flight
			if row.want >= 0 {
				want = flights[row.want]
			}
			if got, reason := b.callOf(nil, &jsonrpc.Message{ID: "1", Method: "elicitation/create"}); got != want {
				t.Errorf("the call is %+v (%s), want that of %d", got, reason, row.want)
			}
		})
	}
}

// TestAnswerEndsTheDoubt: an abandoned request is in doubt until the server answers it, or a minute
// has passed. Answers to unknown ids end no other doubt.
func TestAnswerEndsTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{flights: map[jsonrpc.ID]*flight{}}
		clear := func() bool {
			got, _ := b.callOf(nil, &jsonrpc.Message{ID: "1", Method: "elicitation/create"})
			return got != nil
		}
		b.track(&flight{id: "9", window: window{"a", "1"}})
		for _, id := range []jsonrpc.ID{"1", "2"} {
			b.abandoned(&flight{id: id, window: window{"a", "2"}})
		}
		for _, id := range []jsonrpc.ID{"3", "1", "1"} {
			b.receive(&jsonrpc.Message{ID: id, Result: []byte("{}")})
			if clear() {
				t.Fatalf("the answer to %s ends the doubt about 2", id)
			}
		}
		b.receive(&jsonrpc.Message{ID: "2", Error: &jsonrpc.Error{Code: -32000}})
		if !clear() {
			t.Error("both requests were answered, and are in doubt")
		}
		early := &flight{id: "4", window: window{"a", "2"}}
		b.track(early)
		b.answered(&jsonrpc.Message{ID: "4", Result: []byte("{}")}) // between the end of its context and its end
		b.abandoned(early)
		delete(b.flights, "4")
		if !clear() {
			t.Error("a request that was answered before it was given up is in doubt")
		}
		for i := range mostDoubts + 1 {
			b.abandoned(&flight{id: jsonrpc.NumberID(uint64(100 + i)), window: window{"a", "1"}})
		}
		if len(b.doubts) != mostDoubts || clear() {
			t.Errorf("%d doubts are kept, want %d, and what was not kept is in doubt", len(b.doubts), mostDoubts)
		}
		time.Sleep(abandonedGrace)
		if !clear() || len(b.doubts) != 0 {
			t.Errorf("%d requests are in doubt after the grace", len(b.doubts))
		}
	})
}

// TestServerThatAnswersLate has a server answer a cancelled request after a minute, twice, and with
// another id. The question of the next client waits for the minute alone, and a late answer says
// nothing about the requests that were cancelled since.
func TestServerThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{flights: map[jsonrpc.ID]*flight{}}
		b.track(&flight{id: "9", window: window{"a", "1"}})
		cancel := func(id jsonrpc.ID) {
			f := &flight{id: id, window: window{"a", "2"}}
			b.track(f)
			b.abandoned(f)
			b.untrack(f)
		}
		step := func(what string, answers []jsonrpc.ID, asked bool) {
			t.Helper()
			for _, id := range answers {
				b.receive(&jsonrpc.Message{ID: id, Result: []byte("{}")})
			}
			if f, reason := b.callOf(nil, &jsonrpc.Message{ID: "1", Method: "elicitation/create"}); (f != nil) != asked {
				t.Errorf("%s: the question is passed on: %t (%s)", what, f != nil, reason)
			}
		}
		cancel("1")
		step("cancelled", nil, false)
		time.Sleep(abandonedGrace - time.Second)
		step("other ids", []jsonrpc.ID{"7", `"x1"`, "9"}, false)
		time.Sleep(time.Second)
		step("after a minute", nil, true)
		cancel("2")
		step("answered after a minute, twice", []jsonrpc.ID{"1", "1"}, false)
		step("answered", []jsonrpc.ID{"2"}, true)
		for i := range uint64(4) {
			time.Sleep(abandonedGrace / 2)
			cancel(jsonrpc.NumberID(30 + i))
		}
		step("cancelled again and again", nil, false)
		time.Sleep(abandonedGrace)
		step("a minute after the last one", []jsonrpc.ID{"30", "31"}, true)
	})
}

// TestServerThatAsksAfterItsAnswers has a server send a question after each of its answers: the next
// call of the same user may be asked, and that of another user within the minute is not.
func TestServerThatAsksAfterItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := new(base)
		b.init(authtest.Log(t, &log), Hooks{}, EraLegacy)
		b.flights = map[jsonrpc.ID]*flight{}
		question := &jsonrpc.Message{ID: "1", Method: "elicitation/create"}
		next := uint64(0)
		calls := func(principals ...string) (asked int) {
			for _, principal := range principals {
				next++
				f := &flight{id: jsonrpc.NumberID(next), window: window{principal, "1"}}
				b.track(f)
				if got, _ := b.callOf(nil, question); got != nil {
					if asked++; got != f {
						t.Errorf("the question during a call of %s is that of another call", principal)
					}
				}
				b.untrack(f)
				if got, _ := b.callOf(nil, question); got != nil {
					t.Errorf("a question after the answer is that of a call of %s", got.principal)
				}
			}
			return asked
		}
		if n := calls("one", "one", "one"); n != 3 {
			t.Errorf("one user was asked %d times during three calls", n)
		}
		if n := calls("two", "one", "two", "one", "three", "two"); n != 0 {
			t.Errorf("%d questions reached a user although they could be about a call of another one", n)
		}
		time.Sleep(abandonedGrace)
		if n := calls("two", "two"); n != 2 {
			t.Errorf("after the minute, one user was asked %d times during two calls", n)
		}
		for range 1000 {
			b.receive(question)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 5 {
			t.Errorf("the log has %d lines of 1000 questions after an answer, want 5", n)
		}
	})
}

// wallet is an Account with a limit.
type wallet struct {
	sync.Mutex
	held, most int64
}

func (w *wallet) Reserve(n int64) error {
	w.Lock()
	defer w.Unlock()
	if w.held+n > w.most {
		return errors.New("no share is left")
	}
	w.held += n
	return nil
}

func (w *wallet) Release(n int64) {
	w.Lock()
	defer w.Unlock()
	w.held -= n
}

// silent is a client that answers no question, on a transport that discards what is sent.
type silent struct{ transport.Transport }

func (silent) Notify(string, []byte)                          {}
func (silent) Send(context.Context, *transport.Request) error { return nil }
func (silent) Ask(ctx context.Context, _ *ServerRequest) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLargeOpenQuestionsTakeTheAccount: open questions with large params take the account of their
// server, which is refused further ones. Small questions take nothing.
func TestLargeOpenQuestionsTakeTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := &wallet{most: 1 << 20}
		b := new(base)
		b.init(authtest.Log(t), Hooks{}, EraLegacy)
		b.transport, b.account = silent{}, account
		ctx, end := context.WithCancel(t.Context())
		f := &flight{id: "1", window: window{"one", "x"}, peer: silent{}, ctx: ctx}
		b.track(f)
		ask := func(id uint64, size int) {
			params := `{"message":"` + strings.Repeat("x", size-14) + `"}`
			b.serverRequest(f, &jsonrpc.Message{ID: jsonrpc.NumberID(id), Method: "sampling/createMessage", Params: []byte(params)})
		}
		for i := range uint64(8) {
			ask(i, 256<<10)
		}
		ask(8, 1<<10)
		if len(b.pending) != 5 || account.held != 1<<20 {
			t.Errorf("%d questions are open and take %d bytes, want 4 large ones in 1 MiB and a small one",
				len(b.pending), account.held)
		}
		if n := len(b.outbox); n != 4 {
			t.Errorf("%d questions are refused, want 4", n)
		}
		end()
		b.tasks.Wait()
		if account.held != 0 {
			t.Errorf("%d bytes are taken when no question is open", account.held)
		}
	})
}
