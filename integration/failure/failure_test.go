package failure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// failing is a proxy over two upstreams: bad, which a test breaks, and good, which must not notice.
type failing struct {
	*harness.Stand
	*harness.Caller
	journal *upstreamtest.Journal
	config  upstream.Config // of bad
}

// eachFailing runs f with bad on every wire and in every era it has. Rules limit the time of some
// of bad's tools.
func eachFailing(t *testing.T, rules upstream.Rules, f func(t *testing.T, x failing, up harness.Way)) {
	for _, up := range harness.Ways() {
		if up.Transport == "http JSON" {
			continue // what differs is how an answer is framed
		}
		t.Run(up.Era+" "+up.Transport, func(t *testing.T) {
			config, journal := harness.MustScripted(t, up.Transport,
				upstreamtest.Script{Era: up.Era, Rules: []upstreamtest.Rule{harness.SilentToPings}})
			config.Timeout = harness.Patience
			config.Tools = rules
			x := mustFailing(t, config, proxy.Limits{Message: 1 << 20})
			x.journal = journal
			f(t, x, up)
			x.mustRecover(t)
		})
	}
}

func mustFailing(t *testing.T, config upstream.Config, limits proxy.Limits, unready ...string) failing {
	t.Helper()
	_, good := upstreamtest.Start(t, upstreamtest.Script{})
	s := harness.MustStand(t, limits, map[string]upstream.Config{"bad": config, "good": {URL: good}}, unready...)
	return failing{Stand: s, Caller: harness.MustCaller(t, s.URL, harness.LegacyEra), config: config}
}

// mustRecover expects that the next calls work, without anything done about it.
func (x failing) mustRecover(t *testing.T) {
	t.Helper()
	x.MustCall(t, "good__echo", `{"a":1}`, `{\"a\":1}`)
	x.MustCall(t, "bad__echo", `{"a":2}`, `{\"a\":2}`)
}

// mustGiveReason ends a process until the reason for it has the words. The status of a process is waited
// for only a moment, which a busy machine may miss.
func (x failing) mustGiveReason(t *testing.T, words string, end func()) {
	t.Helper()
	for range 10 {
		end()
		x.mustRecover(t)
		if strings.Contains(strings.Join(x.Reasons("bad"), " "), words) {
			return
		}
	}
	x.MustSay(t, "bad", words)
}

func (x failing) mustAwait(t *testing.T, match func(upstreamtest.Record) bool) upstreamtest.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	r, err := x.journal.Await(ctx, match)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFailureKilled(t *testing.T) {
	harness.Waits(t)
	for _, era := range harness.BothEras() {
		t.Run(era, func(t *testing.T) {
			config, journal := harness.MustScripted(t, "stdio", upstreamtest.Script{Era: era})
			x := mustFailing(t, config, proxy.Limits{})
			x.journal = journal
			seen := 0
			x.mustGiveReason(t, "killed", func() {
				var calls sync.WaitGroup
				calls.Go(func() { x.MustFail(t, "bad__gate", `{"gate":"g"}`, "lost") })
				n := 0
				pid := x.mustAwait(t, func(r upstreamtest.Record) bool {
					if upstreamtest.Method("tools/call")(r) && bytes.Contains(r.Message.Params, []byte("gate")) {
						n++
					}
					return n > seen
				}).PID
				seen++
				x.MustCall(t, "good__echo", `{}`, "{}")
				child, err := os.FindProcess(pid)
				if err == nil {
					err = child.Kill()
				}
				if err != nil {
					t.Fatal(err)
				}
				calls.Wait()
			})
		})
	}
}

