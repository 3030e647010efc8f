package upstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/bounded"
	"junction/upstream/client"
	"junction/upstream/remedy"
)

// This file decides which callers of a command get a second process, in the legacy era, although
// the file has no line for it. By default a command is one process of the modern era. If a call of
// a legacy client fails on it, because the server could not send a request that this client
// answers, later calls of legacy clients that share the connection go to a second process.
//
// A caller may be able to choose the text of a failure. So only a whole text counts (sentences.go),
// and only for callers who share the connection with no other principal.

// secondNeed is what is known about the callers of one connection.
type secondNeed struct {
	learned  bool      // calls of legacy clients go to a second process
	failures int       // second processes that failed in a row
	retry    time.Time // nothing is learned before this time
}

// secondNeeds has the need of each holder (linkKey), which belongs to its principal. It is guarded
// by pool.mu.
type secondNeeds = bounded.Shared[string, string, secondNeed]

// A second process that ends, or reports that it runs twice, within secondLife is not started again
// until another call teaches it. At first that is possible after modernAtFirst, then later.
const secondLife = time.Minute

// mayLearn reports whether the callers of that key may get a second process that the file has no
// line for. With Stateful, a second process lacks what the first one has. Several principals on one
// connection would decide about each other.
func (u *Upstream) mayLearn(key linkKey) bool {
	c := &u.config
	room := u.connConfig.MaxLinks
	if key.holder != "" {
		room = u.share()
	}
	return c.Kind().Process && c.Era == client.EraAuto && c.Questions.Asks() && !c.Questions.OfClients() &&
		!u.stateful.Load() &&
		(key.holder != "" || !u.separate.Load()) && room > 1
}

// needsSecond reports whether the call goes to a second process.
func (u *Upstream) needsSecond(c *Call) bool {
	key := u.keyOf(c, true)
	if !u.mayLearn(key) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	need, _ := u.needs.Get(key.holder)
	return need.learned
}

// learn reports whether later calls of the caller go to a second process, because the call failed
// with this text. whole states that the failure has no other text.
func (u *Upstream) learn(c *Call, text string, whole bool) bool {
	if !whole || c.Era != client.EraLegacy {
		return false
	}
	method, known := unsentRequest(text, c.Name)
	key := u.keyOf(c, true)
	// a second process of all clients declares no roots
	if !known || !answers(c.Profile, method) || !answers(key.profile, method) || !u.mayLearn(key) {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	need, _ := u.needs.Get(key.holder)
	if need.learned {
		return true
	}
	if time.Now().Before(need.retry) {
		return false
	}
	need.learned = true
	u.setNeed(key, need)
	u.log.Warn("a call failed because the server cannot send requests to the client in the modern era; later calls of "+
		"legacy clients go to a second process, which has none of the state of the first", "principal", key.user,
		"request", cmp.Or(string(method), "unknown"), "advice", "set era: both, or era: modern to keep one process")
	return true
}

// setNeed stores a need, also for the next process of Junction; p.mu is held.
func (p *pool) setNeed(key linkKey, need secondNeed) {
	p.needs.Max = maxOwn
	p.needs.Put(key.user, key.holder, need, nil)
	p.lists.keepSecond(p.learnedHolders())
}

// secondEnded is called when a connection of the legacy side has ended, or could not be made, by
// itself. If it was a learned one and did not live for secondLife, its callers use the first
// process again.
func (p *pool) secondEnded(ctx context.Context, key linkKey, lived time.Duration, err error) {
	if !key.legacySide || key.number > 0 || ctx.Err() != nil || errors.Is(err, errIdle) {
		return
	}
	if lived < secondLife {
		p.unlearn(key, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if need, _ := p.needs.Get(key.holder); need.learned && need.failures > 0 {
		need.failures = 0
		p.setNeed(key, need)
	}
}

// unlearn sends later calls of the callers of the key to the first process again, if they go to a
// second one. A pause follows in which they cannot learn.
func (p *pool) unlearn(key linkKey, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	need, _ := p.needs.Get(key.holder)
	if !need.learned {
		return
	}
	pause := min(modernAtFirst<<min(need.failures, 10), modernFor)
	p.setNeed(key, secondNeed{failures: need.failures + 1, retry: time.Now().Add(pause)})
	p.log.Warn("the second process of the server failed; calls of legacy clients go to the first one again",
		"principal", key.user, "error", p.shown(err), "advice", "to ask clients with one process, set era: legacy")
}

// secondFailed reports whether a second process of the key has failed, so that era: both would not
// help.
func (p *pool) secondFailed(key linkKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	need, _ := p.needs.Get(key.holder)
	return need.failures > 0
}

// runsTwice returns an error if a learned second process reports, in its first minute, that another
// process has what it needs. text is the error text of a failed call; "" for none.
func (l *link) runsTwice(c client.Conn, text string) error {
	if !l.key.legacySide || c.Child() == nil {
		return nil
	}
	l.mu.Lock()
	old := l.state == StateReady && time.Since(l.since) >= secondLife
	l.mu.Unlock()
	l.pool.mu.Lock()
	need, _ := l.pool.needs.Get(l.key.holder)
	l.pool.mu.Unlock()
	if old || !need.learned {
		return nil
	}
	if line := cmp.Or(remedy.Twice(c.Child().Tail()), remedy.Twice(text)); line != "" {
		return &twiceError{line}
	}
	return nil
}

// answered looks at the answer of a call to a learned second process. The process goes on, because
// other calls may use it.
func (l *link) answered(c client.Conn, r client.Result, err error) {
	if !l.key.legacySide || err == nil && !r.Failed() {
		return
	}
	text, _ := failureText(r, err)
	if twice := l.runsTwice(c, text); twice != nil {
		l.pool.unlearn(l.key, twice)
	}
}

// twiceError is the report of a server that runs twice and cannot.
type twiceError struct{ line string }

func (e *twiceError) Error() string { return "the server reports that it runs twice: " + e.line }

// secondHint is for the answer of a call that has taught the need for a second process.
const secondHint = "Junction has not repeated the call: repeat it, and Junction sends it to a second process of the " +
	"server, of protocol version " + mcp.ProtocolVersion20251125 + ", which can ask the client and has none of the " +
	"state of the first process"

// learnedHolders returns the holders with a second process, without sessions; p.mu is held.
func (p *pool) learnedHolders() (holders []string) {
	p.needs.Each(func(user, holder string, need secondNeed) {
		if need.learned && (holder == "" || holder == principalHolder(user)) {
			holders = append(holders, holder)
		}
	})
	slices.Sort(holders)
	return holders
}

// recallNeeds learns what an earlier process of Junction has stored.
func (p *pool) recallNeeds(holders []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.needs.Max = maxOwn
	for _, holder := range holders {
		p.needs.Put(strings.TrimPrefix(holder, principalHolder("")), holder, secondNeed{learned: true}, nil)
	}
}
