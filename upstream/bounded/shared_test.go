package bounded

import "testing"

// TestSharedOwners fills a map by one owner several times over. The entries of another owner stay, and
// the first one has its newest.
func TestSharedOwners(t *testing.T) {
	const most = 50
	s := Shared[string, int, bool]{Max: most}
	for i := range 3 {
		s.Put("ann", -1-i, true, nil)
	}
	for i := range 10 * most {
		if s.Put("bob", i, true, nil); s.Len() != min(i+4, most) {
			t.Fatalf("after %d entries of bob %d are there", i+1, s.Len())
		}
	}
	for key, want := range map[int]bool{-1: true, -3: true, 10*most - 1: true, 10*most - most + 3: true, 9*most + 2: false} {
		if _, there := s.Get(key); there != want {
			t.Errorf("entry %d is there: %t, want %t", key, there, want)
		}
	}
	var bobs []int
	s.Each(func(owner string, key int, _ bool) {
		if owner == "bob" {
			bobs = append(bobs, key)
		}
	})
	for i, key := range bobs {
		if key != 9*most+3+i {
			t.Fatalf("the entries of bob are %d", bobs)
		}
	}
	for i := range most { // many owners: none has more than one, and the last one is there
		owner := string(rune('A' + i))
		if s.Put(owner, 1000+i, true, nil); s.Len() != most {
			t.Fatalf("%d entries are there", s.Len())
		}
		if _, there := s.Get(1000 + i); !there && i < most-3 {
			t.Errorf("the entry of owner %d is not there", i)
		}
	}
	if len(s.owners) != len(s.most) || s.owners["bob"] != nil {
		t.Errorf("%d owners are known, and %d in the heap", len(s.owners), len(s.most))
	}
}

// TestSharedForgets: entries that have ended leave also a map that is not full, those of other owners too.
func TestSharedForgets(t *testing.T) {
	s := Shared[int, int, int]{Max: 1000} // the values are when the entries end
	for i := range 1000 {
		if s.Put(i%5, i, i+10, func(end int) bool { return end <= i }); s.Len() > 12 {
			t.Fatalf("%d entries are there, of which ten have not ended", s.Len())
		}
	}
	s.Put(1, 2000, 2010, func(int) bool { return true })
	if s.Len() != 1 || len(s.owners) != 1 || len(s.most) != 1 {
		t.Errorf("%d entries of %d owners are there", s.Len(), len(s.owners))
	}
	var none Shared[int, int, int]
	if none.Put(1, 1, 1, nil); none.Len() != 0 {
		t.Error("the zero value keeps an entry")
	}
}

// BenchmarkSharedPut adds to a full map of two owners.
func BenchmarkSharedPut(b *testing.B) {
	s := Shared[int, int, int]{Max: 10_000}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Put(i%2, i, i, func(int) bool { return false })
	}
}
