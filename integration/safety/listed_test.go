package safety

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// guardedJunction is a junction over a server with a guarded and a free client.
func guardedJunction(t *testing.T, p harness.Pair, s *harness.Served, rules string) (*harness.Junction,
	map[string]string) {
	t.Helper()
	guard, keys := harness.Keyring(t, "guarded", "free")
	j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
		Policy: harness.MustPolicy(t, rules)})
	j.Offers(t, "up")
	return j, keys
}

// TestItemsWithoutANameAreNotListed: an item whose name or URI is redacted is in no list and in no
// search, because no client could name it. The others are listed, with redacted descriptions.
func TestItemsWithoutANameAreNotListed(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		j, keys := guardedJunction(t, p, p.Serve(t, leaky()), guardedRules)
		for _, row := range []struct{ method, member, key, unnamed, named string }{
			{"tools/list", "tools", "name", "up__of_" + canary, "up__reused"},
			{"prompts/list", "prompts", "name", "up__of_" + canary, "up__words"},
			{"resources/list", "resources", "uri", "mcp://up/x:of-" + canary, "mcp://up/x:words"},
			{"resources/templates/list", "resourceTemplates", "uriTemplate", "mcp://up/x:of-" + canary + "/{x}", "mcp://up/y:{x}"},
		} {
			names := func(key string) (names []string) {
				items, err := raw.Elements([]byte(harness.Member(j.As(t, keys[key]).Must(t, row.method, ""), row.member)))
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range items {
					names = append(names, harness.Text(t, item, row.key))
				}
				return names
			}
			free, guarded := names("free"), names("guarded")
			if !slices.Contains(free, row.unnamed) || len(guarded) != len(free)-1 ||
				!slices.Contains(guarded, row.named) || strings.Contains(strings.Join(guarded, " "), "redacted") {
				t.Errorf("%s lists %q without redaction and %q with it", row.method, free, guarded)
			}
		}
		guarded := j.As(t, keys["guarded"])
		tools, _ := guarded.List(t, "")
		for _, tool := range tools {
			if harness.Text(t, tool, "name") == "up__reused" &&
				harness.Member(tool, "description") != `"[redacted: canary]"` {
				t.Errorf("the tool is listed as %s", tool)
			}
		}
		// a redacted URI fails clearly; the item itself is not denied
		if m := guarded.Ask(t, "resources/read", `"uri":"mcp://up/x:of-redacted-canary"`); m.Error == nil {
			t.Errorf("a redacted URI is read: %s", m.Result)
		}
		if m := guarded.Call(t, "up__of_"+canary, `{}`); m.Error != nil {
			t.Errorf("a tool that is allowed but not listed is answered %s", m.Append(nil))
		}
	})
}

// TestSearchAndInstructionsAreRedacted has a guarded caller search the tools, and read what the server
// says about itself.
func TestSearchAndInstructionsAreRedacted(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		j, keys := guardedJunction(t, p, p.Serve(t, leaky()), strings.Replace(guardedRules, "- { name: all,",
			"- { name: all, catalog: search,", 1))
		for key, want := range map[string]bool{"free": true, "guarded": false} {
			c := j.As(t, keys[key])
			for _, query := range []string{"reused", "of"} {
				text := string(c.Succeed(t, "search_tools", `{"query":"`+query+`","limit":50}`))
				if leaks(text) != want {
					t.Errorf("%s reads %s", key, text)
				}
				answer := harness.Text(t, []byte(strings.TrimSuffix(strings.TrimPrefix(
					harness.Member([]byte(text), "content"), "["), "]")), "text")
				tools, _ := raw.Elements([]byte(harness.Member([]byte(answer), "tools")))
				var total int
				if json.Unmarshal([]byte(harness.Member([]byte(answer), "total")), &total); total != len(tools) {
					t.Errorf("%s: %d tools of a total of %d", key, len(tools), total)
				}
			}
		}
	})
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Instructions: "call " + canary})
		s.Config.Instructions = true
		j, keys := guardedJunction(t, p, s, guardedRules)
		for key, want := range map[string]string{"free": "call " + canary, "guarded": "call [redacted: canary]"} {
			if got := instructionsFor(t, j, p.Client, keys[key]); !strings.Contains(got, want) {
				t.Errorf("%s reads %q, want %q", key, got, want)
			}
		}
	})
}

