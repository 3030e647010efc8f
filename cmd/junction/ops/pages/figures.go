package pages

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"junction/proxy"
)

// minute is the calls of one upstream in one minute: 2.6 KB an hour.
type minute struct {
	of            uint32 // the minute since 1970; others are over
	calls, errors uint32
	took          [16]uint16 // calls by the bits of their milliseconds
}

// add counts a call that has ended.
func (r *traffic) add(now time.Time, c *proxy.CallInfo) {
	of := uint32(now.Unix() / 60)
	m := &r.minutes[of%uint32(len(r.minutes))]
	if m.of != of {
		*m = minute{of: of}
	}
	m.calls++
	if c.Outcome != proxy.OK {
		m.errors++
	}
	if n := &m.took[bucket(c.Took)]; *n < math.MaxUint16 {
		*n++
	}
}

// bucket returns the bits of a duration in milliseconds: 0 is less than one millisecond, 15 is 16 seconds and more.
func bucket(took time.Duration) int { return min(bits.Len64(uint64(max(took.Milliseconds(), 0))), 15) }

// Figures are the calls of the last hour. P50 and P95 are upper bounds: half of the calls, and 95 of 100, took less.
type Figures struct {
	Calls, Errors int
	P50, P95      time.Duration
	Slower, Slow  bool // P50, P95 is in the last bucket, which has no upper bound
}

// Hour returns the figures of an upstream; "" is all upstreams.
func (l *Calls) Hour(upstream string) Figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := uint32(time.Now().Unix()/60) - 59
	var f Figures
	var took [16]int
	add := func(r *traffic) {
		for i := range r.minutes {
			m := &r.minutes[i]
			if m.of < first {
				continue
			}
			f.Calls += int(m.calls)
			f.Errors += int(m.errors)
			for b, n := range m.took {
				took[b] += int(n)
			}
		}
	}
	if upstream != "" {
		if r := l.upstreams[upstream]; r != nil {
			add(r)
		}
	} else {
		for _, r := range l.upstreams {
			add(r)
		}
	}
	f.P50, f.Slower = share(took, 50)
	f.P95, f.Slow = share(took, 95)
	return f
}

// share returns the upper bound of the bucket that has the call with a rank of percent; last reports that it has none.
func share(took [16]int, percent int) (bound time.Duration, last bool) {
	all := 0
	for _, n := range took {
		all += n
	}
	seen := 0
	for b, n := range took {
		if seen += n; n > 0 && seen*100 >= all*percent {
			return time.Millisecond << b, b == len(took)-1
		}
	}
	return 0, false
}

// Words returns the figures for people; "" without calls.
func (f Figures) Words() string {
	if f.Calls == 0 {
		return ""
	}
	half := "half took less than " + short(f.P50)
	if f.Slower {
		half = "half took " + short(f.P50/2) + " or more"
	}
	if f.Slow {
		return half + ", 5 of 100 took " + short(f.P95/2) + " or more"
	}
	return half + ", 95 of 100 less than " + short(f.P95)
}

// short returns the bound of a bucket for people.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d s", d.Round(time.Second)/time.Second)
}