// TestFailureWatchdog kills the watchdog. Calls in progress do not notice, and the next child that
// is started gets a new watchdog.
func TestFailureWatchdog(t *testing.T) {
	harness.Alone(t, "it looks for the watchdog of this process")
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says which children there are")
	}
	before := process.ChildPIDs(os.Getpid())
	configs := map[string]upstream.Config{}
	for _, name := range []string{"bad", "good"} {
		configs[name], _ = harness.MustScripted(t, "stdio", upstreamtest.Script{})
	}
	x := failing{Stand: harness.MustStand(t, proxy.Limits{}, configs)}
	x.Caller = harness.MustCaller(t, x.URL, harness.LegacyEra)
	mustWatchdog := func(other int) int {
		t.Helper()
		var all []int
		for _, pid := range process.ChildPIDs(os.Getpid()) {
			if name, lives := process.Living(pid); lives && name == "sh" && !slices.Contains(before, pid) {
				all = append(all, pid)
			}
		}
		if len(all) != 1 || all[0] == other {
			t.Fatalf("the watchdogs are %d, want one, and not %d", all, other)
		}
		return all[0]
	}
	watchdog := mustWatchdog(0)
	process.KillGroup(watchdog)
	x.mustRecover(t)
	x.MustFail(t, "bad__die", `{"code":7}`, "lost")
	x.mustRecover(t)
	watchdog = mustWatchdog(watchdog)
	x.MustFail(t, "bad__die", `{"code":7}`, "lost")
	x.mustRecover(t)
	if got := mustWatchdog(0); got != watchdog {
		t.Errorf("the watchdog is %d after a child has died, want %d still", got, watchdog)
	}
}

func TestFailureDied(t *testing.T) {
	harness.Waits(t)
	eachFailing(t, nil, func(t *testing.T, x failing, up harness.Way) {
		die := func() { x.MustFail(t, "bad__die", `{"code":7}`, "lost") }
		if up.Transport == "stdio" {
			x.mustGiveReason(t, "7", die)
		} else {
			die()
		}
	})
}

func TestFailureHangs(t *testing.T) {
	harness.Waits(t)
	short := upstream.Rules{{Glob: "hang", Rule: upstream.Rule{Timeout: 300 * time.Millisecond}}}
	eachFailing(t, short, func(t *testing.T, x failing, up harness.Way) {
		x.mustRecover(t) // the connection is there, and does not take the time of the call
		for _, late := range []bool{false, true} {
			x.MustFail(t, "bad__hang", fmt.Sprintf(`{"late":%t}`, late), "timeout")
			x.mustRecover(t)
		}
		if up.Transport == "http" && up.Era == harness.ModernEra {
			x.mustAwait(t, upstreamtest.Verb("CLOSE"))
		} else {
			x.mustAwait(t, upstreamtest.Method("notifications/cancelled"))
		}
	})
}

func TestFailureHalf(t *testing.T) {
	harness.Waits(t)
	short := upstream.Rules{{Glob: "half", Rule: upstream.Rule{Timeout: 2 * time.Second}}} // must end before that, too
	eachFailing(t, short, func(t *testing.T, x failing, up harness.Way) {
		x.MustFail(t, "bad__half", `{"then":"die"}`, "lost")
		if up.Transport == "http" { // elsewhere nothing that follows half a frame could be read
			x.MustFail(t, "bad__half", `{}`, "timeout")
		}
	})
}

func TestFailureFloods(t *testing.T) {
	harness.Waits(t)
	eachFailing(t, nil, func(t *testing.T, x failing, up harness.Way) {
		for _, what := range []string{"log", "garbage", "stderr"} {
			if what == "stderr" && up.Transport != "stdio" {
				continue
			}
			x.MustCall(t, "bad__flood", `{"n":5000,"what":"`+what+`"}`, "flooded")
			x.MustCall(t, "good__echo", `{}`, "{}")
		}
	})
}

func TestFailureEndless(t *testing.T) {
	harness.Waits(t)
	short := upstream.Rules{{Glob: "endless", Rule: upstream.Rule{MaxTimeout: 300 * time.Millisecond}}}
	eachFailing(t, short, func(t *testing.T, x failing, up harness.Way) {
		x.MustFail(t, "bad__endless", `{"ms":1}`, "timeout")
		if up.Transport == "http" {
			x.MustFail(t, "bad__endless", `{"what":"comments","ms":1}`, "timeout")
		}
		x.MustCall(t, "good__echo", `{}`, "{}")
	})
}

