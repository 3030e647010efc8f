package replicas

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// TestProcessesAnswerForEachOther sends the requests of each client to three processes in turn.
func TestProcessesAnswerForEachOther(t *testing.T) {
	harness.Waits(t)
	eachWire(t, func(t *testing.T, clientEra, up client.Era) {
		s, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(up)})
		p := harness.MustProcesses(t, 3, fmt.Sprintf("upstreams: { up: { url: %q, era: %s } }", url, up))
		p.MustReady(t, harness.Patience)
		c := harness.Talk(t, p.URL, clientEra)
		for range 3 {
			c.Succeed(t, "up__echo", `{}`)
			c.Succeed(t, "up__echo", `{"text":"`+strings.Repeat("x", 1<<20)+`"}`) // not held in memory on its way
		}
		m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
		if len(asked) != 1 || m.Error != nil {
			t.Errorf("%d questions and then %s, want one and a result", len(asked), m.Append(nil))
		}
		if n := len(harness.CallsOf(t, &s.Journal, 7)); n > 8 {
			t.Errorf("%d calls reached the upstream", n)
		}
	})
}

// TestPagingThroughAChangeAtEachProcess has a client read a list page by page, each page from another
// process, while the list changes. It gets the rest of the list that it began.
func TestPagingThroughAChangeAtEachProcess(t *testing.T) {
	harness.Waits(t)
	eachWire(t, func(t *testing.T, clientEra, up client.Era) {
		names := func(prefix string) (list []string) {
			for i := range 9 {
				list = append(list, fmt.Sprint(prefix, i))
			}
			return list
		}
		before, after := names("before"), names("after")
		s, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(up), Tools: harness.Definitions(before...)})
		p := harness.MustProcesses(t, 3, fmt.Sprintf("upstreams: { up: { url: %q, era: %s } }\nlimits: { page: 2 }", url, up))
		p.MustReady(t, harness.Patience)
		c := harness.Talk(t, p.URL, clientEra)
		var begun []string // cursors of the list of before the change, one of each process
		for range 3 {
			_, first := c.List(t, "")
			begun = append(begun, harness.Member(first, "nextCursor"))
		}
		s.SetTools(harness.Definitions(after...))
		for range 3 {
			for {
				if all, _ := c.Drain(t, "tools/list", "tools"); strings.Contains(string(all[0]), "after") {
					break
				}
			}
		}
		for _, cursor := range begun {
			var rest []string
			for next := cursor; next != ""; {
				tools, page := c.List(t, `"cursor":`+next)
				for _, tool := range tools {
					rest = append(rest, strings.Trim(harness.Member(tool, "name"), `"`))
				}
				next = harness.Member(page, "nextCursor")
			}
			if want := "up__" + strings.Join(before[2:], " up__"); strings.Join(rest, " ") != want {
				t.Errorf("the rest of the list is %q, want %q", rest, want)
			}
		}
	})
}

