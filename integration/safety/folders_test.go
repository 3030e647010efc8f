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

// workplace is a proxy over a command that works in the folders of its clients: a and b, which are permitted.
type workplace struct {
	dir string
	*harness.Endpoint
}

func newWorkplace(t *testing.T, up client.Era, policy string) workplace {
	t.Helper()
	return newWorkplaceOf(t, up, policy, func(*upstream.Config) {})
}

// newWorkplaceOf is newWorkplace with a change of the entry.
func newWorkplaceOf(t *testing.T, up client.Era, policy string, change func(*upstream.Config), options ...harness.Option) workplace {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"within/a", "within/b", "outside"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(up)})
	guard := folder.New(folder.Rules{Within: []string{filepath.Join(dir, "within")},
		Permit: func(path string) string { return "junction folders allow " + path }})
	entry := upstream.Config{Command: child.Command, Env: child.Env, Era: up, Isolation: upstream.IsolationFolder,
		Dir: folder.Word}
	change(&entry)
	return workplace{dir, harness.MustProxy(t, map[string]upstream.Config{"up": entry}, append(options, func(_ *front.Options, c *scope.Config, _ *upstream.Options) {
		c.Folders = guard
		c.Guard, c.Policy = &auth.Guard{}, harness.MustPolicy(t, policy)
	})...)}
}

func (w workplace) path(name string) string { return filepath.Join(w.dir, name) }

// in is a query with a header that names a folder.
func (w workplace) in(name string, q harness.Query) harness.Query {
	q.Header = http.Header{"Junction-Folder": {w.path(name)}}
	return q
}

// rooted answers questions: for roots with these folders.
func (w workplace) rooted(names ...string) func(harness.ServerRequest) string {
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf(`{"uri":"file://%s"}`, filepath.ToSlash(w.path(name))))
	}
	return func(q harness.ServerRequest) string {
		if q.Method == "roots/list" {
			return `"result":{"roots":[` + strings.Join(list, ",") + `]}`
		}
		return approval("Allow and remember for this exact call")(q)
	}
}

// at returns the folder in which a call was made, or the error that the caller reads.
func at(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	if m.Error != nil {
		return m.Error.Message
	}
	if dir := harness.Member(m.Result, "structuredContent", "dir"); dir != "" {
		return strings.Trim(dir, `"`)
	}
	return string(m.Result)
}

const (
	allowing = `[{name: all, rules: [{allow: {upstreams: "*"}}]}]`
	asking   = `[{name: careful, rules: [{ask: {tools: up__whoami}}, {allow: {upstreams: "*"}}]}]`
)

var whoami = harness.Called("up__whoami", `{}`)

// eachEra runs f for each era of a client and of a server.
func eachEra(t *testing.T, f func(t *testing.T, caller, up client.Era)) {
	for _, caller := range harness.Eras {
		for _, up := range harness.Eras {
			t.Run(string(caller)+" to "+string(up), func(t *testing.T) { f(t, caller, up) })
		}
	}
}

