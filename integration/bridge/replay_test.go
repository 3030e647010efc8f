package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// The proxy's own event ids: how a legacy client takes up the stream of a call that broke off
// (2025-11-25, basic/transports#resumability-and-redelivery).

// tape is an event stream with all that is beside the messages.
type tape struct {
	events *jsonrpc.EventReader
	drop   func() // breaks the connection
}

// play makes a request whose answer is an event stream.
func play(t *testing.T, c *harness.Talker, request func(context.Context) *http.Request) *tape {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	t.Cleanup(cancel)
	answer, err := http.DefaultClient.Do(request(ctx))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		t.Fatalf("status %d, %s, want an event stream", answer.StatusCode, b)
	}
	return &tape{jsonrpc.NewEventReader(answer.Body, 64<<20), func() { cancel(); answer.Body.Close() }}
}

// playCall makes a call of the tool progress, whose steps wait for a gate.
func playCall(t *testing.T, c *harness.Talker, q harness.Query) *tape {
	t.Helper()
	q.ID, q.Meta = fmt.Sprint(c.IDs.Add(1)), `"progressToken":"p"`
	return play(t, c, func(ctx context.Context) *http.Request { return c.Request(t, ctx, q) })
}

// resume takes up a stream after an event.
func resume(t *testing.T, c *harness.Talker, after string) *tape {
	t.Helper()
	return play(t, c, func(ctx context.Context) *http.Request {
		r, err := http.NewRequestWithContext(ctx, "GET", c.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Last-Event-ID", after)
		c.Own(r.Header)
		return r
	})
}

// next returns the next event, or false at the end of the stream. It passes over the message of Junction that a
// call waits for its server, which a slow machine may add.
func (p *tape) next(t *testing.T) (e jsonrpc.Event, ok bool) {
	t.Helper()
	e, err := p.events.Next()
	for err == nil && bytes.Contains(e.Data, []byte(`"logger":"junction","data":"the call waits: Junction `)) {
		e, err = p.events.Next()
	}
	if err == io.EOF {
		return e, false
	} else if err != nil {
		t.Fatalf("read the stream: %v", err)
	}
	e.Data = bytes.Clone(e.Data)
	return e, true
}

// wantStep wants the next event to be the progress of that step, and returns its id.
func (p *tape) wantStep(t *testing.T, n int) (id string) {
	t.Helper()
	e, ok := p.next(t)
	if !ok || !strings.Contains(string(e.Data), fmt.Sprintf(`"message":"step %d"`, n)) {
		t.Fatalf("got %q, want step %d", e.Data, n)
	}
	return e.ID
}

// skipFirst takes the empty event that a stream begins with in 2025-11-25.
func (p *tape) skipFirst(t *testing.T, c *harness.Talker) (id string) {
	t.Helper()
	if c.Version < "2025-11-25" {
		return ""
	}
	e, ok := p.next(t)
	if !ok || e.ID == "" || len(e.Data) > 0 {
		t.Fatalf("the stream begins with %+v, want an event with an id and nothing in it", e)
	}
	return e.ID
}

func TestProtocolReplayTakesUpAStream(t *testing.T) {
	harness.Waits(t)
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		for _, up := range harness.Eras {
			harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
				s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
				c := harness.TalkAs(t, j.URL, p.Client, version, `{}`)
				c.Succeed(t, "up__echo", `{}`) // so that the server is there whose gate is opened
				s.OpenGate(t, "g")
				stream := playCall(t, c, harness.Called("up__progress", `{"n":3,"gate":"g"}`))
				stream.skipFirst(t, c)
				first := stream.wantStep(t, 1)
				if first == "" {
					t.Fatal("the event has no id")
				}
				stream.drop()
				s.OpenGate(t, "g")
				again := resume(t, c, first)
				second := again.wantStep(t, 2)
				s.OpenGate(t, "g")
				third := again.wantStep(t, 3)
				end, ok := again.next(t)
				if !ok || !strings.Contains(string(end.Data), `"result":{`) {
					t.Fatalf("got %q, want the answer", end.Data)
				}
				if e, ok := again.next(t); ok {
					t.Errorf("after the answer came %q", e.Data)
				}
				ids := map[string]bool{first: true, second: true, third: true, end.ID: true, "": true}
				if len(ids) != 5 {
					t.Errorf("the ids %q, %q, %q and %q are not different", first, second, third, end.ID)
				}
				late := resume(t, c, second) // what was taken up once can be taken up again
				late.wantStep(t, 3)
				if e, ok := late.next(t); !ok || string(e.Data) != string(end.Data) || e.ID != end.ID {
					t.Errorf("got %q as %s, want the answer once more", e.Data, e.ID)
				}
				for _, r := range s.Received() {
					if r.Message.Method == "notifications/cancelled" || r.Verb == "CLOSE" && r.Message.Method == "tools/call" {
						t.Errorf("the upstream received %s %s: a broken connection is no cancellation", r.Verb, r.Body)
					}
				}
			})
		}
	}
}

