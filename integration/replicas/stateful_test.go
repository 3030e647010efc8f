package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// stateful is three processes over a command that counts its calls, with two principals.
type stateful struct {
	*harness.Program
	server *upstreamtest.Child
	keys   map[string]string
}

// mustStateful starts them. more are further members of the upstream's entry.
func mustStateful(t *testing.T, up client.Era, more ...string) *stateful {
	t.Helper()
	return mustStatefulWith(t, up, "", more...)
}

// mustStatefulWith is mustStateful with further sections of the file.
func mustStatefulWith(t *testing.T, up client.Era, sections string, more ...string) *stateful {
	t.Helper()
	s := &stateful{server: upstreamtest.Command(t, upstreamtest.Script{Era: string(up)}), keys: map[string]string{}}
	var entries []string
	for _, name := range []string{"ann", "bob"} {
		key := auth.NewKey()
		authtest.Secret("an API key", key)
		hash, err := auth.HashKey(key)
		if err != nil {
			t.Fatal(err)
		}
		s.keys[name] = key
		entries = append(entries, fmt.Sprintf("{ name: %s, hash: %q }", name, hash.String()))
	}
	command, err := json.Marshal(s.server.Command)
	if err != nil {
		t.Fatal(err)
	}
	env, err := json.Marshal(s.server.Env)
	if err != nil {
		t.Fatal(err)
	}
	members := append([]string{"command: " + string(command), "env: " + string(env), "era: " + string(up)}, more...)
	s.Program = harness.MustProcesses(t, 3, "upstreams: { up: { "+strings.Join(members, ", ")+" } }\n"+
		"auth: { api_keys: [ "+strings.Join(entries, ", ")+" ] }\n"+sections)
	s.MustReady(t, harness.Patience)
	return s
}

// as returns a client of a principal whose requests go to a URL.
func (s *stateful) as(t *testing.T, principal, url string, era client.Era) *harness.Talker {
	t.Helper()
	c := &harness.Talker{URL: url, Era: era, Version: "2025-11-25", Capabilities: harness.AllCapabilities,
		Key: s.keys[principal]}
	return c.Start(t)
}

// count returns the answer to a call of the tool count: a number, or an error.
func count(t *testing.T, c *harness.Talker) (n int, failed *jsonrpc.Error) {
	t.Helper()
	return counted(t, c.Call(t, "up__count", `{}`))
}

// counted returns what count is answered.
func counted(t *testing.T, m jsonrpc.Message) (n int, failed *jsonrpc.Error) {
	t.Helper()
	if m.Error != nil {
		return 0, m.Error
	}
	list, err := m.Body.Elements("content")
	if err != nil || len(list) != 1 {
		t.Fatalf("count is answered %s", m.Append(nil))
	}
	n, err = strconv.Atoi(strings.Trim(harness.Member(list[0], "text"), `"`))
	if err != nil {
		t.Fatalf("count is answered %s", m.Append(nil))
	}
	return n, nil
}

func wantCounts(t *testing.T, c *harness.Talker, want ...int) {
	t.Helper()
	for _, n := range want {
		if got, err := count(t, c); err != nil || got != n {
			t.Fatalf("the count is %d (%v), want %d", got, err, n)
		}
	}
}

// lostState reports whether an error tells that the state of the server is lost, and what to do.
func lostState(e *jsonrpc.Error) bool {
	return e != nil && strings.Contains(e.Message, "the state of this server is lost") &&
		strings.Contains(e.Message, "This call was not made") &&
		string(e.Data) == `{"junction":{"upstream":"up","kind":"state_lost"}}`
}

// TestStateStaysTogether has the calls of each principal come to three processes in turn. All calls of one
// principal reach one process of the server, whatever the era of the client, with questions to the user on
// their way; those of another principal reach another one.
func TestStateStaysTogether(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		t.Run(string(up), func(t *testing.T) {
			s := mustStateful(t, up, "stateful: true")
			ann, bob := s.as(t, "ann", s.URL, client.EraModern), s.as(t, "bob", s.URL, client.EraModern)
			wantCounts(t, ann, 1, 2, 3, 4, 5, 6)
			wantCounts(t, bob, 1, 2, 3)
			var sessions []*harness.Talker
			for range 3 { // which begin at different processes
				sessions = append(sessions, s.as(t, "ann", s.URL, client.EraLegacy))
			}
			for i, c := range sessions {
				wantCounts(t, c, 7+i)
			}
			for _, c := range append(sessions, ann) {
				if m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo); len(asked) != 1 || m.Error != nil {
					t.Errorf("%d questions and then %s, want one and a result", len(asked), m.Append(nil))
				}
				hung := c.Begin(t, harness.Called("up__progress", `{"n":2}`))
				if m := hung.Answer(t); m.Error != nil {
					t.Errorf("a call with progress is answered %s", m.Append(nil))
				}
				if m := c.Call(t, "up__fail", `{"error":{"code":7,"message":"no","data":{"a":1.50},"x":1}}`); m.Error == nil ||
					m.Error.Code != 7 || !strings.Contains(string(m.Error.Data), "1.50") {
					t.Errorf("an error of the server arrives as %s", m.Append(nil))
				}
				c.Succeed(t, "up__echo", `{"text":"`+strings.Repeat("x", 1<<20)+`"}`)
			}
			wantCounts(t, ann, 10, 11, 12)
			wantCounts(t, bob, 4, 5, 6)
		})
	}
}

