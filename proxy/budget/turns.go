package budget

import (
	"net/http"
	"runtime"
	"time"
)

// This file holds how the callers share the processors. One that sends a thousand pings at once
// would have a thousand goroutines run before that of the next caller: the scheduler of Go serves
// goroutines in their order, and looks for new requests when none of them can run, or after 10 ms.
// So few requests of an account are worked on at once, and the others wait. A request that waits
// itself, for an upstream or for a person, is not worked on. While requests of an account wait, its
// connections wait too, before they read on; and where there are other accounts, there are breaks,
// in which their requests are found.

// Workers are how many requests of one account are worked on at once.
type Workers struct {
	Alone  int // while no other account sends requests
	Shared int
}

func defaultWorkers() Workers {
	n := runtime.GOMAXPROCS(0)
	return Workers{Alone: 2 * n, Shared: max(1, n/2)}
}

const (
	// an account is not alone so long after its first request that follows one of another account
	sharedFor = 5 * time.Second
	// the requests of an account that is not alone wait in line so long until there is a break
	unbroken  = 200 * time.Microsecond
	breakTime = time.Millisecond
)

// shared reports whether there are several accounts now; b.mu is held.
func (b *Budget) shared(now time.Time) bool { return now.Sub(b.mixed) < sharedFor }

// room reports whether one more request of an account can be worked on; b.mu is held.
func (b *Budget) room(its *balance) bool {
	return its.working < b.Workers.Shared || its.working < b.Workers.Alone && !b.shared(time.Now())
}

// BeginTurn returns when it is the turn of a request of the account; rest must follow, before the
// request waits for anything. A grant that has nothing yet may call it, too.
func (g *Grant) BeginTurn() {
	b := g.budget
	b.mu.Lock()
	if g.balance == nil || g.balance.gone {
		g.balance = b.balance(g)
	}
	its := g.balance
	if b.latest != its {
		b.latest, b.mixed = its, time.Now()
	}
	if len(its.waiting) == 0 && b.room(its) {
		its.working++
		b.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	its.waiting = append(its.waiting, turn)
	b.mu.Unlock()
	<-turn // from a request of the account that is worked on, and so comes soon
}

// EndTurn gives the turn to the next request of the account.
func (g *Grant) EndTurn() {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	g.balance.working--
	b.next(g.balance)
}

// next gives turns to requests of an account that wait, or takes a break; b.mu is held.
func (b *Budget) next(its *balance) {
	if len(its.waiting) == 0 || its.resting {
		return
	}
	if now := time.Now(); !b.shared(now) {
		its.line = time.Time{}
	} else if its.line.IsZero() {
		its.line = now
	} else if now.Sub(its.line) > unbroken {
		its.resting = true
		time.AfterFunc(breakTime, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			its.resting, its.line = false, time.Time{}
			b.next(its)
		})
		return
	}
	for len(its.waiting) > 0 && b.room(its) {
		its.working++
		close(its.waiting[0])
		its.waiting = its.waiting[1:]
	}
	if len(its.waiting) == 0 {
		its.waiting, its.line = nil, time.Time{}
	}
}

// Working returns how many requests of the account are worked on.
func (g *Grant) Working() int {
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.balance.working
}

// Pace has the connection of a request wait for a turn before it reads the next request, if
// requests of the account wait already. It is called when the request is answered.
func (g *Grant) Pace(w http.ResponseWriter) {
	conn, ok := w.(interface{ Then(func()) })
	if !ok || g.balance == nil {
		return
	}
	g.budget.mu.Lock()
	crowded := len(g.balance.waiting) > 0
	g.budget.mu.Unlock()
	if !crowded {
		return
	}
	next := g.Empty()
	conn.Then(func() {
		next.BeginTurn()
		next.EndTurn()
	})
}