// TestCallRunsInTheFolderOfItsClient: the header decides, then the roots, then the folder of junction stdio. A
// folder that is not permitted, and a client that names none, get no process.
func TestCallRunsInTheFolderOfItsClient(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	const without = `{"elicitation":{"form":{}}}`
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		w := newWorkplace(t, up, allowing)
		none := func(harness.ServerRequest) string { return "" }
		working := whoami
		working.Header = http.Header{"Junction-Working-Directory": {w.path("within/b")}}
		twice := whoami
		twice.Header = http.Header{"Junction-Folder": {w.path("within/a"), w.path("within/b")}}
		relative := whoami
		relative.Header = http.Header{"Junction-Folder": {"within/a"}}
		empty := whoami
		empty.Header = http.Header{"Junction-Folder": {"${PWD}"}}
		for name, row := range map[string]struct {
			capabilities string
			q            harness.Query
			answer       func(harness.ServerRequest) string
			want         string // a folder, or a part of the error
			asked        int
		}{
			"header":                   {without, w.in("within/a", whoami), none, w.path("within/a"), 0},
			"header before roots":      {harness.AllCapabilities, w.in("within/a", whoami), w.rooted("within/b"), w.path("within/a"), 0},
			"roots":                    {harness.AllCapabilities, whoami, w.rooted("within/b", "within/a"), w.path("within/b"), 1},
			"roots before the working": {harness.AllCapabilities, working, w.rooted("within/a"), w.path("within/a"), 1},
			"working directory":        {without, working, none, w.path("within/b"), 0},
			"no roots":                 {harness.AllCapabilities, working, w.rooted(), w.path("within/b"), 1},
			"nothing":                  {without, whoami, none, "give --folder PATH to junction call; for another client, run junction connect", 0},
			"no variable":              {without, empty, none, "without a folder: the variable in it is not set", 0},
			"no folder open":           {harness.AllCapabilities, whoami, w.rooted(), "has no folder open", 1},
			"no variable, and roots":   {harness.AllCapabilities, empty, w.rooted("within/a"), w.path("within/a"), 1},
			"outside":                  {without, w.in("outside", whoami), none, "junction folders allow " + w.path("outside"), 0},
			"absent":                   {without, w.in("nowhere", whoami), none, "junction folders allow " + w.path("nowhere"), 0},
			"roots outside":            {harness.AllCapabilities, whoami, w.rooted("outside"), "junction folders allow", 1},
			"two headers":              {without, twice, none, "2 headers", 0},
			"relative":                 {without, relative, none, "absolute", 0},
		} {
			c := harness.TalkAs(t, w.URL, caller, "2025-11-25", row.capabilities)
			m, asked := c.Converse(t, row.q, row.answer)
			if got := at(t, m); !strings.Contains(got, row.want) || filepath.IsAbs(row.want) && got != row.want {
				t.Errorf("%s: the call is made in %s, want %s", name, got, row.want)
			}
			if len(asked) != row.asked {
				t.Errorf("%s: the client is asked %d times, want %d", name, len(asked), row.asked)
			}
		}
		if caller == client.EraLegacy {
			return // a legacy client has 20 seconds for its answer
		}
		m, asked := harness.Talk(t, w.URL, caller).Converse(t, whoami, none)
		if got := at(t, m); !strings.Contains(got, "has not answered roots/list") || len(asked) != 1 {
			t.Errorf("after %d questions without an answer, the call is made in %s", len(asked), got)
		}
		unknown := harness.Query{Method: whoami.Method, Params: whoami.Params + `,"requestState":"another"`}
		if got := at(t, harness.Talk(t, w.URL, caller).Begin(t, unknown).Answer(t)); !strings.Contains(got, "requestState is unknown") {
			t.Errorf("with an unknown state, the call is made in %s", got)
		}
	})
}

// TestServerThatOnlyAsksServesEveryClient: an entry without ${folder} is for a server that asks for roots. A client
// without a folder gets what it gets from the server directly, and one with a folder that is not permitted still
// gets nothing.
func TestServerThatOnlyAsksServesEveryClient(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		w := newWorkplaceOf(t, up, allowing, func(c *upstream.Config) { c.Dir = "" })
		for name, row := range map[string]struct {
			q    harness.Query
			want string
		}{
			"no folder":     {whoami, here},
			"a folder":      {w.in("within/a", whoami), here},
			"not permitted": {w.in("outside", whoami), "junction folders allow " + w.path("outside")},
		} {
			c := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{"elicitation":{"form":{}}}`)
			m, _ := c.Converse(t, row.q, func(harness.ServerRequest) string { return "" })
			if got := at(t, m); !strings.Contains(got, row.want) {
				t.Errorf("%s: the call is made in %s, want %s", name, got, row.want)
			}
		}
	})
}

// TestRootsOfASession: a legacy client is asked once, and again after it has announced other roots. One that refuses
// is as one without.
func TestRootsOfASession(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	w := newWorkplace(t, client.EraLegacy, allowing)
	c := harness.Talk(t, w.URL, client.EraLegacy)
	for _, step := range []struct {
		before func()
		answer func(harness.ServerRequest) string
		want   string
		asked  int
	}{
		{func() {}, w.rooted("within/a"), w.path("within/a"), 1},
		{func() {}, w.rooted("within/b"), w.path("within/a"), 0},
		{func() { c.Notify(t, "notifications/roots/list_changed", "") }, w.rooted("within/b"), w.path("within/b"), 1},
		{func() { c.Notify(t, "notifications/roots/list_changed", "") }, func(harness.ServerRequest) string {
			return `"error":{"code":-32603,"message":"no"}`
		}, `has answered roots/list with the error \"no\"`, 1},
	} {
		step.before()
		m, asked := c.Converse(t, whoami, step.answer)
		if got := at(t, m); !strings.Contains(got, step.want) || len(asked) != step.asked {
			t.Errorf("the call is made in %s after %d questions, want %s after %d", got, len(asked), step.want, step.asked)
		}
	}
}

