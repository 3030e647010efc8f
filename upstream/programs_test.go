package upstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
)

// TestManyNamesGetNoMoreRoom: callers without authentication take as many processes as they get, under names that
// they choose. A program that has a process gets others, in further folders, and loses none.
func TestManyNamesGetNoMoreRoom(t *testing.T) {
	type step struct{ program, folder string }
	each := func(n int, f func(i int) step) (list []step) {
		for i := range n {
			list = append(list, f(i))
		}
		return list
	}
	number := func(prefix string, i int) string { return fmt.Sprint(prefix, i) }
	for _, tt := range []struct {
		name   string
		links  int // max_links
		others []step
		taken  int // processes that the others get
		more   int // processes that the program gets then
	}{
		{"alone", 32, nil, 0, 15},
		{"alone, with the default of other entries", 8, nil, 0, 3},
		{"with few processes", 4, nil, 0, 1},
		{"a name for each call", 32, each(40, func(i int) step { return step{number("p", i), "x"} }), 18, 6},
		{"a name and a folder for each call", 32, each(40, func(i int) step { return step{number("p", i), number("x", i)} }), 18, 6},
		{"two names", 32, each(60, func(i int) step { return step{number("p", i%2), number("x", i)} }), 23, 3},
		{"one other program", 32, each(60, func(i int) step { return step{"p", number("x", i)} }), 16, 6},
		{"three agents in six folders each", 32, each(12, func(i int) step { return step{number("p", i%2), number("x", i/2)} }), 12, 14},
		{"with the default of other entries", 8, each(40, func(i int) step { return step{number("p", i), "x"} }), 6, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pool{name: "up", connConfig: Config{Isolation: IsolationFolder, MaxLinks: tt.links}, log: authtest.Log(t),
					links: map[linkKey]*link{}}
				p.links[p.reading()] = &link{pool: p, key: p.reading(), readsShared: true}
				take := func(s step) (got bool) {
					key := linkKey{holder: folderHolder(&Folders{key: s.folder}, ""), user: s.program}
					if p.links[key] != nil {
						return false
					}
					if got = len(p.links) < tt.links && !p.full(key); !got {
						if p.takeIdle(key) != nil {
							t.Errorf("a process that was used makes room for %+v", s)
						}
						return false
					}
					p.links[key] = &link{pool: p, key: key, born: time.Now(),
						linkState: linkState{state: StateReady, used: time.Now(), changed: make(chan struct{})}}
					time.Sleep(time.Millisecond)
					return true
				}
				if !take(step{"mine", "first"}) {
					t.Fatal("the first process has no room")
				}
				count := func(steps []step) (n int) {
					for _, s := range steps {
						if take(s) {
							n++
						}
					}
					return n
				}
				if got := count(tt.others); got != tt.taken {
					t.Errorf("the others have %d processes, want %d", got, tt.taken)
				}
				if got := count(each(40, func(i int) step { return step{"mine", number("mine", i)} })); got != tt.more {
					t.Errorf("the program gets %d further processes, want %d", got, tt.more)
				}
			})
		})
	}
}

// TestUnusedProcessMakesRoomInItsShare: the process that was unused for the longest time makes room for another one of
// its share. Those of other shares stay, as long as they have no more than their room.
func TestUnusedProcessMakesRoomInItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{name: "up", connConfig: Config{Isolation: IsolationFolder, MaxLinks: 16}, log: authtest.Log(t), links: map[linkKey]*link{}}
		key := func(program, in string) linkKey {
			return linkKey{holder: folderHolder(&Folders{key: in}, ""), user: program}
		}
		add := func(program, in string) *link {
			k := key(program, in)
			p.links[k] = &link{pool: p, key: k, born: time.Now(),
				linkState: linkState{state: StateReady, used: time.Now(), changed: make(chan struct{})}}
			time.Sleep(time.Second)
			return p.links[k]
		}
		add("mine", "a")
		var oldest *link
		for i := range 8 {
			if l := add("other", fmt.Sprint(i)); oldest == nil {
				oldest = l
			}
		}
		if !p.full(key("other", "next")) || !p.allHeld(key("other", "next")) || p.full(key("mine", "next")) {
			t.Error("the shares have other sizes")
		}
		time.Sleep(keptFor)
		if got := p.takeIdle(key("other", "next")); got != oldest {
			t.Errorf("%+v makes room", got)
		}
	})
}
