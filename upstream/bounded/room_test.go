package bounded

import (
	"testing"
)

// TestCachesShareARoom puts values into caches that share a room and takes them out again. The
// bytes are those of what is there, what was used stays longer than what was not, and what is too
// large stays out.
func TestCachesShareARoom(t *testing.T) {
	r := &Room{Max: 20 * (perKept + 100)}
	left := map[int]int{}
	a := Cache[int, int]{Room: r, Came: func(v int) { left[v]-- }, Left: func(v int) { left[v]++ }}
	b := Cache[string, int]{Room: r}
	check := func(want int) {
		t.Helper()
		if n := len(a.Of) + len(b.Of); n != want || r.order.Len() != n || r.Used != n*(perKept+100) {
			t.Fatalf("%d values are kept, %d in order, with %d bytes; want %d", n, r.order.Len(), r.Used, want)
		}
	}
	for i := range 15 {
		a.Put(i, i, 100)
	}
	b.Put("b", 1, 100)
	check(16)
	for i := range 100 {
		a.Put(100+i, i, 100)
		a.Get(3)
		if _, ok := b.Get("b"); !ok {
			t.Fatalf("after %d others a value that is in use has left", i+1)
		}
	}
	check(20)
	if _, ok := a.Get(4); ok {
		t.Error("a value that is not used is still there")
	}
	if v, ok := a.Get(3); !ok || v != 3 {
		t.Error("a value that is in use has left")
	}
	a.Put(3, 33, 100)
	if v, _ := a.Get(3); v != 33 {
		t.Errorf("the value is %d, want the new one", v)
	}
	if v := a.Keep(3, func() (int, int) { return 0, 100 }); v != 33 {
		t.Errorf("the value is %d, want the one that is there", v)
	}
	if a.Put(1, 1, r.Max/2); len(a.Of)+len(b.Of) != 20 {
		t.Error("a value that takes half of the room is kept")
	}
	r.Mu.Lock()
	n := len(b.Of)
	a.End()
	r.Mu.Unlock()
	if check(n); len(left) == 0 {
		t.Error("nothing has left")
	}
	for v, n := range left {
		if n != 0 {
			t.Errorf("the value %d has left %d times more than it came", v, n)
		}
	}
	if a.Put(1, 1, 100); len(a.Of) != 0 {
		t.Error("a cache that has ended keeps a value")
	}
	r.Close()
	check(0)
	if b.Put("b", 1, 1); len(b.Of) != 0 {
		t.Error("a room that is closed keeps a value")
	}
}
