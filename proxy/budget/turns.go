package budget

import (
	"net/http"
	"runtime"
	"time"
)

// This file shares the processors among callers. The Go scheduler runs goroutines in order, and
// polls for new requests only when no goroutine can run, or after 10 ms. So a thousand pings of one
// caller would run before the next caller's request. Therefore only few requests of an account are
// in work at once, and the others wait. A request that waits for an upstream or a user is not in
// work. While requests of an account wait, its connections also wait before they read on. If there
// are other accounts, breaks give the scheduler time to poll for their requests.

// Workers limits the requests of one account that are in work at once.
type Workers struct {
	Alone  int // while no other account sends requests
	Shared int
}

// defaultWorkers are so many that requests wait only in a flood: with fewer, ordinary parallel calls of
// one account lost two thirds of their throughput.
func defaultWorkers() Workers {
	n := runtime.GOMAXPROCS(0)
	return Workers{Alone: 1024, Shared: 64 * n}
}

const (
	// time for which accounts count as several after the latest request changed its account
	sharedFor = 5 * time.Second
	// time for which requests of an account may wait in line until the next break
	unbroken  = 200 * time.Microsecond
	breakTime = time.Millisecond
)

// shared reports whether several accounts are active; b.mu is held.
func (b *Budget) shared(now time.Time) bool { return now.Sub(b.mixed) < sharedFor }

// room reports whether another request of an account can be in work; b.mu is held.
func (b *Budget) room(its *balance) bool {
	return its.working < b.Workers.Shared || its.working < b.Workers.Alone && !b.shared(time.Now())
}

// BeginTurn blocks until the request may be in work. EndTurn must follow before the request waits
// for anything. The grant may be empty.
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
	<-turn // closed by a request of the account that is in work, so it comes soon
}

// EndTurn passes the turn to the next request of the account.
func (g *Grant) EndTurn() {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	g.balance.working--
	b.next(g.balance)
}

// next gives turns to waiting requests of an account, or begins a break; b.mu is held.
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

// Working returns the number of the account's requests in work.
func (g *Grant) Working() int {
	g.budget.mu.Lock()
	defer g.budget.mu.Unlock()
	return g.balance.working
}

// Pace makes the connection of a request wait for a turn before it reads the next request, if
// requests of the account are waiting. Call it when the request is answered.
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
