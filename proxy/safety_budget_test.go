package proxy

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
)

// TestSafety8Newcomers takes at random for many accounts that always want more: no account has more
// than half of what the others leave, and one that has nothing gets something as long as there is
// something.
func TestSafety8Newcomers(t *testing.T) {
	const total, accounts = 1000, 12
	b := &budget{total: [quotas]int64{ofRequests: total}}
	all := make([]*grant, accounts)
	for i := range all {
		all[i] = &grant{budget: b, account: account{principal: strconv.Itoa(i)}}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 200_000 {
		g := all[rng.IntN(accounts)]
		if rng.IntN(10) == 0 && g.held[ofRequests] > 0 { // each use ends some time
			g.give(ofRequests, 1)
		} else {
			its, used := g.held[ofRequests], b.inUse()[ofRequests]
			err := g.reserve(ofRequests, 1)
			if allowed := used < total && (its == 0 || its+1 <= (total-(used-its))/2); (err == nil) != allowed {
				t.Fatalf("step %d: an account with %d, of %d in use, takes one: %v, want %t", step, its, used, err, allowed)
			}
		}
	}
	for i, g := range all { // at the end they have about the same, and as much is free
		if n := g.held[ofRequests]; n < total/(accounts+1)*8/10 || n > total/(accounts+1)*12/10 {
			t.Errorf("account %d has %d of %d at the end, want about %d", i, n, total, total/(accounts+1))
		}
	}
}

// TestSafety8BalancesAreForgotten: there is no end to accounts, and those that use nothing take no
// memory.
func TestSafety8BalancesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{total: [quotas]int64{ofRequests: 10}}
		kept := &grant{budget: b, account: account{principal: "kept"}}
		early := &grant{budget: b, account: account{principal: "early"}}
		if err := kept.reserve(ofRequests, 2); err != nil || early.reserve(ofRequests, 1) != nil {
			t.Fatal(err)
		}
		early.release()
		for i := range 100_000 {
			g := grant{budget: b, account: account{principal: strconv.Itoa(i)}}
			if err := g.reserve(ofRequests, 1); err != nil {
				t.Fatal(err)
			}
			g.release()
		}
		if n := len(b.of); n > 2*fewBalances {
			t.Errorf("%d accounts are remembered", n)
		}
		if err := early.reserve(ofRequests, 1); err != nil || b.of[early.account] == nil || b.of[early.account].used[ofRequests] != 1 {
			t.Errorf("an account that was forgotten and comes back is not counted (%v)", err)
		}
		early.release()
		kept.release()
		if b.inUse() != [quotas]int64{} {
			t.Errorf("%v is used at the end", b.inUse())
		}
	})
}

// reluctant is a client that takes no answer.
type reluctant struct {
	*httptest.ResponseRecorder
	gone chan struct{}
}

func (r *reluctant) Write([]byte) (int, error) {
	<-r.gone
	return 0, io.ErrClosedPipe
}

// TestSafety8AnswersThatNobodyReads: a principal asks for large answers and reads none. They take
// its share of the bytes, and another principal gets its own.
func TestSafety8AnswersThatNobodyReads(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era upstream.Era) {
		const answer = 1 << 20
		w := newTown(t, Limits{Body: 1 << 20, Bodies: 16 << 20}, answer, nil, nil)
		hog, other := w.visitor(era, "user0"), w.visitor(era, "user1")
		gone := make(chan struct{})
		header, params := http.Header{}, `"name":"up__tool1","arguments":{}`
		if era == upstream.EraModern {
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
		if held := w.budget.inUse()[ofBytes]; len(now) != 0 || held > 8<<20 || held < 7<<20 {
			t.Errorf("50 answers of 1 MiB that nobody reads take %d bytes, want at most half of 16 MiB", held)
		}
		succeeded(t, "the call of another", other.call(t.Context(), 1))
		close(gone)
		later()
		w.unused()
	})
}

// TestSafety8EventsThatAreKept: the events of a stream, which its client could come back for, count
// until they are given up, which they are where their account has its share.
func TestSafety8EventsThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{total: [quotas]int64{ofBytes: 1 << 20}}
		g := grant{budget: b, account: account{principal: "hog"}}
		s := &session{version: mcp.ProtocolVersion20250326}
		message := []byte(`"` + strings.Repeat("x", 10_000) + `"`)
		var all []*record
		for range 2 * maxRecords {
			r := s.record(g.empty())
			for range 10 {
				r.add(message)
			}
			all = append(all, r)
		}
		if n := b.inUse()[ofBytes]; n > 1<<19 || n < 1<<18 {
			t.Errorf("events of %d streams take %d bytes, want at most half of 1 MiB", len(all), n)
		}
		last := all[len(all)-1]
		if events, ended, _ := last.after(-1); len(events) > 0 && len(events) < 10 || len(events) == 0 && !ended {
			t.Errorf("%d of 10 events of the last stream can be had", len(events))
		}
		for _, r := range all {
			r.end(s)
		}
		time.Sleep(2 * recordKept)
		synctest.Wait()
		if b.inUse() != [quotas]int64{} || len(s.records) != 0 {
			t.Errorf("%v is used by %d streams that ended two minutes ago", b.inUse(), len(s.records))
		}
	})
}

// TestSafety8SubscriptionsTakeMemory: what a session subscribes to counts until it unsubscribes.
func TestSafety8SubscriptionsTakeMemory(t *testing.T) {
	b := &budget{total: [quotas]int64{ofBytes: 1 << 20}}
	ls := &listeners{open: map[*listener]struct{}{}, subscribers: map[*subscriber]struct{}{}}
	backend := cannedBackend(t, 1, 10)
	x := &exchange{caller: caller{endpoint: &endpoint{}}, held: grant{budget: b, account: account{principal: "hog"}}}
	var hearers []*subscriber
	uri, n := "file:///"+strings.Repeat("x", 1000), 0
	for range 1000 {
		h := ls.subscriber(x, nil, &session{})
		if err := h.subscribed(resourceKey{"up", uri}, subscription{exposed: uri, backend: backend}); err == nil {
			n++
		}
		hearers = append(hearers, h)
	}
	if want := 1 << 19 / 2216; n != want {
		t.Errorf("%d of 1000 sessions have subscribed, want %d", n, want)
	}
	for _, h := range hearers {
		ls.release(h, nothing)
	}
	if b.inUse() != [quotas]int64{} {
		t.Errorf("%v is used when nobody has subscribed", b.inUse())
	}
}
