package bounded

import "testing"

// TestPut fills a map several times over, first with entries that do not end.
func TestPut(t *testing.T) {
	const most = 50
	var m map[int]bool // by key: whether the entry has ended
	for i := range 5 * most {
		Put(&m, most, i, false, nil)
		if _, there := m[i]; !there || len(m) != min(i+1, most) {
			t.Fatalf("after %d entries %d are there; the last one is there: %v", i+1, len(m), there)
		}
	}
	for key := range m { // another value of a known key removes nothing
		if Put(&m, most, key, true, nil); len(m) != most {
			t.Fatalf("%d entries are there, want %d", len(m), most)
		}
	}
	ended := func(over bool) bool { return over }
	for i := range 2 * most {
		Put(&m, most, -1-i, false, ended)
	}
	for key, over := range m {
		if over {
			t.Errorf("entry %d has ended, and others were removed in its place", key)
		}
	}
}

// TestPutBelowTheLimit: entries that have ended leave also a map that is not full, so that it does
// not grow to its limit.
func TestPutBelowTheLimit(t *testing.T) {
	var m map[int]int // by key: when the entry ends
	for i := range 1000 {
		if Put(&m, 1000, i, i+10, func(end int) bool { return end <= i }); len(m) > 100 {
			t.Fatalf("%d entries are there, of which ten have not ended", len(m))
		}
	}
}

// BenchmarkPut adds to a full map. It allocates nothing.
func BenchmarkPut(b *testing.B) {
	const most = 10_000
	var m map[int]*int
	v := new(int)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Put(&m, most, i, v, func(v *int) bool { return *v > 0 })
	}
}
