package upstream

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// quietClient is a client that asked for no progress, and takes its time to answer a question.
type quietClient struct {
	thinks time.Duration
	log    atomic.Int64 // log messages
}

func (q *quietClient) Notify(string, []byte) { q.log.Add(1) }

func (q *quietClient) Ask(ctx context.Context, _ *client.ServerRequest) ([]byte, error) {
	select {
	case <-time.After(q.thinks):
		return []byte(`{"action":"decline"}`), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// quietCall is a call whose client asked for no progress.
func quietCall(name, args string) *Call {
	return toolCall(name, args, func(c *Call) { c.Peer = new(quietClient) })
}

// TestForeignServerThatAnswersPingsIsNotSilent calls tools that work for longer than the limit of
// silence and report no progress. One ping serves all calls.
func TestForeignServerThatAnswersPingsIsNotSilent(t *testing.T) {
	unknown := upstreamtest.Rule{Method: "ping", Error: []byte(`{"code":-32601,"message":"Method not found"}`)}
	refused := upstreamtest.Rule{Method: "ping", Status: 400, Body: "unknown method", Header: map[string]string{"Content-Type": "text/plain"}, Skip: 1}
	for _, test := range []struct {
		name  string
		rules []upstreamtest.Rule
		after time.Duration // in which the server has its answer
		pings int
	}{
		{"short", nil, 29 * time.Second, 0},
		{"answers", nil, 160 * time.Second, 5},
		{"does not know the method", []upstreamtest.Rule{unknown}, 160 * time.Second, 5},
		{"refuses the second ping without ending the session", []upstreamtest.Rule{refused}, 80 * time.Second, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: test.rules}, Config{})
				settle(time.Second)
				args := `{"ms":` + string(jsonrpc.NumberID(uint64(test.after.Milliseconds()))) + `}`
				one, two := begun(r.Upstream, quietCall("slow", args)), begun(r.Upstream, quietCall("slow", args))
				for _, done := range []<-chan result{one, two} {
					if a := <-done; a.err != nil || a.took != test.after {
						t.Errorf("Call = %s, %v after %v, want an answer after %v", a.text, a.err, a.took, test.after)
					}
				}
				if n := r.count("ping"); n != test.pings {
					t.Errorf("the server received %d pings, want %d", n, test.pings)
				}
				if n := r.count("initialize"); n != 1 {
					t.Errorf("the server was connected %d times", n)
				}
			})
		})
	}
}

// TestForeignSilenceEndsACall lists the calls that end all the same: at the limit of silence
// without a sign of life, and at the hard cap with one.
func TestForeignSilenceEndsACall(t *testing.T) {
	const silence, whole = time.Minute, 10 * time.Minute
	deaf := []upstreamtest.Rule{{Method: "ping", Hang: true}}
	for _, test := range []struct {
		name, era string
		rules     []upstreamtest.Rule
		after     time.Duration
		pings     int
	}{
		{"a server that answers pings", "legacy", nil, whole, 19},
		{"a server that is busy with the call", "legacy", deaf, silence, 1},
		{"the modern era", "modern", nil, silence, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: test.era, Rules: test.rules, JSONAnswers: true}, Config{})
				settle(time.Second)
				call := begun(r.Upstream, quietCall("hang", `{}`))
				settle(test.after - time.Millisecond)
				pings := r.count("ping") // before the one that follows a call without an answer
				a := <-call
				mustFail(t, a, client.KindTimeout)
				if a.took != test.after {
					t.Errorf("the call took %v, want %v: %v", a.took, test.after, a.err)
				}
				if pings != test.pings {
					t.Errorf("the server received %d pings, want %d", pings, test.pings)
				}
				settle(time.Second)
				mustCall(t, r.Upstream, quietCall("echo", `{}`))
			})
		})
	}
}