// TestKilledMemberLosesItsCallsOnly kills one of three processes under load. Calls that began before
// the process had ended may be lost, and nothing else: sessions and streams go on at other members, and a parked call ends
// with an error that says what has happened. The test takes as long as a lease: before the lease
// ends, the other members cannot know that the process does not come back.
func TestKilledMemberLosesItsCallsOnly(t *testing.T) {
	harness.Waits(t)
	s, url := upstreamtest.Start(t, upstreamtest.Script{Era: "legacy"})
	p := harness.MustProcesses(t, 3, fmt.Sprintf("upstreams: { up: { url: %q, era: legacy } }", url))
	p.MustReady(t, harness.Patience)
	killed := p.Others[0]

	parked := harness.Talk(t, p.URL, client.EraModern)
	q := harness.Asking(harness.AskForm)
	there := *parked
	there.URL = killed.URL
	m := there.Begin(t, q).Answer(t)
	q.Params = harness.Retried(q.Params, m,
		string(raw.Quote(harness.Requested(t, m)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))

	var talkers []*harness.Talker
	var streams []*harness.Answering
	for range 6 { // so that two of them are sessions of the killed process
		c := harness.Talk(t, p.URL, client.EraLegacy)
		c.Succeed(t, "up__echo", `{}`) // the fourth request, so that the next session begins elsewhere
		talkers, streams = append(talkers, c), append(streams, c.Get(t))
	}
	calling, stop := context.WithCancel(harness.Patient(t))
	var load sync.WaitGroup
	var mu sync.Mutex
	after := make([]int, 12) // calls that succeeded after the process was killed
	dead := make(chan struct{})
	enough := func(n int) { // all callers succeed again
		mu.Lock()
		defer mu.Unlock()
		after[n]++
		for _, calls := range after {
			if calls < 20 {
				return
			}
		}
		stop()
	}
	lost := make([]int, len(after)) // calls that were lost although they began after the kill
	inFlight := make([]int, len(after))
	for n := range after {
		c := harness.MustCaller(t, p.URL, harness.BothEras()[n%2])
		load.Go(func() {
			for calling.Err() == nil {
				killed := false
				select {
				case <-dead:
					killed = true
				default:
				}
				x, err := c.Call(calling, "up__echo", `{}`)
				switch failed := err != nil || !strings.Contains(x.Answer, `"result":`); {
				case calling.Err() != nil:
				case failed && killed:
					lost[n]++
					t.Logf("caller %d lost a call: %v %.200s", n, err, x.Answer)
				case failed:
					inFlight[n]++
				case killed:
					enough(n)
				}
			}
		})
	}
	harness.CallsOf(t, &s.Journal, 300)
	killed.MustKill(t)
	close(dead)
	m = parked.Begin(t, q).Answer(t)
	if m.Error == nil || string(m.Error.Data) != `{"junction":{"kind":"lost"}}` {
		t.Errorf("the parked call of the killed process is answered %s", m.Append(nil))
	}
	load.Wait()
	for n, calls := range lost {
		if calls > 0 {
			t.Errorf("caller %d lost %d calls that it made after the process had ended", n, calls)
		}
	}
	if calling.Err() == context.DeadlineExceeded {
		t.Errorf("calls that succeeded afterwards: %v, want 20 of each", after)
	}
	resumed := 0
	for i, c := range talkers {
		c.Succeed(t, "up__echo", `{}`)
		select {
		case <-streams[i].Messages:
			streams[i] = c.Get(t)
			resumed++
		default:
		}
	}
	if resumed == 0 {
		t.Error("no stream was one of the killed process")
	}
	s.SetTools(harness.Definitions("echo", "late"))
	for _, stream := range streams {
		stream.WantNote(t, "notifications/tools/list_changed", "{}")
	}
	t.Logf("calls lost in flight by each caller: %v; resumed streams: %d of %d", inFlight, resumed, len(talkers))
}

// TestConnectionHidesNoHeader: the headers that a client lists in Connection decide at the owner as at
// any other process. So a client outside of a network gets no rights of that network by hiding
// X-Forwarded-For, and its key counts although Authorization is listed.
func TestConnectionHidesNoHeader(t *testing.T) {
	harness.Waits(t)
	key, hash := mustKey(t)
	eachWire(t, func(t *testing.T, clientEra, up client.Era) {
		_, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(up)})
		p := harness.MustProcesses(t, 3, fmt.Sprintf("upstreams: { up: { url: %q, era: %s } }\n"+
			"auth: { trusted_proxies: [127.0.0.1/32], api_keys: [{ name: team, hash: %q }] }\n"+
			"policies:\n"+
			"  - { name: all, rules: [{ allow: { tools: up__echo } }] }\n"+
			"  - { name: inside, match: { cidr: 127.0.0.0/8 }, rules: [{ allow: { tools: '*' } }] }\n", url, up, hash))
		p.MustReady(t, harness.Patience)
		owner := &harness.Talker{URL: p.Others[0].URL, Era: clientEra, Version: "2025-11-25",
			Capabilities: harness.AllCapabilities, Key: key}
		owner.Start(t)
		other := *owner
		other.URL = p.Others[1].URL
		if clientEra == client.EraModern {
			parked := owner.Begin(t, harness.Asking(harness.AskForm)).Answer(t)
			q := harness.Asking(harness.AskForm)
			q.Params = harness.Retried(q.Params, parked, string(raw.Quote(harness.Requested(t, parked)[0].Key))+`:`+
				strings.TrimPrefix(harness.Accepted, `"result":`))
			q.Header = http.Header{"X-Forwarded-For": {"203.0.113.9"}, "Connection": {"keep-alive, X-Forwarded-For"}}
			for _, c := range []*harness.Talker{owner, &other} {
				harness.WantCode(t, c.Begin(t, q).Answer(t), -32602) // as an unknown tool
			}
			q.Header = http.Header{"Connection": {"authorization, mcp-method, content-type, accept"}}
			harness.AnswersOf(t, other.Begin(t, q).Answer(t))
			return
		}
		for _, c := range []*harness.Talker{owner, &other} {
			if all := c.Names(t); len(all) < 2 {
				t.Fatalf("a client inside sees %q", all)
			}
			for _, hidden := range []string{"", "X-Forwarded-For", "x-forwarded-for, Authorization",
				"mcp-session-id, MCP-Protocol-Version", "Content-Type, Accept, User-Agent"} {
				q := harness.Query{Method: "tools/list", Header: http.Header{"X-Forwarded-For": {"203.0.113.9"}}}
				if hidden != "" {
					q.Header["Connection"] = []string{"keep-alive, " + hidden}
				}
				a := c.Begin(t, q)
				m := a.Answer(t)
				list, _ := raw.Get(m.Result, "tools")
				if tools, err := raw.Elements(list); err != nil || len(tools) != 1 {
					t.Errorf("%s, Connection: %s: status %d, list %s", c.URL, hidden, a.Status, list)
				}
				q.Method, q.Params = "tools/call", harness.Asking(harness.AskForm).Params
				harness.WantCode(t, c.Begin(t, q).Answer(t), -32602)
			}
		}
	})
}

// mustKey returns a new API key and its hash.
func mustKey(t *testing.T) (key, hash string) {
	t.Helper()
	key = auth.NewKey()
	authtest.Secret("an API key", key)
	sum, err := auth.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, sum.String()
}

// eachWire runs f for each pair of eras.
func eachWire(t *testing.T, f func(t *testing.T, clientEra, up client.Era)) {
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			t.Run(fmt.Sprintf("%s client, %s upstream", client, up), func(t *testing.T) { f(t, client, up) })
		}
	}
}
