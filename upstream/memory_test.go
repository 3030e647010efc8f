package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// purse is an account of a fixed size.
type purse struct {
	mu               sync.Mutex
	used, most, size int64
}

var errPurse = errors.New("the purse is empty")

func (p *purse) Reserve(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > p.size {
		return errPurse
	}
	p.used += n
	p.most = max(p.most, p.used)
	return nil
}

func (p *purse) Release(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
}

func (p *purse) held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// pay has an upstream use the purse.
func (p *purse) pay(o *Options) { o.Memory = func(string) client.Account { return p } }

// TestHandshakesOfManyConnections: what a server says in its handshakes counts for it as long as the
// connections live. A connection too many is refused with the reason, and the others stay.
func TestHandshakesOfManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &purse{size: 2 << 20}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Pad: map[string]int{"initialize": 300 << 10}},
			Config{Isolation: IsolationSession, MaxLinks: 20}, p.pay)
		synctest.Wait()
		connected := 0
		for i := range 12 {
			res := <-begun(r.Upstream, toolCall("echo", `{}`, session(fmt.Sprint(i))))
			if res.err == nil {
				connected++
			} else if text := mustFail(t, res, client.KindUnavailable); !strings.Contains(text, errPurse.Error()) {
				t.Errorf("the error is %q", text)
			}
		}
		if connected < 3 || connected > 5 { // of 300 KiB, or of 512 KiB while a stream is read
			t.Errorf("%d sessions have a connection", connected)
		}
		if s := r.Status(); s.State != StateReady {
			t.Errorf("the first connection is %v: %s", s.State, s.Err)
		}
		before := p.held()
		settle(20 * time.Minute) // the others are unused, and end
		if now := p.held(); now >= before || now == 0 || before > p.size {
			t.Errorf("%d bytes were held by %d connections, and %d by one", before, connected+1, now)
		}
		r.Upstream.Close()
		if p.held() != 0 {
			t.Errorf("%d bytes are held at the end", p.held())
		}
	})
}

// TestListsCountWhileTheyAreOffered: the lists of a server count for it until others replace them,
// with all their pages, also if a later list cannot be read and the earlier one stays.
func TestListsCountWhileTheyAreOffered(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &purse{size: 4 << 20}
				r := newRig(t, upstreamtest.Script{Era: era, Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, PageSize: 10,
					JSONAnswers: true, NoListChanged: true,
					Pad:   map[string]int{"tools/list": 100 << 10, "prompts/list": 200 << 10},
					Rules: []upstreamtest.Rule{{Method: "prompts/list", Skip: 1, Times: 1, Error: []byte(`{"code":-1,"message":"no"}`)}}},
					Config{}, p.pay, func(o *Options) { o.Refresh = time.Hour })
				synctest.Wait()
				pages := int64((len(r.Catalog().Tools) + 9) / 10)
				first := p.held()
				// up to 64 KiB of each list do not count
				if want := (pages*100 + 200) << 10; pages < 2 || first < want-128<<10 || first > 2*want {
					t.Errorf("%d pages of 100 KiB, and one of 200, take %d bytes", pages, first)
				}
				for range 3 { // the first time, the prompts are refused
					settle(2 * time.Hour)
					if now := p.held(); now < first-1000 || now > first+1000 || len(r.Catalog().Prompts) != 1 {
						t.Errorf("the lists take %d bytes, and took %d at first", now, first)
					}
				}
				if n := r.count("prompts/list"); n < 3 {
					t.Errorf("the prompts were read %d times", n)
				}
				r.Upstream.Close()
				if p.held() != 0 {
					t.Errorf("%d bytes are held at the end", p.held())
				}
			})
		})
	}
}

// TestOneListTooLarge: a list other than the tools that has no room is not offered, with the reason.
// The tools are.
func TestOneListTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &purse{size: 1 << 20}
		r := newRig(t, upstreamtest.Script{Era: "modern", Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)},
			Pad: map[string]int{"prompts/list": 3 << 20}}, Config{}, p.pay)
		synctest.Wait()
		c := r.Catalog()
		if s := r.Status(); s.State != StateReady || len(c.Tools) == 0 || len(c.Prompts) != 0 || len(c.Left) != 1 ||
			!strings.Contains(c.Left[0].Reason, errPurse.Error()) || p.most > p.size {
			t.Errorf("the state is %v (%s), with %d tools and %d prompts; left are %v", s.State, s.Err, len(c.Tools), len(c.Prompts), c.Left)
		}
	})
}

// TestPagesTogether: the pages of one list have a limit together.
func TestPagesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Era: "modern", PageSize: 1, Pad: map[string]int{"tools/list": 100 << 10}}, Config{},
			func(o *Options) { o.MessageLimit = 1 << 20 })
		synctest.Wait()
		if s := r.Status(); s.State != StateRetrying || !strings.Contains(s.Err, "its pages together have more than 1 MiB (limits.message)") {
			t.Errorf("the state is %v: %s", s.State, s.Err)
		}
	})
}

// TestItemsAreCountedBeforeTheyAreDecoded: a page of millions of items costs little more than its
// text.
func TestItemsAreCountedBeforeTheyAreDecoded(t *testing.T) {
	page := []byte(`{"tools":[` + strings.Repeat("0,", 2_000_000) + `0],"ttlMs":0,"cacheScope":"private","resultType":"complete"}`)
	var before, after runtime.MemStats
	r := newRig(t, upstreamtest.Script{Era: "modern", Quiet: true, Rules: []upstreamtest.Rule{{Method: "tools/list", Result: page}}}, Config{},
		func(o *Options) { o.Items = 100 })
	runtime.ReadMemStats(&before)
	<-r.Met()
	runtime.ReadMemStats(&after)
	if s, took := r.Status(), after.TotalAlloc-before.TotalAlloc; !strings.Contains(s.Err, "more than 100 items (limits.items)") || took > uint64(20*len(page)) {
		t.Errorf("%s; %d bytes were allocated for a page of %d", s.Err, took, len(page))
	}
}