// TestStateStaysInTheFolderOfItsWindow has the calls of windows in two folders come to three processes in turn. All
// calls of one user from one folder reach one process of the server, which runs in that folder, and their questions
// stay with them. Each member refuses the folder that a user may not name. A folder that was removed and made again
// has another process.
func TestStateStaysInTheFolderOfItsWindow(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		t.Run(string(up), func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
			for _, dir := range []string{a, b} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			s := mustStatefulWith(t, up, fmt.Sprintf("folders: { within: [%q] }\npolicies:\n"+
				"  - { name: all, rules: [{ allow: { upstreams: '*' } }] }\n"+
				"  - { name: bob, match: { key: bob }, folders: [%q], rules: [{ allow: { upstreams: '*' } }] }\n", root, b),
				"stateful: true", "isolation: folder", `dir: "${folder}"`)
			in := func(folder string, q harness.Query) harness.Query {
				q.Header = http.Header{"Junction-Folder": {folder}}
				return q
			}
			counts := func(c *harness.Talker, folder string, want ...int) {
				t.Helper()
				for _, n := range want {
					got, err := counted(t, c.Begin(t, in(folder, harness.Called("up__count", `{}`))).Answer(t))
					if err != nil || got != n {
						t.Errorf("the count in %s is %d (%v), want %d", folder, got, err, n)
					}
				}
			}
			ann, bob := s.as(t, "ann", s.URL, client.EraModern), s.as(t, "bob", s.URL, client.EraModern)
			counts(ann, a, 1, 2, 3, 4)
			counts(ann, b, 1, 2, 3)
			counts(bob, b, 1, 2, 3)
			for range 3 {
				m := bob.Begin(t, in(a, harness.Called("up__count", `{}`))).Answer(t)
				if text := string(m.Result); !strings.Contains(text, "outside the permitted folders") {
					t.Errorf("in a folder that is not permitted to the user, count is answered %s", m.Append(nil))
				}
			}
			rooted := func(q harness.ServerRequest) string {
				if q.Method == "roots/list" {
					return fmt.Sprintf(`"result":{"roots":[{"uri":"file://%s"}]}`, a)
				}
				return harness.AnswersTo(q)
			}
			for i, era := range harness.Eras { // by their roots
				m, asked := s.as(t, "ann", s.URL, era).Converse(t, harness.Called("up__count", `{}`), rooted)
				if got, err := counted(t, m); err != nil || got != 5+i || len(asked) != 1 {
					t.Errorf("by the roots of a %s client, the count is %d (%v) after %d questions, want %d", era, got, err,
						len(asked), 5+i)
				}
			}
			// Two windows are asked at the same time.
			asking := func(folder string) harness.Query {
				return in(folder, harness.Asking(strings.ReplaceAll(harness.AskForm, "Name?", "in "+folder)))
			}
			inA, inB := ann.Begin(t, asking(a)).Answer(t), ann.Begin(t, asking(b)).Answer(t)
			for folder, m := range map[string]jsonrpc.Message{a: inA, b: inB} {
				q := harness.Requested(t, m)
				if len(q) != 1 || !strings.Contains(string(q[0].Params), "in "+folder) {
					t.Fatalf("the window in %s is asked %v", folder, q)
				}
				again := asking(folder)
				again.Params = harness.Retried(again.Params, m,
					fmt.Sprintf(`%q:{"action":"accept","content":{"n":%q}}`, q[0].Key, folder))
				if got := harness.AnswersOf(t, ann.Begin(t, again).Answer(t)); !strings.Contains(got, folder) {
					t.Errorf("the call in %s has the answers %s", folder, got)
				}
			}
			counts(ann, a, 7, 8, 9)
			counts(ann, b, 4, 5, 6)
			if up == client.EraModern { // Junction answers its requests for roots, beside the one that the client answers
				q := harness.Called("up__ask", `{"together":true,"questions":[`+harness.AskRoots+`,`+harness.AskForm+`]}`)
				m, asked := ann.Converse(t, in(b, q), rooted)
				if got := harness.AnswersOf(t, m); !strings.Contains(got, "file://"+b) || !strings.Contains(got, "accept") ||
					len(asked) != 1 {
					t.Errorf("after %d questions the server has the answers %s", len(asked), got)
				}
			}
			m := ann.Begin(t, in(a, harness.Called("up__whoami", `{}`))).Answer(t)
			if got := harness.Member(m.Result, "structuredContent", "dir"); got != fmt.Sprintf("%q", a) {
				t.Errorf("the process of %s is in %s", a, got)
			}
			if err := os.Rename(a, a+"-before"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(a, 0o700); err != nil {
				t.Fatal(err)
			}
			counts(ann, a, 1, 2, 3)
		})
	}
}

