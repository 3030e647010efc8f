package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

const (
	everything = `policies: [{ name: all, rules: [{ allow: { upstreams: "*" } }] }]`
	// without denies one item of each kind, and arguments of a tool; and asks before another tool.
	without = `policies: [{ name: without, rules: [{ deny: { tools: "*secret" } }, { deny: { prompts: "*secret" } },` +
		` { deny: { resources: "file:///secret" } }, { deny: { tools: "*open", where: { path: "/etc/*" } } },` +
		` { ask: { tools: "*careful" } }, { allow: { upstreams: "*" } }] }]`
)

// seen are the items that a session sees, and can use.
type seen struct {
	*harness.Talker
	t *testing.T
}

// lists returns the names of all items.
func (s seen) lists() (names []string) {
	s.t.Helper()
	for _, list := range [][3]string{{"tools/list", "tools", "name"}, {"prompts/list", "prompts", "name"},
		{"resources/list", "resources", "uri"}} {
		items, _ := s.Drain(s.t, list[0], list[1])
		for _, item := range items {
			names = append(names, harness.Text(s.t, item, list[2]))
		}
	}
	return names
}

// refusals returns the messages of the items that the session cannot use; "" for one that it can.
func (s seen) refusals() (texts []string) {
	s.t.Helper()
	large := strings.Repeat("x", 100<<10) // is passed on as it arrives
	for _, q := range []harness.Query{harness.Called("up__secret", `{}`), harness.Called("up__secret", `{"a":"`+large+`"}`),
		harness.Called("up__open", `{"path":"/etc/passwd"}`), {Method: "prompts/get", Params: `"name":"up__secret"`},
		{Method: "resources/read", Params: `"uri":"file:///secret"`},
		{Method: "resources/subscribe", Params: `"uri":"file:///secret"`},
		harness.Called("up__open", `{"path":"/home"}`), harness.Called("up__open", `{"a":"`+large+`"}`)} {
		text := ""
		if m := s.Begin(s.t, q).Answer(s.t); m.Error != nil {
			text = m.Error.Message
		}
		texts = append(texts, text)
	}
	return texts
}

// mustTwo starts two processes with equal files, which have the server of a URL, and more sections.
func mustTwo(t *testing.T, url, more string) (one, other *harness.Program) {
	t.Helper()
	one, other = harness.NewProgram(t), harness.NewProgram(t)
	one.MustConfigure(t, fmt.Sprintf("replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
		"storage: { driver: postgres, dsn: %q, key_file: %q }\nupstreams: { up: { url: %q } }\n%s\n",
		authtest.Schema(t), filepath.Join(one.Dir, "master.key"), url, more))
	one.MustServe(t)
	text, err := os.ReadFile(one.File()) // with the paths of the keys
	if err != nil {
		t.Fatal(err)
	}
	other.MustWrite(t, string(text))
	other.MustServe(t)
	one.MustJoin(t, 2)
	other.MustJoin(t, 2)
	return one, other
}