// TestApprovalIsForOneFolder: a person approves a call in a folder, which the form shows. Neither the state of the
// request nor a remembered approval permits it in another folder.
func TestApprovalIsForOneFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		w := newWorkplace(t, up, asking)
		c := harness.Talk(t, w.URL, caller)
		m, asked := c.Converse(t, w.in("within/a", whoami), w.rooted())
		if got := at(t, m); got != w.path("within/a") || len(asked) != 1 ||
			!strings.Contains(string(asked[0].Params), "Folder: "+w.path("within/a")) {
			t.Fatalf("after the questions %v the call is made in %s", asked, got)
		}
		if _, asked := c.Converse(t, w.in("within/a", whoami), w.rooted()); len(asked) != 0 {
			t.Errorf("the approval is not remembered: %v", asked)
		}
		no := approval("Do not allow")
		if m, asked := c.Converse(t, w.in("within/b", whoami), no); len(asked) != 1 {
			t.Errorf("in another folder the call is made in %s without a question", at(t, m))
		}
		if caller != client.EraModern {
			return
		}
		q := harness.Called("up__whoami", `{"names":["X"]}`)
		m = c.Begin(t, w.in("within/a", q)).Answer(t)
		key := harness.Requested(t, m)[0].Key
		yes := `"` + key + `":{"action":"accept","content":{"answer":"Allow once"}}`
		crossed := w.in("within/b", harness.Query{Method: q.Method, Params: harness.Retried(q.Params, m, yes)})
		if got := at(t, c.Begin(t, crossed).Answer(t)); !strings.Contains(got, "requestState") {
			t.Errorf("approved in a, answered from b: %s", got)
		}
	})
}

// TestRootsComeBeforeTheApproval: a client with roots is asked for them, then for the approval of the call in that
// folder. The state of the approval has the roots.
func TestRootsComeBeforeTheApproval(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		w := newWorkplace(t, up, asking)
		m, asked := harness.Talk(t, w.URL, caller).Converse(t, whoami, w.rooted("within/b"))
		if got := at(t, m); got != w.path("within/b") || len(asked) != 2 || asked[0].Method != "roots/list" ||
			!strings.Contains(string(asked[1].Params), w.path("within/b")) {
			t.Errorf("after the questions %v the call is made in %s", asked, got)
		}
	})
}

// TestFormShowsEachRoot: a process may work in all permitted roots of its client, so an approval covers all of them.
// The form shows them, and not the ones that are not permitted.
func TestFormShowsEachRoot(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		w := newWorkplace(t, up, asking)
		c := harness.Talk(t, w.URL, caller)
		_, asked := c.Converse(t, whoami, w.rooted("within/b", "outside", "within/a"))
		if len(asked) != 2 {
			t.Fatalf("the questions are %v", asked)
		}
		want := fmt.Sprintf(`Folder: %s\nOther folders:\n  %s\n`, w.path("within/b"), w.path("within/a"))
		if form := string(asked[1].Params); !strings.Contains(form, want) || strings.Contains(form, w.path("outside")) {
			t.Errorf("the form is %s, and lacks %s", form, want)
		}
	})
}

