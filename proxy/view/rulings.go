package view

import (
	"hash/maphash"
	"sync/atomic"

	"junction/policy"
)

// Rulings caches the latest rulings of all subjects and items, so that repeated calls of a tool by
// a subject find their ruling. Each ruling has one place by its hash and replaces the previous one,
// so that no lookup waits and the memory is bounded. A nil *Rulings caches nothing.
type Rulings struct {
	Places [1 << 12]atomic.Pointer[ruled]
	Bytes  atomic.Int64
	hand   atomic.Uint32 // next place to clear when there are too many bytes
	closed atomic.Bool
}

// ruled is a ruling with its key.
type ruled struct {
	ruledKey
	ruling *policy.Ruling
	Bytes  int64
}

// ruledKey identifies rights and an item of a stock. It does not keep the stock in memory.
type ruledKey struct {
	rights *policy.Rights
	stock  uint64
	place  int32
}

var ruledSeed = maphash.MakeSeed()

// ruling returns the ruling of the rights about a target.
func (r *Rulings) ruling(rights *policy.Rights, t *Target) *policy.Ruling {
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

// Close removes all rulings and stops the caching.
func (r *Rulings) Close() {
	r.closed.Store(true)
	for i := range r.Places {
		r.replace(&r.Places[i], nil)
	}
}

// MaxRulings bounds the bytes of the cached rulings.
const MaxRulings = 4 << 20
