package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"junction/upstream/pace"
)

// TestTurnsOfANetworkAreBounded: an address, a /64 and a /48 have at most so many queries at once, and so many
// that wait; the next one is refused at once. All unknown networks together leave the room of known ones free.
func TestTurnsOfANetworkAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		from         func(i int) netip.Addr
		runs, queued int
	}{
		"an address": {func(int) netip.Addr { return netip.MustParseAddr("203.0.113.9") }, nearTurns, nearWaits},
		"a /64":      {func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1:2::%x", i+1)) }, nearTurns, nearWaits},
		"a /48":      {func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i+1)) }, wideTurns, wideWaits},
		"all": {func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }, mostTurns - knownTurns,
			mostWaits},
	} {
		q, runs, queued := new(turns), 0, 0
		var first *turn
		for i := range 2 * mostWaits {
			turn, err := q.join(tt.from(i), time.Now())
			switch {
			case err != nil && !errors.Is(err, errTooManyQueries):
				t.Fatal(err)
			case err != nil:
			case pace.IsClosed(turn.begin):
				first, runs = turn, runs+1
			default:
				queued++
			}
		}
		if runs != tt.runs || queued != tt.queued {
			t.Errorf("%s: %d queries run and %d wait, want %d and %d", name, runs, queued, tt.runs, tt.queued)
		}
		q.leave(first)
		if q.running != tt.runs || q.waits != tt.queued-1 {
			t.Errorf("%s: after one has ended, %d queries run and %d wait", name, q.running, q.waits)
		}
	}
}