// TestListsWaitForAFolder: a server that ends in an empty folder lists its tools once a client has named a permitted
// folder. A folder that is not permitted does not reach it.
func TestListsWaitForAFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	for name, row := range map[string]struct {
		caller client.Era
		roots  bool // the client names its folder by its roots
	}{
		"legacy": {client.EraLegacy, false}, "modern": {client.EraModern, false}, "roots": {client.EraLegacy, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplaceOf(t, client.EraLegacy, allowing, func(c *upstream.Config) {
				c.Command = append([]string{"sh", "-c", `[ -e "$1/here" ] || exit 7; shift; exec "$@"`, "sh", folder.Word}, c.Command...)
			})
			if err := os.WriteFile(w.path("within/a/here"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(w.path("outside/here"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c := harness.TalkAs(t, w.URL, row.caller, "2025-11-25", `{}`)
			lists := func(q harness.Query) string {
				m := c.Begin(t, q).Answer(t)
				return string(m.Result)
			}
			list := harness.Query{Method: "tools/list"}
			for want, q := range map[string]harness.Query{"declares no roots": whoami, "junction folders allow": w.in("outside", whoami)} {
				if got := at(t, c.Begin(t, q).Answer(t)); !strings.Contains(got, want) {
					t.Errorf("before, a call is answered %s, want %s", got, want)
				}
			}
			for name, q := range map[string]harness.Query{"no folder": list, "outside": w.in("outside", list)} {
				if got := lists(q); strings.Contains(got, "up__whoami") {
					t.Errorf("%s: the tools are listed: %s", name, got)
				}
			}
			if row.roots {
				rooted := harness.Talk(t, w.URL, client.EraLegacy)
				if m, _ := rooted.Converse(t, list, w.rooted("within/a")); !strings.Contains(string(m.Result), "up__whoami") {
					t.Errorf("with roots the list is %s", m.Result)
				}
			} else if got := lists(w.in("within/a", list)); !strings.Contains(got, "up__whoami") {
				t.Errorf("in a permitted folder the list is %s", got)
			}
			call := w.in("within/a", whoami)
			if got := at(t, c.Begin(t, call).Answer(t)); got != w.path("within/a") {
				t.Errorf("a call is made in %s", got)
			}
			if got := lists(list); !strings.Contains(got, "up__whoami") {
				t.Errorf("after it the list without a folder is %s", got)
			}
		})
	}
}

// TestTaskStaysInItsFolder: requests about a task go to the process of the folder in which the call was made,
// whatever folder the client is in then. They never ask for roots.
func TestTaskStaysInItsFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraModern), Tasks: true})
	w := newWorkplaceOf(t, client.EraModern, allowing, func(c *upstream.Config) { c.Command, c.Env = child.Command, child.Env })
	c := harness.TalkAs(t, w.URL, client.EraModern, "2026-07-28", harness.WithTasks)
	id := harness.BeginTask(t, c, w.in("within/a", harness.Called("up__task", `{"gate":"end"}`)))
	about := func(q harness.Query) string {
		m := c.Begin(t, q).Answer(t)
		if m.Error != nil {
			return m.Error.Message
		}
		return harness.Member(m.Result, "status")
	}
	get := harness.Query{Method: "tasks/get", Params: fmt.Sprintf(`"taskId":%q`, id)}
	for name, q := range map[string]harness.Query{"no folder": get, "another folder": w.in("within/b", get)} {
		if got := about(q); got != `"working"` {
			t.Errorf("%s: the task is %s", name, got)
		}
	}
	c.Begin(t, w.in("within/a", harness.Called("up__open", `{"gate":"end"}`))).Answer(t)
	c.Task(t, id, "working")
}

