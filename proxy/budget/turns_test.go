package budget

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurnsAreShared: one account asks for a hundred turns of a second. Another one that comes later
// gets its turn after at most one turn of the first account, and nothing is kept at the end.
func TestTurnsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var mu sync.Mutex
		most := 0
		busy := func(a string) {
			end, err := turns.Turn(t.Context(), Account{Principal: a})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			most = max(most, len(turns.free))
			mu.Unlock()
			time.Sleep(time.Second) // of the bubble
			end()
		}
		for range 100 {
			go busy("greedy")
		}
		for i := range 5 {
			go busy("other" + strconv.Itoa(i))
		}
		synctest.Wait()
		began := time.Now()
		busy("late")
		if waited := time.Since(began); waited > 8*time.Second {
			t.Errorf("an account waited %v behind six others", waited)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(turns.queue) != 0 || len(turns.free) != 0 {
			t.Errorf("%d accounts and %d turns are kept", len(turns.queue), len(turns.free))
		}
		if most > cap(turns.free) {
			t.Errorf("%d turns at the same time", most)
		}
	})
}

// TestTurnEndsWithItsCaller: a caller that leaves while it waits takes no turn, whichever of the two
// queues it waits in.
func TestTurnEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var ends []func()
		for i := range 64 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if end, err := turns.Turn(ctx, Account{Principal: strconv.Itoa(i % 8)}); err == nil {
				ends = append(ends, end)
			} else if err != context.DeadlineExceeded {
				t.Fatal(err)
			}
		}
		if len(ends) != cap(turns.free) {
			t.Errorf("%d turns were given, want %d", len(ends), cap(turns.free))
		}
		for _, end := range ends {
			end()
		}
		if len(turns.queue) != 0 || len(turns.free) != 0 {
			t.Errorf("%d accounts and %d turns are kept", len(turns.queue), len(turns.free))
		}
	})
}
