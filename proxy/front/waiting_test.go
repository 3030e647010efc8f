package front

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// chatty is a backend whose tool1 sends many large notifications, and answers when the gate opens.
type chatty struct {
	*proxytest.Backend
	gate chan struct{}
}

// chats is how many log messages and how much progress chatty sends, of this size.
const chats, chatSize = 40, 512 << 10

func (b *chatty) Call(ctx context.Context, c *upstream.Call) (client.Result, error) {
	if c.Name == "tool1" {
		large := strings.Repeat("x", chatSize)
		for i := range chats {
			c.Peer.Notify(string(mcp.MethodNotificationMessage), fmt.Appendf(nil, `{"level":"info","data":"%s"}`, large))
			c.Peer.Notify(string(mcp.MethodNotificationProgress),
				fmt.Appendf(nil, `{"progressToken":1,"progress":%d,"message":"%s"}`, i, large))
		}
		<-b.gate
	}
	return b.Backend.Call(ctx, c)
}

// hesitant is a client that reads nothing until it begins.
type hesitant struct {
	*httptest.ResponseRecorder
	begins chan struct{}
}

func (r *hesitant) Write(p []byte) (int, error) {
	<-r.begins
	return r.ResponseRecorder.Write(p)
}

// TestWaitingNotificationsTakeTheShare: a server sends large notifications during the call of a client
// that does not read. They take the share of the principal in bytes, and what exceeds it is dropped, with
// one line in the log for each call. The newest progress and the answer reach the client, and another
// principal has its own share.
func TestWaitingNotificationsTakeTheShare(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		w := newTown(t, proxy.Limits{Body: 1 << 20, Bodies: 16 << 20}, 10, nil, nil)
		gate, begins := make(chan struct{}), make(chan struct{})
		w.ApplyBackends(scope.Config{Policy: policy.Open(), Guard: &auth.Guard{Verifier: newMany(20), Log: authtest.Log(t)}},
			[]view.Backend{&chatty{proxytest.NewBackend(t, 2, 10), gate}})
		slow, other := w.visitor(era, "user0"), w.visitor(era, "user1")
		header, params := http.Header{}, `"name":"up__tool1","arguments":{},"_meta":{"progressToken":1}`
		if era == client.EraModern {
			header = modernHeader("tools/call", "up__tool1")
			params = `"name":"up__tool1","arguments":{},` + strings.Replace(modernMeta, `"_meta":{`,
				`"_meta":{"progressToken":1,"io.modelcontextprotocol/logLevel":"debug",`, 1)
		}
		const calls = 3
		now, later := several(calls, func() *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mcp",
				strings.NewReader(`{"jsonrpc":"2.0","id":`+requestID()+`,"method":"tools/call","params":{`+params+`}}`))
			r.Header = slow.header.Clone()
			for name, values := range header {
				r.Header[name] = values
			}
			a := &hesitant{httptest.NewRecorder(), begins}
			slow.ServeHTTP(a, r)
			return a.ResponseRecorder
		})
		if held := w.Used()[budget.Bytes]; len(now) != 0 || held > 8<<20+100<<10 || held < 6<<20 {
			t.Errorf("%d calls with %d notifications of 512 KiB each hold %d bytes, want at most half of 16 MiB", calls, 2*chats, held)
		}
		succeeded(t, "a list of another", other.post(t.Context(), otherList(era), listHeader(era)))
		close(gate)
		synctest.Wait()
		close(begins)
		for i, a := range later() {
			text := a.Body.String()
			if i == 0 && !strings.Contains(text, fmt.Sprintf(`"progress":%d,`, chats-1)) && strings.Contains(text, `"progress":`) {
				t.Errorf("the client reads %d bytes without the newest progress", len(text))
			}
			if !strings.Contains(text, `"result":`) {
				t.Errorf("the client reads %d bytes without the answer", len(text))
			}
		}
		w.unused()
		if n := strings.Count(w.log.String(), "notifications of a call were dropped"); n != calls {
			t.Errorf("%d lines of the log are about dropped notifications, want one for each of %d calls", n, calls)
		}
	})
}

// otherList is a small request, and listHeader has its headers.
func otherList(era client.Era) string {
	if era == client.EraModern {
		return `{"jsonrpc":"2.0","id":` + requestID() + `,"method":"tools/list","params":{` + modernMeta + `}}`
	}
	return `{"jsonrpc":"2.0","id":` + requestID() + `,"method":"tools/list"}`
}

func listHeader(era client.Era) http.Header {
	if era == client.EraModern {
		return modernHeader("tools/list", "")
	}
	return nil
}

// TestWaitingEventsKeepWhatMustStay: beyond the share and the number of events, the newest progress
// replaces the earlier one, log messages are dropped, and questions stay.
func TestWaitingEventsKeepWhatMustStay(t *testing.T) {
	b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20})
	g := b.Grant(budget.Account{Principal: "ann"}, "")
	for _, row := range []struct {
		most int
		size int64 // of each event; the share is 512 KiB
		send string
		want string // q, p and l: questions, progress and log messages, numbered from 0
		lost string // progress and log messages
	}{
		{64, 1 << 10, "qplpl", "q0p1l2p3l4", "0 0"},
		{2, 1 << 10, "plpp", "l1p3", "2 0"},
		{2, 1 << 10, "llpl", "l0l1", "1 1"},
		{2, 1 << 10, "llqq", "q2q3", "0 2"},
		{2, 1 << 10, "qqq", "q0q1", "0 0"},
		{64, 200 << 10, "lpll", "l0p1", "0 2"},
		{64, 200 << 10, "lppp", "l0p3", "2 0"},
		{64, 200 << 10, "llp", "l0l1", "1 0"},
		{64, 200 << 10, "lpq", "p1q2", "0 1"},
		{64, 200 << 10, "qqqq", "q0q1q2q3", "0 0"},
		{64, 600 << 10, "qpl", "q0", "1 1"},
	} {
		t.Run(fmt.Sprint(row.most, row.size, row.send), func(t *testing.T) {
			var w waiting
			w.begin(&g)
			for i, c := range row.send {
				kind := map[rune]eventKind{'q': lasting, 'p': progressed, 'l': logged}[c]
				if size, ok := w.admit(kind, row.size, row.most); ok {
					w.add(waitingEvent{[]byte(fmt.Sprintf("%c%d", c, i)), kind, size})
				}
			}
			if n := b.Used()[budget.Bytes]; n > 512<<10 {
				t.Errorf("the events hold %d bytes, want at most half of 1 MiB", n)
			}
			list := w.take()
			got := ""
			for _, e := range list {
				got += string(e.text)
			}
			if lost := fmt.Sprint(w.dropped[progressed], w.dropped[logged]); got != row.want || lost != row.lost {
				t.Errorf("%s stay, and %s are lost; want %s and %s", got, lost, row.want, row.lost)
			}
			if w.written(list); b.Used() != [budget.Quotas]int64{} {
				t.Errorf("%v is used after all was written", b.Used())
			}
		})
	}
}
