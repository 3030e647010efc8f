package pages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/proxy"
)

// TestCalls adds calls for some minutes: the last ones are kept, without their arguments, and the
// counts are those of the last minute.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Calls
		for i := range 120 {
			l.Add(&proxy.CallInfo{Principal: "key:ci", Client: "x\x1b[31m", Upstream: "a", Method: "tools/call",
				Name:    fmt.Sprint("a__", i, strings.Repeat("é", 200)),
				Outcome: "ok", Arguments: []byte(`{"canary":1}`)})
			l.Add(&proxy.CallInfo{Upstream: "a", Name: "refused", Outcome: proxy.Denied})
			l.Add(&proxy.CallInfo{Name: "refused", Outcome: proxy.Invalid})
			time.Sleep(time.Second)
		}
		if n := l.Rate("a"); n < 50 || n > 60 {
			t.Errorf("a has %d calls a minute, one a second", n)
		}
		list := l.Last()
		if len(list) != len(l.last) || !strings.HasPrefix(list[0].Name, "a__119é") || !strings.HasPrefix(list[49].Name, "a__70é") {
			t.Errorf("%d calls are kept, from %+v to %+v", len(list), list[0], list[len(list)-1])
		}
		if c := list[0]; len(c.Name) > longest || c.Client != "x[31m" || c.Caller != "key:ci" || strings.Contains(fmt.Sprint(c), "canary") {
			t.Errorf("the last call is %+v", c)
		}
		if slices.ContainsFunc(list, func(c Call) bool { return c.Name == "refused" }) {
			t.Error("a refused request takes the place of a call")
		}
		if c := l.LastOf("a"); c == nil || !strings.HasPrefix(c.Name, "a__119é") || c.Outcome != "ok" || time.Since(c.Time) != time.Second {
			t.Errorf("the last call of a is %+v", c)
		}
		if c := l.LastOf("b"); c != nil {
			t.Errorf("the last call of b is %+v", c)
		}
		time.Sleep(time.Minute)
		if n := l.Rate("a"); n != 0 {
			t.Errorf("a minute later a has %d calls a minute", n)
		}
	})
}

// BenchmarkCalls is what a call pays for the status page, after its answer was sent.
func BenchmarkCalls(b *testing.B) {
	var l Calls
	c := &proxy.CallInfo{
		Principal: "local", Client: "claude-code", Upstream: "files", Method: "tools/call", Name: "files__read_file", Outcome: "ok",
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Add(c)
	}
}