// TestTaskEndsWithItsFolder: a folder that was removed and made again is another one. The ID of a task of the old one
// is unknown there, although the server of the new one has a task with the same ID.
func TestTaskEndsWithItsFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraModern), Tasks: true})
	w := newWorkplaceOf(t, client.EraModern, allowing, func(c *upstream.Config) { c.Command, c.Env = child.Command, child.Env })
	c := harness.TalkAs(t, w.URL, client.EraModern, "2026-07-28", harness.WithTasks)
	begin := func() string {
		return harness.BeginTask(t, c, w.in("within/a", harness.Called("up__task", `{"gate":"end"}`)))
	}
	about := func(id string) jsonrpc.Message {
		return c.Begin(t, harness.Query{Method: "tasks/get", Params: fmt.Sprintf(`"taskId":%q`, id)}).Answer(t)
	}
	old := begin()
	if err := os.Rename(w.path("within/a"), w.path("outside/a")); err != nil {
		t.Fatal(err)
	}
	if m := about(old); m.Error == nil {
		t.Errorf("without the folder, the task is %s", m.Result)
	}
	if err := os.Mkdir(w.path("within/a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if m := about(begin()); m.Error != nil {
		t.Errorf("the task of the new folder: %s", m.Error.Message)
	}
	if m := about(old); m.Error == nil || !strings.Contains(m.Error.Message, "unknown taskId") {
		t.Errorf("in the new folder, the task of the old one is %s", m.Result)
	}
}

// subscribing is a query for the updates of a resource.
func subscribing(caller client.Era) harness.Query {
	if caller == client.EraModern {
		return harness.Query{Method: "subscriptions/listen",
			Params: `"notifications":{"resourceSubscriptions":["mcp://up/file:///dir"]}`}
	}
	return harness.Query{Method: "resources/subscribe", Params: `"uri":"mcp://up/file:///dir"`}
}

// subscribedIn returns the stream of a client that has subscribed in a folder.
func subscribedIn(t *testing.T, w workplace, c *harness.Talker, folder string) *harness.Answering {
	t.Helper()
	q := w.in(folder, subscribing(c.Era))
	if c.Era == client.EraModern {
		q.ID = `"` + folder + `"`
		hears := c.Begin(t, q)
		if m, ok := hears.Next(t); !ok || !strings.Contains(string(m.Params), "file:///dir") {
			t.Fatalf("the subscription in %s begins with %s", folder, m.Append(nil))
		}
		return hears
	}
	if m := c.Begin(t, q).Answer(t); m.Error != nil {
		t.Fatalf("the subscription in %s = %v", folder, m.Error)
	}
	return c.Get(t)
}

