package proxy

import (
	"hash/maphash"
	"sync/atomic"

	"junction/policy"
)

// rulings are the rulings that were made last, of whichever subjects and items: a call of the same
// tool by the same subject finds its ruling there. Each has one place, which the next one with that
// place takes, so that nothing waits and nothing grows. A nil table keeps none.
type rulings struct {
	places [1 << 12]atomic.Pointer[ruled]
	bytes  atomic.Int64
	hand   atomic.Uint32 // where those go first when there are too many bytes
	closed atomic.Bool
}

// ruled is a ruling and what it is about.
type ruled struct {
	ruledKey
	ruling *policy.Ruling
	bytes  int64
}

// ruledKey is rights, and an item of a stock. It keeps no stock in memory.
type ruledKey struct {
	rights *policy.Rights
	stock  uint64
	place  int
}

var ruledSeed = maphash.MakeSeed()

// of returns what the rights say of a target.
func (r *rulings) of(rights *policy.Rights, t *target) *policy.Ruling {
	if r == nil || t.stock == nil || t.stock.serial == 0 || t.connects {
		return rights.Bind(t.policyItem())
	}
	key := ruledKey{rights, t.stock.serial, t.place}
	place := &r.places[maphash.Comparable(ruledSeed, key)%uint64(len(r.places))]
	if known := place.Load(); known != nil && known.ruledKey == key {
		return known.ruling
	}
	made := &ruled{ruledKey: key, ruling: rights.Bind(t.policyItem())}
	made.bytes = int64(100 + made.ruling.Size() + rights.Size())
	if made.bytes > maxRulings/2 || r.closed.Load() {
		return made.ruling
	}
	r.replace(place, made)
	for r.bytes.Load() > maxRulings {
		if next := &r.places[r.hand.Add(1)%uint32(len(r.places))]; next != place {
			r.replace(next, nil)
		}
	}
	return made.ruling
}

func (r *rulings) replace(place *atomic.Pointer[ruled], now *ruled) {
	if now != nil {
		r.bytes.Add(now.bytes)
	}
	if old := place.Swap(now); old != nil {
		r.bytes.Add(-old.bytes)
	}
}

// close lets all rulings go, and keeps none from now on.
func (r *rulings) close() {
	r.closed.Store(true)
	for i := range r.places {
		r.replace(&r.places[i], nil)
	}
}
