package replicas

import (
	"encoding/json"
	"fmt"
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
		"auth: { api_keys: [ "+strings.Join(entries, ", ")+" ] }\n")
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
	m := c.Call(t, "up__count", `{}`)
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