// TestForwardedRequestIsJudgedByBoth has two processes with different policies, as during a rollout. A request
// that one forwards to the other is judged by both, whichever has the session: nothing is listed, read or called
// that one of the files denies. When the files are the same again, the client is told that its lists have changed.
func TestForwardedRequestIsJudgedByBoth(t *testing.T) {
	harness.Waits(t)
	item := func(text string) []json.RawMessage {
		return []json.RawMessage{json.RawMessage(strings.ReplaceAll(text, "NAME", "open")),
			json.RawMessage(strings.ReplaceAll(text, "NAME", "secret"))}
	}
	up, url := upstreamtest.Start(t, upstreamtest.Script{Era: "legacy",
		Tools: harness.Definitions("careful", "open", "secret"), Prompts: item(`{"name":"NAME"}`),
		Resources: item(`{"uri":"file:///NAME","name":"NAME"}`)})
	wide, narrow := mustTwo(t, url, everything)
	both := []*harness.Program{wide, narrow}
	in := func(owner, by *harness.Program) seen {
		c := harness.Talk(t, owner.URL, client.EraLegacy)
		c.URL = by.URL
		return seen{c, t}
	}
	all := in(wide, narrow).lists()
	if len(all) != 7 || slices.Contains(in(wide, narrow).refusals()[:6], "Unknown tool: up__secret") {
		t.Fatalf("with equal files, the client sees %q, and is refused %q", all, in(wide, narrow).refusals())
	}

	narrow.MustReload(t, everything, without)
	var stream *harness.Answering
	var kept seen
	for _, owner := range both {
		for _, by := range both {
			if owner == wide && by == wide {
				continue // no file but that of wide is asked
			}
			c := in(owner, by)
			name := fmt.Sprintf("the session at wide: %v, the request at wide: %v", owner == wide, by == wide)
			if list := c.lists(); strings.Contains(strings.Join(list, " "), "secret") || len(list) != 4 {
				t.Errorf("%s: the lists have %q", name, list)
			}
			before := len(harness.CallsOf(t, &up.Journal, 0))
			refused := c.refusals()
			for i, text := range refused {
				if (text != "") != (i < 6) {
					t.Errorf("%s: %q", name, refused)
					break
				}
			}
			if made := len(harness.CallsOf(t, &up.Journal, 0)) - before; made != 2 {
				t.Errorf("%s: %d calls were made, want the 2 that both files allow", name, made)
			}
			m, asked := seen{harness.Talk(t, owner.URL, client.EraLegacy), t}.by(by).Converse(t,
				harness.Called("up__careful", `{}`), func(harness.ServerRequest) string { return `"result":{"action":"decline"}` })
			if len(asked) != 1 || m.Error == nil && !strings.Contains(string(m.Result), "isError") {
				t.Errorf("%s: a call that one file asks about: %d questions, %s", name, len(asked), m.Append(nil))
			}
			if owner == wide {
				kept, stream = c, c.Get(t)
			}
		}
	}
	c := in(wide, wide)
	if list := c.lists(); !slices.Equal(list, all) {
		t.Errorf("the file of wide alone shows %q, want %q", list, all)
	}

	narrow.MustReload(t, without, everything)
	var m jsonrpc.Message
	for m.Method != "notifications/tools/list_changed" {
		var open bool
		if m, open = stream.Next(t); !open { // narrow ends it, because the rights have changed there
			stream = kept.Get(t)
		}
	}
	if list := kept.lists(); !slices.Equal(list, all) {
		t.Errorf("with equal files again, the client sees %q, want %q", list, all)
	}
}

// by returns the session with its requests sent to another process.
func (s seen) by(p *harness.Program) *harness.Talker {
	there := *s.Talker
	there.URL = p.URL
	return &there
}

// mustTwoWithKey starts two processes with two API keys, and a session with the first key at the first process. entry
// is that of the key in both files.
func mustTwoWithKey(t *testing.T, url string) (owner, other *harness.Program, c *harness.Talker, entry string) {
	t.Helper()
	key, entries := auth.NewKey(), []string(nil)
	authtest.Secret("an API key", key)
	for name, key := range map[string]string{"ann": key, "other": auth.NewKey()} {
		hash, err := auth.HashKey(key)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf("{ name: %s, hash: %q }", name, hash.String()))
	}
	slices.Sort(entries) // ann is first
	owner, other = mustTwo(t, url, everything+"\nauth: { api_keys: [ "+strings.Join(entries, ", ")+" ] }")
	talker := harness.Talker{URL: owner.URL, Era: client.EraLegacy, Version: "2025-11-25",
		Capabilities: harness.AllCapabilities, Key: key}
	return owner, other, talker.Start(t), entries[0]
}