// TestFailureHuge has answers beyond limits.message: one of a gigabyte, and one line without an
// end.
func TestFailureHuge(t *testing.T) {
	harness.Alone(t, "it measures the heap of this process")
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var most atomic.Uint64
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		again := time.NewTicker(10 * time.Millisecond)
		defer again.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapInuse))
			select {
			case <-again.C:
			case <-over:
				return
			}
		}
	})
	// without a short time: a server that stops in the middle of a line sends nothing more
	eachFailing(t, nil, func(t *testing.T, x failing, up harness.Way) {
		size := 1 << 30
		if up.Transport == "stdio" {
			size = 64 << 20 // all of it is read, to find where the next message begins; elsewhere the connection is cut
		}
		for _, call := range []struct{ tool, arguments string }{{"bad__big", fmt.Sprintf(`{"n":%d}`, size)},
			{"bad__endless", `{"what":"line"}`}} {
			if up.Transport == "stdio" && call.tool == "bad__endless" {
				continue // a line without end is the last thing that a process says
			}
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			got, err := x.Call(ctx, call.tool, call.arguments)
			cancel()
			if err != nil || !strings.Contains(got.Answer, `"kind":"`) || strings.Contains(got.Answer, `"kind":"timeout"`) {
				t.Errorf("%s = %.300s, %v; want an error of ours, and not because of the time", call.tool, got.Answer, err)
			}
			x.MustCall(t, "good__echo", `{}`, "{}")
		}
	})
	close(over)
	watcher.Wait()
	if grown := int64(most.Load()) - int64(before.HeapInuse); grown > 300<<20 {
		t.Errorf("the heap grew by %d MiB, want at most 300", grown>>20)
	}
}

