package front

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/upstream/client"
)

// reluctant is a client that takes no answer.
type reluctant struct {
	*httptest.ResponseRecorder
	gone chan struct{}
}

func (r *reluctant) Write([]byte) (int, error) {
	<-r.gone
	return 0, io.ErrClosedPipe
}

// TestUnreadAnswersTakeTheShare: a principal asks for large answers and reads none. They take
// its share of the bytes, and another principal gets its own.
func TestUnreadAnswersTakeTheShare(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		const answer = 1 << 20
		w := newTown(t, proxy.Limits{Body: 1 << 20, Bodies: 16 << 20}, answer, nil, nil)
		hog, other := w.visitor(era, "user0"), w.visitor(era, "user1")
		gone := make(chan struct{})
		header, params := http.Header{}, `"name":"up__tool1","arguments":{}`
		if era == client.EraModern {
			header, params = modernHeader("tools/call", "up__tool1"), params+","+modernMeta
		}
		now, later := several(50, func() *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mcp",
				strings.NewReader(`{"jsonrpc":"2.0","id":`+requestID()+`,"method":"tools/call","params":{`+params+`}}`))
			r.Header = hog.header.Clone()
			for name, values := range header {
				r.Header[name] = values
			}
			a := &reluctant{httptest.NewRecorder(), gone}
			hog.ServeHTTP(a, r)
			return a.ResponseRecorder
		})
		if held := w.Used()[budget.Bytes]; len(now) != 0 || held > 8<<20 || held < 7<<20 {
			t.Errorf("50 answers of 1 MiB that nobody reads take %d bytes, want at most half of 16 MiB", held)
		}
		succeeded(t, "the call of another", other.call(t.Context(), 1))
		close(gone)
		later()
		w.unused()
	})
}

// TestKeptEventsTakeTheShare: the events of a stream, which its client could come back for, count
// until they are given up, which they are where their account has its share.
func TestKeptEventsTakeTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20})
		g := b.Grant(budget.Account{Principal: "hog"}, "")
		s := &session{sealedSession: sealedSession{Version: mcp.ProtocolVersion20250326}}
		message := []byte(`"` + strings.Repeat("x", 10_000) + `"`)
		var all []*record
		for range 2 * maxRecords {
			r := s.record(g.Empty())
			for range 10 {
				r.Add(message)
			}
			all = append(all, r)
		}
		if n := b.Used()[budget.Bytes]; n > 1<<19 || n < 1<<18 {
			t.Errorf("events of %d streams take %d bytes, want at most half of 1 MiB", len(all), n)
		}
		last := all[len(all)-1]
		if events, ended, _ := last.After(-1); len(events) > 0 && len(events) < 10 || len(events) == 0 && !ended {
			t.Errorf("%d of 10 events of the last stream can be had", len(events))
		}
		for _, r := range all {
			r.End(func() { s.forgetRecord(r) })
		}
		time.Sleep(2 * recordKept)
		synctest.Wait()
		if b.Used() != [budget.Quotas]int64{} || len(s.records) != 0 {
			t.Errorf("%v is used by %d streams that ended two minutes ago", b.Used(), len(s.records))
		}
	})
}
