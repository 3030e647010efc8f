package upstream

import (
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"junction/upstream/bounded"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// This file bounds what a server can make Junction compute by its lists. The outcome of the checks of a tool
// is kept by the digest of its definition, so that only changed definitions are checked again. A reading
// checks new definitions with a budget of steps, in the order of the list. A tool that is beyond the budget is
// left out, and checked at the next reading: no client and no policy sees a definition that is not checked.
// Readings spend time, which comes back with a twentieth of the time that passes: while some is missing, a
// reading has a smaller budget, and no list is read again on a connection.

const (
	// readingSteps is the budget of one reading: at most a second. A definition that alone needs more is never
	// offered.
	readingSteps = 1 << 29
	// stepTime is the longest time of one step (definition.Work), as it was measured, on a slow machine.
	stepTime = 2 * time.Nanosecond
	// byteSteps are the steps to parse and compare one byte of a definition.
	byteSteps = 2
	// checkShare bounds the share of a processor: a twentieth.
	checkShare = 20
)

// Reasons why a tool is left out.
const (
	reasonLater = "its definition is not checked yet, because checking the list takes long; it is checked at the " +
		"next reading"
	reasonCostly = "checking its schemas takes too long; make the schemas smaller, or their patterns simpler"
)

// checks are the outcomes of the checks of one server's tools, and when its lists may be read again. The pools
// of all users share them.
type checks struct {
	steps  int           // the whole budget of a reading
	step   time.Duration // what one step takes
	memory int           // the most bytes of outcomes

	mu    sync.Mutex
	rests time.Time // when the time that readings have spent has come back
	kept  bounded.Cache[digest, *checked]
}

type digest [sha256.Size]byte

func newChecks(memory int) *checks {
	return &checks{steps: readingSteps, step: stepTime, memory: memory, kept: bounded.Cache[digest, *checked]{
		Room: &bounded.Room{Max: memory}, Of: map[digest]*bounded.Entry[digest, *checked]{}}}
}

// checked is what the checks of a tool have found out. It has nothing of the memory of the definition.
type checked struct {
	tool    Tool       // without Item
	mended  raw.Object // the definition, if it was changed; else absent
	changes string
	reason  string // why the tool is left out; "" if it is not
}

// size is about the memory of an outcome, in bytes.
func (o *checked) size() int {
	n := 512 + len(o.mended.Text()) + len(o.changes) + len(o.reason) + len(o.tool.Loose)
	for _, p := range o.tool.Params {
		n += 64 + len(p.Name)
		for _, step := range p.Path {
			n += 16 + len(step)
		}
	}
	for _, r := range o.tool.Requires {
		n += 16 + len(r)
	}
	for _, e := range o.tool.Older {
		n += 48 + len(e.Value)
	}
	return n
}

// checking is the part of one reading in the checks of a server. A nil checking has no bound, and keeps
// nothing.
type checking struct {
	*checks
	left  int  // steps for new definitions
	done  int  // steps
	bytes int  // of the outcomes
	late  bool // a definition was left for the next reading
}

// spent returns the time in which the time of steps comes back.
func (c *checks) spent(steps int) time.Duration {
	return time.Duration(steps) * c.step * (checkShare - 1)
}

// begin begins a reading, with the budget that is not spent.
func (c *checks) begin() *checking {
	missing := max(0, c.wait()) / c.spent(1)
	return &checking{checks: c, left: max(0, c.steps-int(missing))}
}

// end ends a reading. Outcomes take at most the memory of two such lists.
func (k *checking) end() {
	k.mu.Lock()
	if now := time.Now(); k.rests.Before(now) {
		k.rests = now
	}
	k.rests = k.rests.Add(k.spent(k.done))
	k.mu.Unlock()
	room := k.kept.Room
	room.Mu.Lock()
	room.Max = min(max(leastKept, 2*k.bytes), k.memory)
	room.Trim()
	room.Mu.Unlock()
}

// leastKept is the memory for the outcomes of small lists, which users may have several of, in bytes.
const leastKept = 1 << 20

// wait returns the time until the lists may be read again; it may be negative.
func (c *checks) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.rests)
}

// pause is wait for the readings of a connection, which have a pause of calm in any case.
func (c *checks) pause() time.Duration {
	if d := c.wait(); d > calm {
		return d
	}
	return 0
}

// of returns the outcome of the checks of a tool. kind is what decides beside the definition. check makes the
// checks, unless the outcome is known or the budget is spent.
func (k *checking) of(kind string, text []byte, check func(*definition.Work) *checked) *checked {
	if k == nil {
		return check(nil)
	}
	k.done += byteSteps * len(text)
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write(text)
	key := digest(h.Sum(nil))
	o, known := k.kept.Get(key)
	if !known {
		if o = k.fresh(check); o.reason == reasonLater {
			return o
		}
		k.kept.Keep(key, func() (*checked, int) { return o, o.size() })
	}
	k.bytes += o.size()
	return o
}

// fresh makes the checks of a tool.
func (k *checking) fresh(check func(*definition.Work) *checked) *checked {
	whole := k.left >= k.steps
	if k.left > 0 {
		work := definition.NewWork(k.left)
		o := check(work)
		k.left, k.done = k.left-work.Done(), k.done+work.Done()
		if !work.Over() {
			return o
		}
		k.left = 0
		if whole {
			return &checked{reason: reasonCostly}
		}
	}
	k.late = true
	return &checked{reason: reasonLater}
}

// kind returns what decides about the checks of a tool beside its definition.
func (c *Catalog) kind() string { return string(c.Era) + " " + strconv.FormatBool(c.mirrors) + " " }