// TestOneStateForAll: with isolation: shared, one process of the server has the state for all principals.
func TestOneStateForAll(t *testing.T) {
	harness.Waits(t)
	s := mustStateful(t, client.EraLegacy, "stateful: true", "isolation: shared")
	ann, bob := s.as(t, "ann", s.URL, client.EraModern), s.as(t, "bob", s.URL, client.EraModern)
	wantCounts(t, ann, 1, 2, 3)
	wantCounts(t, bob, 4, 5, 6)
	wantCounts(t, ann, 7, 8, 9)
}

// TestKilledOwnerLosesTheStateOnce kills the process that has a state. Of all calls at the others, exactly
// one is answered that the state is lost. All further ones reach one new process of the server.
func TestKilledOwnerLosesTheStateOnce(t *testing.T) {
	harness.Waits(t)
	s := mustStateful(t, client.EraModern, "stateful: true")
	owner, other := s.Others[0], s.Others[1]
	wantCounts(t, s.as(t, "ann", owner.URL, client.EraModern), 1)
	c := s.as(t, "ann", other.URL, client.EraModern)
	wantCounts(t, c, 2, 3)
	inFlight := c.Begin(t, harness.Called("up__hang", `{}`))
	harness.CallsOf(t, &s.server.Journal, 4)
	owner.MustKill(t)
	if m := inFlight.Answer(t); m.Error == nil || !strings.Contains(m.Error.Message, "may have been executed") ||
		!strings.Contains(string(m.Error.Data), `"kind":"lost"`) {
		t.Errorf("the call in flight is answered %s", m.Append(nil))
	}
	counts, lost := manyCounts(t, []*harness.Talker{c, s.as(t, "ann", s.URL, client.EraModern)}, 8)
	if lost != 1 || !slices.Equal(counts, []int{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%d answers tell that the state is lost, and the counts are %v; want 1, and 1 to 7", lost, counts)
	}
	wantCounts(t, s.as(t, "bob", s.URL, client.EraModern), 1, 2)
}

// manyCounts calls count n times at once, by each client in turn. It returns the counts in order, and the
// number of answers that tell that the state is lost.
func manyCounts(t *testing.T, clients []*harness.Talker, n int) (counts []int, lost int) {
	t.Helper()
	var mu sync.Mutex
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			got, err := count(t, clients[i%len(clients)])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case lostState(err):
				lost++
			case err != nil:
				t.Errorf("count is answered %v", err)
			default:
				counts = append(counts, got)
			}
		})
	}
	calls.Wait()
	slices.Sort(counts)
	return counts, lost
}

// TestStoppedOwnerLosesTheStateOnce stops the process that has two states. A call in flight ends well, with a
// further one beside it. Then the next call is answered at once that the state is lost, while the process
// still has a call of the other state.
func TestStoppedOwnerLosesTheStateOnce(t *testing.T) {
	harness.Waits(t)
	s := mustStateful(t, client.EraLegacy, "stateful: true")
	owner, other := s.Others[0], s.Others[1]
	wantCounts(t, s.as(t, "ann", owner.URL, client.EraModern), 1)
	c := s.as(t, "ann", other.URL, client.EraModern)
	slow := c.Begin(t, harness.Called("up__gate", `{"gate":"end"}`))
	others := s.as(t, "bob", owner.URL, client.EraModern).Begin(t, harness.Called("up__gate", `{"gate":"bob"}`))
	harness.CallsOf(t, &s.server.Journal, 3)
	if err := owner.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	owner.Stderr.MustMatch(t, regexp.MustCompile("shutting down"), harness.Patience, owner.Done)
	wantCounts(t, c, 2)
	if err := s.server.Release("end"); err != nil {
		t.Fatal(err)
	}
	if m := slow.Answer(t); m.Error != nil {
		t.Errorf("the call in flight is answered %s", m.Append(nil))
	}
	began := time.Now()
	counts, lost := manyCounts(t, []*harness.Talker{c}, 4)
	if lost != 1 || !slices.Equal(counts, []int{1, 2, 3}) {
		t.Errorf("%d answers tell that the state is lost, and the counts are %v; want 1, and 1 to 3", lost, counts)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the new owner was found after %v", took)
	}
	if err := s.server.Release("bob"); err != nil {
		t.Fatal(err)
	}
	if m := others.Answer(t); m.Error != nil {
		t.Errorf("the call of the other state is answered %s", m.Append(nil))
	}
	<-owner.Done
	if !owner.Cmd.ProcessState.Success() {
		t.Errorf("the process ended with %v", owner.Cmd.ProcessState)
	}
	owner.Cmd = nil
	wantCounts(t, c, 4)
}
