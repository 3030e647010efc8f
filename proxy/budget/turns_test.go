package budget

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// multitude is requests of one account that are worked on for a while each.
type multitude struct {
	g    Grant
	done chan time.Duration
}

func newMultitude(b *Budget, principal string) *multitude {
	return &multitude{g: Grant{budget: b, Account: Account{Principal: principal}}, done: make(chan time.Duration, 1000)}
}

// send begins n requests, each of which is worked on for a time.
func (c *multitude) send(n int, each time.Duration) {
	start := time.Now()
	for range n {
		g := c.g
		go func() {
			g.BeginTurn()
			c.done <- time.Since(start)
			time.Sleep(each)
			g.EndTurn()
		}()
		synctest.Wait()
	}
}

// begun returns when the requests were begun, of those that are by now.
func (c *multitude) begun() (list []time.Duration) {
	synctest.Wait()
	for range len(c.done) {
		list = append(list, <-c.done)
	}
	return list
}

// TestSafety8Turns: of many requests of one account few are worked on at once, and fewer where
// there are other accounts, whose requests wait for none of them.
func TestSafety8Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Workers: Workers{Alone: 4, Shared: 2}}
		hog, other := newMultitude(b, "hog"), newMultitude(b, "other")
		time.Sleep(2 * sharedFor)
		other.g.BeginTurn() // a request of each begins a time in which neither is alone
		other.g.EndTurn()
		hog.send(1, 0)
		time.Sleep(2 * sharedFor)
		hog.begun()

		hog.send(20, time.Second)
		if n := len(hog.begun()); n != 4 {
			t.Errorf("%d requests of an account that is alone are worked on at once, want 4", n)
		}
		other.send(1, time.Second)
		if list := other.begun(); len(list) != 1 || list[0] != 0 {
			t.Errorf("the request of another account was begun at %v, want at once", list)
		}
		time.Sleep(1100 * time.Millisecond)
		if n := len(hog.begun()); n != 2 {
			t.Errorf("%d requests of an account that is not alone any more were begun in place of 4, want 2", n)
		}
		time.Sleep(time.Minute)
		if n := len(hog.begun()); n != 14 {
			t.Errorf("%d of 14 requests that waited were begun in a minute", n)
		}
	})
}

// TestSafety8Breaks: while requests of an account wait, there are breaks, in which the requests of
// others are found.
func TestSafety8Breaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, alone := range []bool{false, true} {
			b := &Budget{Workers: Workers{Alone: 1, Shared: 1}}
			hog, other := newMultitude(b, "hog"), newMultitude(b, "other")
			other.send(1, 0)
			hog.send(1, 0)
			if time.Sleep(time.Microsecond); alone {
				time.Sleep(2 * sharedFor)
			}
			hog.begun()
			hog.send(30, unbroken/5)
			time.Sleep(time.Second)
			began, breaks := hog.begun(), 0
			for i := 1; i < len(began); i++ {
				if began[i]-began[i-1] >= breakTime {
					breaks++
				}
			}
			if want := map[bool]int{false: 4, true: 0}[alone]; len(began) != 30 || breaks < want || alone && breaks > 0 {
				t.Errorf("there are %d breaks between %d requests that wait in line (Alone: %t), want %d", breaks, len(began), alone, want)
			}
			if its := b.of[hog.g.Account]; its.working != 0 || its.resting || its.waiting != nil {
				t.Errorf("%d requests are worked on and %d wait at the end", its.working, len(its.waiting))
			}
		}
	})
}

// then is a ResponseWriter of a connection that waits when it is told to.
type then struct {
	*httptest.ResponseRecorder
	f func()
}

func (w *then) Then(f func()) { w.f = f }

// TestSafety8Pace: a connection reads its next request after those of its account that wait
// already.
func TestSafety8Pace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Workers: Workers{Alone: 1, Shared: 1}}
		hog := newMultitude(b, "hog")
		w := &then{httptest.NewRecorder(), nil}
		g := hog.g
		g.BeginTurn()
		g.EndTurn()
		if g.Pace(w); w.f != nil {
			t.Error("a connection waits although no request does")
		}
		hog.send(3, time.Second)
		if g.Pace(w); w.f == nil {
			t.Fatal("a connection does not wait although requests do")
		}
		start := time.Now()
		w.f()
		if took := time.Since(start); took < 3*time.Second {
			t.Errorf("a connection has waited for %v, want until 3 requests were worked on for a second each", took)
		}
		time.Sleep(time.Minute)
	})
}
