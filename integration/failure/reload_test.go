package failure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestReloadUnderLoad changes the configuration again and again while clients call: no call is
// lost, and an upstream that did not change keeps its connection.
func TestReloadUnderLoad(t *testing.T) {
	harness.Waits(t)
	child := upstreamtest.Command(t, upstreamtest.Script{Era: harness.LegacyEra})
	same, sameURL := upstreamtest.Start(t, upstreamtest.Script{Era: harness.LegacyEra})
	_, changedURL := upstreamtest.Start(t, upstreamtest.Script{})
	_, toggledURL := upstreamtest.Start(t, upstreamtest.Script{})
	configs := func(i int) map[string]upstream.Config {
		all := map[string]upstream.Config{
			"child": {Command: child.Command, Env: child.Env},
			"same":  {URL: sameURL},
			// A harmless change, and one that means another connection.
			"rules":   {URL: changedURL, Timeout: harness.Patience + time.Duration(i)},
			"changed": {URL: changedURL, Headers: map[string]string{"X-Reload": fmt.Sprint(i)}},
		}
		if i%2 == 0 {
			all["toggled"] = upstream.Config{URL: toggledURL}
		}
		return all
	}
	s := harness.MustStand(t, proxy.Limits{}, configs(0))
	var over atomic.Bool
	var calls atomic.Int64
	var clients sync.WaitGroup
	for _, era := range harness.BothEras() {
		for _, tool := range []string{"child__echo", "same__echo", "rules__echo", "changed__echo"} {
			c := harness.MustCaller(t, s.URL, era)
			clients.Go(func() {
				for !over.Load() && !t.Failed() {
					n := calls.Add(1)
					c.MustCall(t, tool, fmt.Sprintf(`{"n":%d}`, n), fmt.Sprintf(`{\"n\":%d}`, n))
				}
			})
		}
	}
	for i := 1; i <= 30; i++ {
		from := calls.Load()
		s.Apply(configs(i))
		for calls.Load() < from+20 && !t.Failed() { // some of them in each world
			c := harness.MustCaller(t, s.URL, harness.ModernEra)
			c.MustCall(t, "same__echo", `{}`, "{}")
		}
	}
	over.Store(true)
	clients.Wait()
	count := func(journal *upstreamtest.Journal, match func(upstreamtest.Record) bool) (n int) {
		for _, r := range journal.Received() {
			if match(r) {
				n++
			}
		}
		return n
	}
	if got := count(&same.Journal, upstreamtest.Method("initialize")); got != 1 {
		t.Errorf("the upstream that did not change was initialized %d times, want once", got)
	}
	if got := count(&child.Journal, upstreamtest.Verb("START")); got != 1 {
		t.Errorf("the process that did not change was started %d times, want once", got)
	}
}

// TestReloadRemoves removes an upstream during its calls: it finishes these calls, and then it
// ends.
func TestReloadRemoves(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Ways() {
		t.Run(up.Era+" "+up.Transport, func(t *testing.T) {
			script := upstreamtest.Script{Era: up.Era, JSONAnswers: up.Transport == "http JSON"}
			_, stays := upstreamtest.Start(t, upstreamtest.Script{})
			var config upstream.Config
			var journal *upstreamtest.Journal
			var release func()
			switch up.Transport {
			case "stdio":
				c := upstreamtest.Command(t, script)
				config, journal, release = upstream.Config{Command: c.Command, Env: c.Env}, &c.Journal, func() { c.Release("g") }
			case "sse":
				server, url := upstreamtest.StartSSE(t, script)
				config, journal, release = upstream.Config{URL: url}, &server.Journal, func() { server.Release("g") }
			default:
				server, url := upstreamtest.Start(t, script)
				config, journal, release = upstream.Config{URL: url}, &server.Journal, func() { server.Release("g") }
			}
			s := harness.MustStand(t, proxy.Limits{}, map[string]upstream.Config{"goes": config, "stays": {URL: stays}})
			c := harness.MustCaller(t, s.URL, harness.LegacyEra)
			var call sync.WaitGroup
			call.Go(func() { c.MustCall(t, "goes__gate", `{"gate":"g"}`, "here it is") })
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			if _, err := journal.Await(ctx, upstreamtest.Method("tools/call")); err != nil {
				t.Fatal(err)
			}
			s.Apply(map[string]upstream.Config{"stays": {URL: stays}})
			if x, err := c.Call(ctx, "goes__echo", `{}`); err != nil ||
				x.Answer != `{"jsonrpc":"2.0","id":`+x.ID+`,"error":{"code":-32602,"message":"Unknown tool: goes__echo"}}` {
				t.Errorf("a call of what is gone = %s, %v; want that the tool is unknown", x.Answer, err)
			}
			c.MustCall(t, "stays__echo", `{}`, "{}")
			release()
			call.Wait()
			if up.Transport == "stdio" {
				if _, err := journal.Await(ctx, upstreamtest.Verb("EXIT")); err != nil {
					t.Errorf("the process has not ended: %v", err)
				}
			}
		})
	}
}