func TestFailureRestart(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Ways() {
		if up.Transport == "stdio" || up.Transport == "http JSON" {
			continue
		}
		t.Run(up.Era+" "+up.Transport, func(t *testing.T) {
			servers := 0
			handler := func() http.Handler {
				server := upstreamtest.New(upstreamtest.Script{Era: up.Era})
				t.Cleanup(server.Close)
				if up.Transport == "sse" {
					return server.SSEHandler()
				}
				// Real ids are random; these count, and the next server's first must not be the
				// last one's.
				for range 2 * servers {
					req := httptest.NewRequest("POST", "/mcp",
						strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`))
					req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
					server.Handler().ServeHTTP(httptest.NewRecorder(), req)
				}
				server.EndSessions()
				servers++
				return server.Handler()
			}
			url, stop := upstreamtest.Serve(t, "127.0.0.1:0", handler())
			x := mustFailing(t, upstream.Config{URL: url + "/mcp"}, proxy.Limits{})
			x.mustRecover(t)
			stop()
			_, stop = upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), handler())
			// lost, if it was sent on a connection that was just closed
			if _, err := x.Call(t.Context(), "bad__echo", `{}`); err != nil {
				t.Error(err)
			}
			x.mustRecover(t)
			stop()        // and now it stays away for a while
			for range 2 { // what failed may be the connection that was, which is then lost
				if _, err := x.Call(t.Context(), "bad__echo", `{}`); err != nil {
					t.Error(err)
				}
			}
			x.MustFail(t, "bad__echo", `{}`, "unavailable")
			x.MustSay(t, "bad", "refused")
			if status := x.MustReach(t, "bad", upstream.StateRetrying); status.Err == "" {
				t.Error("Status().Err is empty of an upstream that is away")
			}
			x.MustCall(t, "good__echo", `{}`, "{}")
			upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), handler())
			x.mustRecover(t)
			if status := x.MustReach(t, "bad", upstream.StateReady); status.Err != "" {
				t.Errorf("Status().Err = %q of a ready upstream", status.Err)
			}
		})
	}
}

// TestFailureOddAnswers has a server send HTTP responses that are no MCP answers: to one call, and
// then to every request from the start.
func TestFailureOddAnswers(t *testing.T) {
	harness.Waits(t)
	var strayed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	defer other.Close()
	for _, test := range []struct {
		name, says string
		rule       upstreamtest.Rule
	}{
		{"500", "500", upstreamtest.Rule{Status: 500, Body: "oops"}},
		{"page", "text/html",
			upstreamtest.Rule{Status: 200, Header: map[string]string{"Content-Type": "text/html"},
				Body: "<html><title>Sign in</title></html>"}},
		{"redirect", "redirects to " + other.URL,
			upstreamtest.Rule{Status: 307, Header: map[string]string{"Location": other.URL + "/mcp"}}},
	} {
		for _, era := range harness.BothEras() {
			rule := test.rule
			t.Run(test.name+" once "+era, func(t *testing.T) {
				server, url := upstreamtest.Start(t, upstreamtest.Script{Era: era})
				x := mustFailing(t, upstream.Config{URL: url, Headers: map[string]string{"Authorization": "Bearer canary-secret"}},
					proxy.Limits{})
				rule.Method, rule.Times = "tools/call", 1
				server.AddRules(rule)
				if got := x.MustFail(t, "bad__echo", `{}`, "invalid"); !strings.Contains(got, test.says) {
					t.Errorf("the client reads %s, want something with %q", got, test.says)
				}
				x.mustRecover(t)
			})
			t.Run(test.name+" always "+era, func(t *testing.T) {
				broken, url := upstreamtest.Start(t, upstreamtest.Script{Era: era})
				rule.Method, rule.Times = "*", 0
				broken.AddRules(rule)
				x := mustFailing(t, upstream.Config{URL: url}, proxy.Limits{}, "bad")
				if status := x.MustReach(t, "bad", upstream.StateRetrying); !strings.Contains(status.Err, test.says) {
					t.Errorf("Status().Err = %q, want %q in it", status.Err, test.says)
				}
				x.MustCall(t, "good__echo", `{}`, "{}")
			})
		}
	}
	if n := strayed.Load(); n > 0 {
		t.Errorf("%d requests followed a redirect to another origin", n)
	}
}

func TestFailureExitsAtOnce(t *testing.T) {
	harness.Waits(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := mustFailing(t, upstream.Config{Command: []string{program},
		Env: map[string]string{"JUNCTION_ROLE": "no such role"}}, proxy.Limits{}, "bad")
	if status := x.MustReach(t, "bad", upstream.StateRetrying); !strings.Contains(status.Err, "there is no role") {
		t.Errorf("Status().Err = %q, want what the program said", status.Err)
	}
	x.MustCall(t, "good__echo", `{}`, "{}")
}

// TestFailureSlowClients has clients that do not read their answers, and clients that send slowly.
func TestFailureSlowClients(t *testing.T) {
	harness.Waits(t)
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	s := harness.MustStand(t, proxy.Limits{WriteTimeout: 300 * time.Millisecond, Queue: 4},
		map[string]upstream.Config{"up": {URL: url}})
	c := harness.MustCaller(t, s.URL, harness.LegacyEra)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/mcp"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	request := func(body string) string {
		return fmt.Sprintf(
			"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream, application/json\r\nContent-Type: "+
				"application/json\r\n"+
				"Mcp-Session-Id: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", c.Session, len(body), body)
	}
	deaf := dial()
	big := strings.Repeat("x", 1<<20)
	io.WriteString(deaf,
		request(
			`{"jsonrpc":"2.0","id":"deaf","method":"tools/call","params":{"name":"up__progress","_meta":{"progressToken":1},`+
				`"arguments":{"n":20,"params":{"x":"`+big+`"}}}}`))
	bytewise := dial()
	text := request(
		`{"jsonrpc":"2.0","id":"bytewise","method":"tools/call","params":{"name":"up__echo","arguments":{"a":3}}}`)
	for i := range len(text) {
		if _, err := io.WriteString(bytewise, text[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	bytewise.SetReadDeadline(time.Now().Add(harness.Patience))
	if answer, err := io.ReadAll(bytewise); err != nil || !strings.Contains(string(answer), `{\"a\":3}`) {
		t.Errorf("the client that sends bytes gets %q, %v", answer, err)
	}
	c.MustCall(t, "up__echo", `{"a":4}`, `{\"a\":4}`)
	s.MustClose(t, deaf)
	deaf.SetReadDeadline(time.Now().Add(harness.Patience))
	if answer, err := io.ReadAll(deaf); errors.Is(err, os.ErrDeadlineExceeded) ||
		strings.Contains(string(answer), `"id":"deaf"`) {
		t.Errorf("the client that does not read got a whole answer of %d bytes, %v", len(answer), err)
	}
}
