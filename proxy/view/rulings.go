package view

import (
	"hash/maphash"
	"sync/atomic"

	"junction/policy"
)

// Rulings are the rulings that were made last, of whichever subjects and items: a call of the same
// tool by the same subject finds its ruling there. Each has one place, which the next one with that
// place takes, so that nothing waits and nothing grows. A nil table keeps none.
type Rulings struct {
	Places [1 << 12]atomic.Pointer[ruled]
	Bytes  atomic.Int64
	hand   atomic.Uint32 // where those go first when there are too many bytes
	closed atomic.Bool
}

// ruled is a ruling and what it is about.
type ruled struct {
	ruledKey
	ruling *policy.Ruling
	Bytes  int64
}

// ruledKey is rights, and an item of a stock. It keeps no stock in memory.
type ruledKey struct {
	rights *policy.Rights
	stock  uint64
	place  int
}

var ruledSeed = maphash.MakeSeed()

// of returns what the rights say of a target.
func (r *Rulings) of(rights *policy.Rights, t *Target) *policy.Ruling {
	if r == nil || t.stock == nil || t.stock.serial == 0 || t.Connects {
		return rights.Bind(t.PolicyItem())
	}
	key := ruledKey{rights, t.stock.serial, t.place}
	place := &r.Places[maphash.Comparable(ruledSeed, key)%uint64(len(r.Places))]
	if known := place.Load(); known != nil && known.ruledKey == key {
		return known.ruling
	}
	made := &ruled{ruledKey: key, ruling: rights.Bind(t.PolicyItem())}
	made.Bytes = int64(100 + made.ruling.Size() + rights.Size())
	if made.Bytes > MaxRulings/2 || r.closed.Load() {
		return made.ruling
	}
	r.replace(place, made)
	for r.Bytes.Load() > MaxRulings {
		if next := &r.Places[r.hand.Add(1)%uint32(len(r.Places))]; next != place {
			r.replace(next, nil)
		}
	}
	return made.ruling
}

func (r *Rulings) replace(place *atomic.Pointer[ruled], now *ruled) {
	if now != nil {
		r.Bytes.Add(now.Bytes)
	}
	if old := place.Swap(now); old != nil {
		r.Bytes.Add(-old.Bytes)
	}
}

// Close lets all rulings go, and keeps none from now on.
func (r *Rulings) Close() {
	r.closed.Store(true)
	for i := range r.Places {
		r.replace(&r.Places[i], nil)
	}
}

// MaxRulings bounds the bytes of all rulings that are kept.
const MaxRulings = 4 << 20