// instructionsFor returns the instructions that a new client reads.
func instructionsFor(t *testing.T, j *harness.Junction, era client.Era, key string) string {
	t.Helper()
	method, params := "server/discover", ""
	if era == client.EraLegacy {
		method = "initialize"
		params = `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}`
	}
	fresh := &harness.Talker{URL: j.URL, Era: era, Capabilities: "{}", Key: key, Name: "x", IDs: new(atomic.Int64)}
	return harness.Text(t, fresh.Must(t, method, params), "instructions")
}

// TestSubscriptionsDoNotLeak has a server name a part of a subscribed resource, and refuse a
// subscription, with what the client must not read.
func TestSubscriptionsDoNotLeak(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, harness.Library("up"))
		j, keys := guardedJunction(t, p, s, guardedRules)
		for key, want := range map[string]string{"free": "file:///dir/" + canary, "guarded": "file:///dir/redacted-canary"} {
			c := j.As(t, keys[key])
			var stream *harness.Answering
			if p.Client == client.EraModern {
				stream, _ = harness.Subscribe(t, c, `"s"`, `{"resourceSubscriptions":["mcp://up/file:///dir"]}`)
			} else {
				stream = c.Get(t)
				c.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///dir"`)
			}
			s.Updated(t, "file:///dir/"+canary)
			harness.WantNotes(t, stream, "resources/updated mcp://up/"+want)
			stream.Drop()
			if p.Client == client.EraLegacy {
				c.Must(t, "resources/unsubscribe", `"uri":"mcp://up/file:///dir"`)
			}
		}
	})
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Rules = []upstreamtest.Rule{{Method: "resources/subscribe",
			Error: []byte(withCanary(`{"code":7,"message":"no CANARY","data":{"uri":"x:CANARY"}}`))}}
		j, keys := guardedJunction(t, p, p.Serve(t, script), guardedRules)
		for key, want := range map[string]bool{"free": true, "guarded": false} {
			m := j.As(t, keys[key]).Ask(t, "resources/subscribe", `"uri":"mcp://up/file:///dir"`)
			if m.Error == nil || leaks(string(m.Append(nil))) != want {
				t.Errorf("%s is answered %s", key, m.Append(nil))
			}
		}
	})
}

// TestTasksDoNotLeak has a task end with a result, an error and a question that the client must not
// read. Its id, which Junction seals, is not redacted.
func TestTasksDoNotLeak(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		rules := strings.Replace(guardedRules, "leaked-[a-z]+-[0-9a-z]+", "leaked-[a-z]+-[0-9a-z]+|task/[0-9a-zA-Z]+", 1)
		j, keys := guardedJunction(t, p, p.Serve(t, upstreamtest.Script{Tasks: true}), rules)
		for _, outcome := range []string{
			`"result":{"content":[{"type":"resource_link","uri":"x:CANARY","name":"r"}],"requestState":"CANARY","taskId":"CANARY"}`,
			`"result":{"content":[],"structuredContent":{"CANARY":"CANARY"}}`,
			`"error":{"code":7,"message":"CANARY","data":{"CANARY":1}}`,
		} {
			for key, want := range map[string]bool{"free": true, "guarded": false} {
				c := j.As(t, keys[key], func(c *harness.Talker) { c.Capabilities = harness.WithTasks })
				id := harness.BeginTask(t, c, harness.Called("up__task", withCanary(`{`+outcome+`}`)))
				if got := string(c.Task(t, id, "working")); leaks(got) != want || harness.Text(t, []byte(got), "taskId") != id {
					t.Errorf("%s reads %s", key, got)
				}
			}
		}
		c := j.As(t, keys["guarded"], func(c *harness.Talker) { c.Capabilities = harness.WithTasks })
		id := harness.BeginTask(t, c, harness.Called("up__task", withCanary(`{"questions":[`+questions["message of a form"]+`]}`)))
		if got := string(c.Task(t, id, "working")); leaks(got) || !strings.Contains(got, "[redacted: canary]") {
			t.Errorf("the question is %s", got)
		}
	})
}