// TestForwardedRequestNeedsTheKeyInBothFiles has a session at one process, and requests that come through another one.
// None is executed while the file of one of the two does not have the key, or has it with something that does not fit.
func TestForwardedRequestNeedsTheKeyInBothFiles(t *testing.T) {
	harness.Waits(t)
	up, url := upstreamtest.Start(t, upstreamtest.Script{Era: "legacy"})
	owner, other, c, entry := mustTwoWithKey(t, url)
	through := seen{c, t}.by(other)
	const call = `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"up__echo","arguments":{}}}`
	for what, with := range map[string]string{
		"revoked":          "",
		"another name":     strings.Replace(entry, "ann", "ben", 1) + ", ",
		"another network":  strings.Replace(entry, " }", ", cidrs: [192.0.2.0/24] }", 1) + ", ",
		"another endpoint": strings.Replace(entry, " }", ", endpoints: [mcp/up] }", 1) + ", ",
		"expired":          strings.Replace(entry, " }", ", expires: 2020-01-01 }", 1) + ", ",
	} {
		for at, p := range map[string]*harness.Program{"the owner": owner, "the other one": other} {
			const mark = "api_keys: [ "
			p.MustReload(t, mark+entry+", ", mark+with)
			before := len(harness.CallsOf(t, &up.Journal, 0))
			if status := through.Post(t, call); status < http.StatusBadRequest {
				t.Errorf("%s at %s: the call is answered %d", what, at, status)
			}
			if made := len(harness.CallsOf(t, &up.Journal, 0)) - before; made > 0 {
				t.Errorf("%s at %s: the call was made", what, at)
			}
			p.MustReload(t, mark+with, mark+entry+", ")
			through.Succeed(t, "up__echo", `{}`)
		}
	}
}

// TestForwardedStreamIsJudgedByBoth has a session at one process, whose stream the other one passes on, with other
// policies. The stream tells of no resource that one of the files denies. It ends when the file of the process that
// passes it on gives the caller other rights, or revokes the caller's key, and not when something else changes there.
func TestForwardedStreamIsJudgedByBoth(t *testing.T) {
	harness.Waits(t)
	up, url := upstreamtest.Start(t, upstreamtest.Script{Era: "legacy", Resources: []json.RawMessage{
		json.RawMessage(`{"uri":"file:///open","name":"open"}`), json.RawMessage(`{"uri":"file:///secret","name":"secret"}`)}})
	owner, other, c, entry := mustTwoWithKey(t, url)
	for _, name := range []string{"open", "secret"} {
		if m := c.Begin(t, harness.Query{Method: "resources/subscribe", Params: `"uri":"mcp://up/file:///` + name + `"`}).
			Answer(t); m.Error != nil {
			t.Fatalf("a subscription is answered %s", m.Append(nil))
		}
	}
	by := func(p *harness.Program) *harness.Talker { return seen{c, t}.by(p) }
	next := func(stream *harness.Answering) string {
		t.Helper()
		for m, open := stream.Next(t); open; m, open = stream.Next(t) {
			if m.Method == "notifications/resources/updated" {
				return string(m.Params)
			}
		}
		return "the end"
	}
	want := func(what, got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("%s: the stream has %s, want %s", what, got, want)
		}
	}

	other.MustReload(t, everything, without)
	stream := by(other).Get(t)
	for _, name := range []string{"secret", "open"} {
		up.Updated("file:///" + name)
	}
	want("through the file that denies one", next(stream), "file:///open")
	other.MustReload(t, "upstreams: { up: { ", "upstreams: { more: { url: \"http://127.0.0.1:1\" }, up: { ")
	up.Updated("file:///open")
	want("after a change of something else", next(stream), "file:///open")
	want("at its owner", next(by(owner).Get(t)), "file:///secret") // an update goes to one stream of the session
	other.MustReload(t, without, everything)
	want("after a change of the policies", next(stream), "the end")

	stream = by(other).Get(t)
	other.MustReload(t, entry+", ", "")
	want("after the key was revoked", next(stream), "the end")
}
