//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// TestFaultPostgresAwayServesTheRest takes the database away from three processes. What needs nothing that they
// share goes on at each of them, the rest is refused at once, and answers to open questions reach their calls,
// whichever process they come to.
func TestFaultPostgresAwayServesTheRest(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	keys, entries := map[string]string{}, []string{}
	for _, name := range []string{"ann", "bob"} {
		key := auth.NewKey()
		authtest.Secret("an API key", key)
		hash, err := auth.HashKey(key)
		if err != nil {
			t.Fatal(err)
		}
		keys[name], entries = key, append(entries, fmt.Sprintf("{ name: %s, hash: %q }", name, hash.String()))
	}
	state := upstreamtest.Command(t, upstreamtest.Script{Era: "modern"})
	command, err := json.Marshal(state.Command)
	if err != nil {
		t.Fatal(err)
	}
	env, err := json.Marshal(state.Env)
	if err != nil {
		t.Fatal(err)
	}
	g := authtest.MustGate(t, authtest.Schema(t))
	all := mustReplicas(t, g.DSN,
		fmt.Sprintf("  state: { command: %s, env: %s, era: modern, stateful: true }", command, env),
		"auth: { api_keys: [ "+strings.Join(entries, ", ")+" ] }",
		"policies:\n- { name: all, rules: [ { allow: { upstreams: [up, state] } } ] }\n"+
			"- { name: asked, match: { key: ann }, rules: [ { ask: { tools: up__count } } ] }\n"+
			"- { name: limited, match: { key: bob }, limits: { rate: 1000/s, concurrent: 10 } }")
	as := func(key string, at int, era client.Era) *harness.Talker {
		c := &harness.Talker{URL: all[at].URL, Era: era, Version: "2025-11-25",
			Capabilities: harness.AllCapabilities, Key: keys[key]}
		return c.Start(t)
	}
	// Before: sessions with a question each, a parked call, an approval, a server with a state.
	var sessions []*harness.Talker
	var calls []*harness.Answering
	var questions []jsonrpc.ID
	for i := range all {
		c := as("ann", i, client.EraLegacy)
		call := c.Begin(t, harness.Asking(harness.AskForm))
		question, ok := call.Next(t)
		if !ok || !question.IsRequest() {
			t.Fatalf("there is no question: %s", question.Append(nil))
		}
		sessions, calls, questions = append(sessions, c), append(calls, call), append(questions, question.ID)
	}
	modern := as("ann", 0, client.EraModern)
	parked := harness.Asking(harness.AskForm)
	back := func(q harness.Query, accept string) harness.Query {
		m := modern.Begin(t, q).Answer(t)
		q.Params = harness.Retried(q.Params, m, string(raw.Quote(harness.Requested(t, m)[0].Key))+":"+accept)
		return q
	}
	parked = back(parked, strings.TrimPrefix(harness.Accepted, `"result":`))
	approved := back(harness.Called("up__count", `{}`),
		`{"action":"accept","content":{"answer":"Allow once"}}`)
	modern.Succeed(t, "state__count", `{}`)

	g.Close()
	for i := range sessions { // until each process has lost its lease
		for m := sessions[i].Call(t, "up__echo", `{}`); m.Error == nil; m = sessions[i].Call(t, "up__echo", `{}`) {
			time.Sleep(50 * time.Millisecond)
		}
	}
	for i, p := range all {
		for p.MustReady(t, harness.Patience).Status != "degraded" { // it looks once a second
			time.Sleep(50 * time.Millisecond)
		}
		as("ann", i, client.EraModern).Succeed(t, "up__echo", `{"n":1}`)
		as("ann", i, client.EraModern).Names(t)
	}
	refused := func(what string, m jsonrpc.Message) {
		t.Helper()
		if m.Error == nil || !strings.Contains(m.Error.Message, "again") {
			t.Errorf("%s is answered %s", what, m.Append(nil))
		}
	}
	refused("a call with a limit over all", as("bob", 0, client.EraModern).Call(t, "up__echo", `{}`))
	refused("a call of a server with a state", modern.Call(t, "state__count", `{}`))
	refused("an approval", modern.Begin(t, approved).Answer(t))
	modern.URL = all[1].URL
	refused("a return to a call of another process", modern.Begin(t, parked).Answer(t))
	modern.URL = all[0].URL
	harness.AnswersOf(t, modern.Begin(t, parked).Answer(t))
	// A question that is asked now has its process in its state, as before.
	late := back(harness.Asking(harness.AskForm), strings.TrimPrefix(harness.Accepted, `"result":`))
	modern.URL = all[1].URL
	refused("a return to a new call of another process", modern.Begin(t, late).Answer(t))
	modern.URL = all[0].URL
	harness.AnswersOf(t, modern.Begin(t, late).Answer(t))
	for i, c := range sessions { // the first one itself, the others through each other
		c.URL = all[(2*i)%3].URL
		stranger := *c
		stranger.Key = keys["bob"]
		if status := stranger.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, questions[i])); status == http.StatusAccepted {
			t.Error("an answer to a question of somebody else was accepted")
		}
		c.Respond(t, questions[i], harness.Accepted)
		if m := calls[i].Answer(t); m.Error != nil {
			t.Errorf("the call with a question is answered %s", m.Append(nil))
		}
	}
	g.MustOpen(t)
	for _, c := range sessions {
		mustCallOn(t, c)
	}
	if m := modern.Begin(t, approved).Answer(t); m.Error != nil {
		t.Errorf("the approval is answered %s when the database is back", m.Append(nil))
	}
	modern.Succeed(t, "state__count", `{}`)
}
