package safety

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// This file is about what stays with the process of a folder: subscriptions, and the roots during a task.

// TestSubscriptionMovesWithItsFolder: after a reload that starts the processes anew, the subscription of a window is in
// the new process of its folder, and a change there reaches that window alone.
func TestSubscriptionMovesWithItsFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		script := harness.Library("up")
		script.Era = string(up)
		w := newReloading(t, script)
		one, two := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`), harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`)
		inA, inB := subscribedIn(t, w.workplace, one, "within/a"), subscribedIn(t, w.workplace, two, "within/b")
		w.entry.Env = maps.Clone(w.entry.Env)
		w.entry.Env["ANOTHER"] = "process"
		w.apply("up")
		for _, step := range []struct {
			c      *harness.Talker
			folder string
			hears  *harness.Answering
		}{{two, "within/b", inB}, {one, "within/a", inA}} {
			pid := harness.Member(step.c.Begin(t, w.in(step.folder, whoami)).Answer(t).Result, "structuredContent", "pid")
			harness.Await(t, &w.child.Journal, "the subscription in the new process", func(r upstreamtest.Record) bool {
				return fmt.Sprint(r.PID) == pid && strings.HasSuffix(r.Message.Method, "s/"+map[client.Era]string{
					client.EraLegacy: "subscribe", client.EraModern: "listen"}[up]) &&
					strings.Contains(string(r.Message.Params), "file:///dir")
			})
			uri := "file:///dir/" + step.folder
			for range 10 { // the server has the subscription before Junction has the answer to it
				if m := step.c.Begin(t, w.in(step.folder, harness.Called("up__update", fmt.Sprintf(`{"uri":%q}`, uri)))).Answer(t); m.Error != nil {
					t.Fatal(m.Error)
				}
			}
			for { // a change may have been missed during the reload
				m, ok := step.hears.Next(t)
				if got := harness.Member(m.Params, "uri"); !ok || strings.Contains(got, "within") {
					if want := fmt.Sprintf("%q", "mcp://up/"+uri); got != want {
						t.Errorf("the window in %s hears of %s, want %s", step.folder, got, want)
					}
					break
				}
			}
		}
	})
}

// TestTaskHasTheRootsOfItsProcess: a server that asks for roots during a task gets the folders of the process from
// Junction, and the client is not asked. It can be asked for something else.
func TestTaskHasTheRootsOfItsProcess(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	const roots, form = `{"method":"roots/list"}`, `{"method":"elicitation/create","params":{"message":"1","requestedSchema":{"type":"object","properties":{}}}}`
	for name, questions := range map[string]string{"roots": roots, "roots and a form": roots + "," + form} {
		t.Run("modern, "+name, func(t *testing.T) {
			w := newReloading(t, upstreamtest.Script{Era: string(client.EraModern), Tasks: true})
			c := harness.TalkAs(t, w.URL, client.EraModern, "2026-07-28", `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
			id := harness.BeginTask(t, c, w.in("within/a", harness.Called("up__task", `{"questions":[`+questions+`]}`)))
			result := c.Task(t, id, "working")
			if requests := harness.Member(result, "inputRequests"); strings.Contains(requests, "roots/list") ||
				strings.Contains(requests, "elicitation/create") != (questions != roots) {
				t.Errorf("the client is asked %s", requests)
			} else if requests != "" {
				c.Must(t, "tasks/update", fmt.Sprintf(`"taskId":%q,"inputResponses":{%s}`, id, answerEach(t, requests)))
				result = c.Task(t, id, "input_required")
			}
			if got := string(result); !strings.Contains(got, "file://"+filepath.ToSlash(w.path("within/a"))) {
				t.Errorf("the server got other roots: %s", got)
			}
		})
	}
	for _, caller := range harness.Eras {
		t.Run("legacy from "+string(caller), func(t *testing.T) {
			w := newReloading(t, upstreamtest.Script{Era: string(client.EraLegacy), Tasks: true, Tools: []json.RawMessage{
				[]byte(`{"name":"report","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`)}})
			c := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`)
			m := c.Begin(t, w.in("within/a", harness.Called("up__report", `{"do":"task","questions":[`+roots+`]}`))).Answer(t)
			if got := string(m.Result); !strings.Contains(got, "file://"+filepath.ToSlash(w.path("within/a"))) {
				t.Errorf("the server got other roots: %s", m.Append(nil))
			}
		})
	}
}

// answerEach returns an answer to each request of a task.
func answerEach(t *testing.T, requests string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(requests), &all); err != nil {
		t.Fatal(err)
	}
	var answers []string
	for key := range all {
		answers = append(answers, fmt.Sprintf(`%q:{"action":"accept","content":{}}`, key))
	}
	return strings.Join(answers, ",")
}