// TestUpdatesComeFromTheFolderOfTheSubscriber: two windows have subscribed to one URI. A change in the process of one
// folder reaches the window in that folder alone. Without a folder, the client reads what its request lacks.
func TestUpdatesComeFromTheFolderOfTheSubscriber(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	eachEra(t, func(t *testing.T, caller, up client.Era) {
		script := harness.Library("up")
		script.Era = string(up)
		child := upstreamtest.Command(t, script)
		w := newWorkplaceOf(t, up, allowing, func(c *upstream.Config) { c.Command, c.Env = child.Command, child.Env })
		query := subscribing(caller)
		one, two := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`), harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`)
		inA, inB := subscribedIn(t, w, one, "within/a"), subscribedIn(t, w, two, "within/b")
		for _, step := range []struct {
			c      *harness.Talker
			folder string
			hears  *harness.Answering
		}{{two, "within/b", inB}, {one, "within/a", inA}} {
			uri := "file:///dir/" + step.folder
			if m := step.c.Begin(t, w.in(step.folder, harness.Called("up__update", fmt.Sprintf(`{"uri":%q}`, uri)))).Answer(t); m.Error != nil {
				t.Fatalf("the update in %s = %v", step.folder, m.Error)
			}
			harness.WantNotes(t, step.hears, "resources/updated mcp://up/"+uri)
		}
		lost := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{}`)
		if m := lost.Begin(t, query).Answer(t); m.Error == nil || !strings.Contains(m.Error.Message, "no header Junction-Folder") {
			t.Errorf("without a folder the subscription = %s", m.Append(nil))
		}
		if caller == client.EraModern {
			_, honoured := harness.Subscribe(t, lost, `"lists"`,
				`{"toolsListChanged":true,"resourceSubscriptions":["mcp://up/file:///dir"]}`)
			if strings.Contains(honoured, "file:///dir") || !strings.Contains(honoured, "toolsListChanged") {
				t.Errorf("without a folder the stream has %s", honoured)
			}
			return
		}
		if m := one.Begin(t, w.in("within/b", query)).Answer(t); m.Error != nil { // the window has gone to another folder
			t.Fatal(m.Error)
		}
		for _, folder := range []string{"within/a", "within/b"} {
			one.Begin(t, w.in(folder, harness.Called("up__update", fmt.Sprintf(`{"uri":"file:///dir/%s"}`, folder)))).Answer(t)
		}
		harness.WantNotes(t, inA, "resources/updated mcp://up/file:///dir/within/b")
		rooted := harness.Talk(t, w.URL, caller)
		if m, asked := rooted.Converse(t, query, w.rooted("within/a")); m.Error != nil || len(asked) != 1 {
			t.Errorf("with roots the subscription = %s after %d questions", m.Append(nil), len(asked))
		}
	})
}

// TestProcessOfAFolderIsWarm: with warm, the list of a client starts the process of its folder, and the first call goes
// there. The folder comes from the header, or from the roots of a session.
func TestProcessOfAFolderIsWarm(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	for name, row := range map[string]struct {
		caller client.Era
		roots  bool
	}{"legacy": {client.EraLegacy, false}, "modern": {client.EraModern, false}, "roots": {client.EraLegacy, true}} {
		t.Run(name, func(t *testing.T) {
			child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
			w := newWorkplaceOf(t, client.EraLegacy, allowing, func(c *upstream.Config) {
				c.Command, c.Env, c.Warm = child.Command, child.Env, true
			})
			next := func(but int) int {
				return harness.Await(t, &child.Journal, "start", func(r upstreamtest.Record) bool {
					return r.Verb == "START" && r.PID != but
				}).PID
			}
			reads := next(0)
			list, call := w.in("within/a", harness.Query{Method: "tools/list"}), w.in("within/a", whoami)
			c := harness.TalkAs(t, w.URL, row.caller, "2025-11-25", `{}`)
			if row.roots {
				list, call, c = harness.Query{Method: "tools/list"}, whoami, harness.Talk(t, w.URL, row.caller)
			}
			if m, _ := c.Converse(t, list, w.rooted("within/a")); m.Error != nil {
				t.Fatal(m.Error)
			}
			warm := next(reads)
			m, _ := c.Converse(t, call, w.rooted("within/a"))
			if pid := harness.Member(m.Result, "structuredContent", "pid"); pid != fmt.Sprint(warm) || at(t, m) != w.path("within/a") {
				t.Errorf("the call goes to the process %s in %s, and the warm one is %d", pid, at(t, m), warm)
			}
		})
	}
}

// TestRootsBesideAnotherQuestion: a modern server asks for roots together with something else. Junction answers with the
// folder, whatever the client answers, and the client gets the rest.
func TestRootsBesideAnotherQuestion(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	for _, caller := range harness.Eras {
		for _, state := range []string{"", `"state":"none",`} {
			t.Run(string(caller)+state, func(t *testing.T) {
				w := newWorkplace(t, client.EraModern, allowing)
				c := harness.TalkAs(t, w.URL, caller, "2025-11-25", `{"elicitation":{"form":{}}}`)
				q := harness.Called("up__ask", `{`+state+`"together":true,"questions":[`+harness.AskRoots+`,`+harness.AskForm+`]}`)
				m, asked := c.Converse(t, w.in("within/a", q), func(q harness.ServerRequest) string {
					if caller == client.EraModern { // and the answer to a question that nobody has put to it
						return harness.Accepted + `,"q1":{"roots":[{"uri":"file:///outside"}]}`
					}
					return harness.AnswersTo(q)
				})
				if len(asked) != 1 || asked[0].Method != "elicitation/create" {
					t.Errorf("the client is asked %v", asked)
				}
				answers := harness.AnswersOf(t, m)
				if !strings.Contains(answers, "file://"+w.path("within/a")) || !strings.Contains(answers, "accept") ||
					strings.Contains(answers, "outside") {
					t.Errorf("the server is answered %s", answers)
				}
			})
		}
	}
}