// TestProtocolReplayFirstEvent holds that only clients which know of it get an event with nothing
// in it, and that who knows no ids gets none.
func TestProtocolReplayFirstEvent(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraModern, Transport: "http"}
	_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
	for _, version := range harness.LegacyVersions {
		t.Run(version, func(t *testing.T) {
			c := harness.TalkAs(t, j.URL, p.Client, version, `{}`)
			stream := playCall(t, c, harness.Called("up__progress", `{"n":1}`))
			if first := stream.skipFirst(t, c); version == "2025-11-25" {
				again := resume(t, c, first)
				again.wantStep(t, 1)
			}
			if id := stream.wantStep(t, 1); (id != "") != (version > "2024-11-05") {
				t.Errorf("the event of a client of %s has the id %q", version, id)
			}
		})
	}
	t.Run("modern", func(t *testing.T) {
		stream := playCall(t, harness.Talk(t, j.URL, client.EraModern), harness.Called("up__progress", `{"n":1}`))
		if id := stream.wantStep(t, 1); id != "" {
			t.Errorf("the event has the id %q, which that era does not know", id)
		}
	})
}

// TestProtocolReplayOnlyOfItsOwn has several streams, of which each brings what is its own, and to
// its own session alone.
func TestProtocolReplayOnlyOfItsOwn(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraModern, Transport: "http"}
	s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
	c, other := j.Talk(t), j.Talk(t)
	var streams []*tape
	var last []string
	for i := range 2 {
		gate := fmt.Sprint("g", i)
		s.OpenGate(t, gate)
		stream := playCall(t, c, harness.Called("up__progress", fmt.Sprintf(`{"n":%d,"gate":%q}`, i+2, gate)))
		stream.skipFirst(t, c)
		last = append(last, stream.wantStep(t, 1))
		streams = append(streams, stream)
	}
	for i, stream := range streams {
		stream.drop()
		for range 2 {
			s.OpenGate(t, fmt.Sprint("g", i))
		}
	}
	for i := range streams {
		again := resume(t, c, last[i])
		for step := range i + 1 {
			again.wantStep(t, step+2)
		}
		if e, ok := again.next(t); !ok || !strings.Contains(string(e.Data), `"result":`) {
			t.Errorf("got %q, want the answer of call %d", e.Data, i)
		}
	}
	for i, id := range []string{last[0], "junk", last[0] + "0", "-1"} {
		if got := firstHeard(t, other, id,
			func() { s.Set(t, "tools/list", harness.Definitions("progress", "big", fmt.Sprint("n", i))) }); got != "" &&
			!strings.Contains(got, "list_changed") {
			t.Errorf("with the id %q another session got %q", id, got)
		}
	}
}

// firstHeard returns the first message on the stream that a session opens after an event, when
// something has happened that all sessions hear of; "" when the stream ends.
func firstHeard(t *testing.T, c *harness.Talker, after string, happen func()) string {
	t.Helper()
	stream := resume(t, c, after)
	defer stream.drop()
	happen()
	for {
		e, ok := stream.next(t)
		if !ok || len(e.Data) > 0 {
			return string(e.Data)
		}
	}
}