// TestForeignBusyServerGetsOnePingAtATime has calls come one after the other while a ping is open.
// The ping stays open for as long as one of them can use it, so that its late answer keeps them
// alive.
func TestForeignBusyServerGetsOnePingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := upstreamtest.Rule{Method: "ping", Hang: true, Times: 1}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{late}}, Config{Era: client.EraLegacy})
		settle(time.Second)
		first := begun(r.Upstream, quietCall("hang", `{}`))
		settle(20 * time.Second)
		second := begun(r.Upstream, quietCall("slow", `{"ms":100000}`))
		settle(30*time.Second + time.Millisecond) // in the middle of the second call's silence
		if n := r.count("ping"); n != 1 {
			t.Errorf("the server received %d pings while one is open, want 1", n)
		}
		mustFail(t, <-first, client.KindTimeout)
		settle(time.Second)
		if n := r.count("ping"); n != 2 { // a ping follows a call without an answer
			t.Errorf("the server received %d pings while the second call can use the first one, want 2", n)
		}
		a := <-second
		mustFail(t, a, client.KindTimeout)
		if a.took != time.Minute {
			t.Errorf("the second call took %v, want 1m", a.took)
		}
		if a := <-begun(r.Upstream, quietCall("slow", `{"ms":100000}`)); a.err != nil { // the next ping is another one
			t.Errorf("Call = %v after an earlier ping was given up", a.err)
		}
	})
}

// TestForeignPersonWhoThinksIsNotPinged has a person think for minutes about a question. The server
// waits for us, and is not asked whether it is alive.
func TestForeignPersonWhoThinksIsNotPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "legacy"}, Config{})
		settle(time.Second)
		c := quietCall("ask", `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`)
		c.Peer = &quietClient{thinks: 20 * time.Minute}
		if a := <-begun(r.Upstream, c); a.err != nil || a.took < 20*time.Minute {
			t.Errorf("Call = %s, %v after %v, want an answer when the person has thought", a.text, a.err, a.took)
		}
		if n := r.count("ping"); n != 0 {
			t.Errorf("the server received %d pings while a person thought", n)
		}
	})
}

// TestForeignBytesOfTheResponseAreSignsOfLife has a modern server keep the stream of a call open
// with comments, as servers do whose tools report nothing.
func TestForeignBytesOfTheResponseAreSignsOfLife(t *testing.T) {
	for _, test := range []struct {
		name  string
		every time.Duration
		times int
		dies  bool // the server sends nothing after the comments
		after time.Duration
	}{
		{"comments", 45 * time.Second, 5, false, 225 * time.Second},
		{"comments that end", 45 * time.Second, 3, true, 195 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := upstreamtest.New(upstreamtest.Script{Era: "modern"})
				t.Cleanup(server.Close)
				_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Mcp-Method") != "tools/call" {
						server.Handler().ServeHTTP(w, r)
						return
					}
					body, _ := io.ReadAll(r.Body)
					m, _ := jsonrpc.Parse(body, 10)
					w.Header().Set("Content-Type", "text/event-stream")
					for range test.times {
						time.Sleep(test.every)
						io.WriteString(w, ": still here\n\n")
						http.NewResponseController(w).Flush()
					}
					if test.dies {
						<-r.Context().Done()
						return
					}
					w.Write(jsonrpc.AppendEvent(nil, "", append(append(jsonrpc.ResponseHead(nil, m.ID), `{"content":[]}`...), '}')))
				}))
				u := startOver(rt, Config{URL: "http://server/mcp"}, Options{Version: "0", Log: authtest.Log(t)})
				t.Cleanup(u.Close)
				settle(time.Second)
				a := <-begun(u, quietCall("echo", `{}`))
				if test.dies {
					mustFail(t, a, client.KindTimeout)
				} else if a.err != nil {
					t.Errorf("Call = %v, want the answer", a.err)
				}
				if a.took != test.after {
					t.Errorf("the call took %v, want %v", a.took, test.after)
				}
			})
		})
	}
}

