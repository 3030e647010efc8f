package pages

import (
	"testing"
	"testing/synctest"
	"time"

	"junction/proxy"
)

// TestFiguresOfTheHour: the figures have the calls and failures of the last hour, with bounds above half of them and
// above 95 of 100, of one server and of all; after an hour they are empty.
func TestFiguresOfTheHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Calls
		for i := range 100 {
			c := proxy.CallInfo{Upstream: "a", Name: "x", Outcome: proxy.OK, Took: 3 * time.Millisecond}
			if i%10 == 0 {
				c.Took, c.Outcome = 900*time.Millisecond, proxy.Timeout
			}
			l.Add(&c)
			time.Sleep(time.Second)
		}
		l.Add(&proxy.CallInfo{Upstream: "b", Name: "x", Outcome: proxy.OK, Took: time.Hour})
		if f := l.Hour("a"); f != (Figures{Calls: 100, Errors: 10, P50: 4 * time.Millisecond, P95: 1024 * time.Millisecond}) {
			t.Errorf("a has %+v", f)
		}
		if f := l.Hour("b"); f.Words() != "half took 16 s or more, 5 of 100 took 16 s or more" {
			t.Errorf("b has %+v: %s", f, f.Words())
		}
		if f := l.Hour(""); f.Calls != 101 || f.Errors != 10 {
			t.Errorf("all have %+v", f)
		}
		if f := l.Hour("none"); f != (Figures{}) || f.Words() != "" {
			t.Errorf("another server has %+v", f)
		}
		time.Sleep(time.Hour)
		if f := l.Hour(""); f != (Figures{}) {
			t.Errorf("after an hour, all have %+v", f)
		}
	})
}

// TestFiguresAllocateNothing: a call of a known server costs its counters, and no memory.
func TestFiguresAllocateNothing(t *testing.T) {
	var l Calls
	c := &proxy.CallInfo{Principal: "local", Client: "c", Upstream: "a", Method: "tools/call", Name: "a__x", Outcome: proxy.OK}
	for range 100 {
		l.Add(c)
	}
	if n := testing.AllocsPerRun(1000, func() { l.Add(c) }); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}