// TestProtocolReplayOfAQuestion has the client be away when it is asked.
func TestProtocolReplayOfAQuestion(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			c := j.Talk(t)
			stream := playCall(t, c, harness.Asking(harness.AskForm, harness.AskRoots))
			stream.skipFirst(t, c)
			first, ok := stream.next(t)
			if !ok || !strings.Contains(string(first.Data), `"elicitation/create"`) {
				t.Fatalf("got %q, want a question", first.Data)
			}
			stream.drop()
			m, err := jsonrpc.Parse(first.Data, 100)
			if err != nil {
				t.Fatal(err)
			}
			c.Respond(t, m.ID, harness.Accepted)
			again := resume(t, c, first.ID)
			second, ok := again.next(t)
			if !ok || !strings.Contains(string(second.Data), `"roots/list"`) {
				t.Fatalf("got %q, want the second question", second.Data)
			}
			if m, err = jsonrpc.Parse(second.Data, 100); err != nil {
				t.Fatal(err)
			}
			c.Respond(t, m.ID, harness.Rooted)
			end, ok := again.next(t)
			if !ok || !strings.Contains(string(end.Data), `"answers":[{`+harness.Accepted+`},{`+harness.Rooted+`}]`) {
				t.Errorf("got %q, want the answers", end.Data)
			}
		})
	}
}

// TestProtocolReplayIsBounded holds that what a client may come back for is not kept without end,
// and that this harms nobody who stays.
func TestProtocolReplayIsBounded(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraModern, Transport: "http"}
	s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
	c := j.Talk(t)
	s.Listened(t, p)
	t.Run("bytes", func(t *testing.T) {
		const steps = 30
		stream := playCall(t, c, harness.Called("up__progress", fmt.Sprintf(`{"n":%d,"params":{"x":"%0200000d"}}`, steps, 0)))
		first := stream.skipFirst(t, c)
		for n := range steps {
			stream.wantStep(t, n+1)
		}
		if e, ok := stream.next(t); !ok || !strings.Contains(string(e.Data), `"result":`) {
			t.Errorf("got %.100q, want the answer", e.Data)
		}
		if got := firstHeard(t, c, first,
			func() { s.Set(t, "tools/list", harness.Definitions("progress", "one")) }); strings.Contains(got, "step") {
			t.Errorf("%d MB were kept", steps/5)
		}
	})
	t.Run("streams", func(t *testing.T) {
		var ids []string
		for range 100 {
			stream := playCall(t, c, harness.Called("up__progress", `{"n":1}`))
			ids = append(ids, stream.skipFirst(t, c))
			stream.wantStep(t, 1)
			if _, ok := stream.next(t); !ok {
				t.Fatal("no answer")
			}
		}
		if got := firstHeard(t, c, ids[0],
			func() { s.Set(t, "tools/list", harness.Definitions("progress", "two")) }); strings.Contains(got, "step") {
			t.Errorf("after %d streams the first one is still kept: %q", len(ids), got)
		}
		if got := firstHeard(t, c, ids[len(ids)-1], func() {}); !strings.Contains(got, "step") {
			t.Errorf("the last stream is not kept: %q", got)
		}
	})
}

// TestReplaysEndWithTheirKey revokes the key of somebody who has taken up the stream of a call
// again: no event follows.
func TestReplaysEndWithTheirKey(t *testing.T) {
	harness.Waits(t)
	harness.RunPair(t, client.EraLegacy, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "gone")
		w := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard}
		j := harness.Start(t, p, w)
		j.Offers(t, "up")
		c := j.As(t, keys["gone"])
		c.Succeed(t, "up__echo", `{}`)
		s.OpenGate(t, "g")
		stream := playCall(t, c, harness.Called("up__progress", `{"n":3,"gate":"g"}`))
		stream.skipFirst(t, c)
		first := stream.wantStep(t, 1)
		stream.drop()
		again := resume(t, c, first)
		s.OpenGate(t, "g")
		again.wantStep(t, 2)
		w.Guard, _ = harness.Keyring(t, "other")
		j.Apply(w)
		s.OpenGate(t, "g")
		if e, ok := again.next(t); ok {
			t.Errorf("the stream of a key that was revoked says %s", e.Data)
		}
	})
}
