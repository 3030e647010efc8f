package budget

import (
	"testing"
	"testing/synctest"
	"time"

	"junction/policy"
)

// TestMetersOfTwoSurfaces has a principal call where its policies give it much in between its calls
// where they give it little: that makes the little no more.
func TestMetersOfTwoSurfaces(t *testing.T) {
	little, much, other := policy.Limits{Rate: 1. / 3600, Burst: 2}, policy.Limits{Rate: 100, Burst: 100}, policy.Limits{Concurrent: 100}
	synctest.Test(t, func(t *testing.T) {
		var ms Meters
		call := func(l policy.Limits) bool {
			leave, _, err := ms.Enter(t.Context(), "me", l, false)
			if err == nil {
				leave()
			}
			return err == nil
		}
		made := 0
		for range 20 {
			if call(little) {
				made++
			}
			if !call(much) || !call(other) {
				t.Error("a call within its limits is refused")
			}
			time.Sleep(time.Second)
		}
		if made != 2 {
			t.Errorf("%d calls were made of 2 that are allowed", made)
		}
		time.Sleep(2 * time.Hour)
		if first, second, third := call(little), call(little), call(little); !first || !second || third {
			t.Error("time does not give back what was used")
		}
		for i := range 100 {
			call(policy.Limits{Rate: policy.Rate(i + 1), Burst: 1})
			time.Sleep(time.Second)
		}
		if n := len(ms.byPrincipal["me"].rates); n > maxRates+1 {
			t.Errorf("%d limits of one principal are remembered", n)
		}
		// The calls in flight are those of all surfaces.
		leave, _, _ := ms.Enter(t.Context(), "me", much, false)
		if _, _, err := ms.Enter(t.Context(), "me", policy.Limits{Concurrent: 1}, false); err != ErrTooMany {
			t.Errorf("a second call at once: %v, want %v", err, ErrTooMany)
		}
		leave()
	})
}