// TestForeignGivenSilenceEndsACall: a limit that the file gives counts the silence of the call. A
// server that answers pings, logs or keeps the stream open does not prolong the call; progress does.
func TestForeignGivenSilenceEndsACall(t *testing.T) {
	rule := func(d time.Duration) Rules { return Rules{{Glob: "ha*", Rule: Rule{Timeout: d}}} }
	for _, test := range []struct {
		name     string
		config   Config
		defaults Defaults
		call     string
		args     string
		after    time.Duration
		ok       bool
	}{
		{"at the upstream", Config{Timeout: 2 * time.Second}, Defaults{}, "hang", `{}`, 2 * time.Second, false},
		{"at the tool", Config{Tools: rule(3 * time.Second)}, Defaults{}, "hang", `{}`, 3 * time.Second, false},
		{"of the defaults", Config{}, Defaults{Timeout: 4 * time.Second}, "hang", `{}`, 4 * time.Second, false},
		{"at another tool", Config{Tools: rule(time.Second)}, Defaults{}, "slow", `{"ms":90000}`, 90 * time.Second, true},
		{"with progress", Config{Timeout: 2 * time.Second}, Defaults{}, "progress", `{"n":5,"ms":1500}`,
			7500 * time.Millisecond, true},
		{"of a server with limits of its own", Config{OwnLimits: true}, Defaults{}, "slow", `{"ms":300000}`,
			5 * time.Minute, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := upstreamtest.Script{Era: "legacy", JSONAnswers: test.call != "progress"}
				r := newRig(t, script, test.config, func(o *Options) { o.Defaults = test.defaults })
				settle(time.Second)
				a := <-begun(r.Upstream, quietCall(test.call, test.args))
				if test.ok && a.err != nil || a.took != test.after {
					t.Errorf("the call ended after %v with %v, want %v", a.took, a.err, test.after)
				}
				if !test.ok {
					mustFail(t, a, client.KindTimeout)
				}
			})
		})
	}
}

// progressClient is a client that asked for progress.
type progressClient struct {
	quietClient
	progress atomic.Int64 // notifications
}

func (p *progressClient) Notify(method string, params []byte) {
	if method == "notifications/progress" {
		p.progress.Add(1)
	}
}

// TestProgressProlongsACallUpToItsMaximum: progress lets a call live longer than its timeout, and no longer
// than its maximum. The client sees the progress, and the server learns that the call is over.
func TestProgressProlongsACallUpToItsMaximum(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps string
		after time.Duration
		seen  int64
		ok    bool
	}{
		{"ends by itself", "5", 7500 * time.Millisecond, 5, true},
		{"is endless", "1000000", 10 * time.Second, 6, false},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(test.name+"/"+era, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, upstreamtest.Script{Era: era}, Config{Timeout: 2 * time.Second, MaxTimeout: 10 * time.Second})
					settle(time.Second)
					peer := new(progressClient)
					a := <-begun(r.Upstream, toolCall("progress", `{}`, func(c *Call) {
						var err error
						c.Peer = peer
						c.Params, err = raw.Parse([]byte(`{"name":"x","arguments":{"n":` + test.steps +
							`,"ms":1500},"_meta":{"progressToken":"mine"}}`))
						if err != nil {
							t.Fatal(err)
						}
					}))
					synctest.Wait()
					if test.ok && a.err != nil || a.took != test.after || peer.progress.Load() != test.seen {
						t.Errorf("the call ended after %v and %d notifications with %v, want %v and %d", a.took, peer.progress.Load(), a.err,
							test.after, test.seen)
					}
					if test.ok {
						return
					}
					mustFail(t, a, client.KindTimeout)
					told := r.count("notifications/cancelled")
					for _, record := range r.server.Received() {
						if record.Verb == "CLOSE" && record.Message.Method == "tools/call" {
							told++
						}
					}
					if told == 0 {
						t.Error("the server has not learned that the call is over")
					}
				})
			})
		}
	}
}
