// Package secrets runs the programs that print secrets for upstreams: ${exec: [program, argument]} in the
// configuration file. secrets.go has when they run, run.go how.
package secrets

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream"
	"junction/upstream/pace"
)

const (
	leastBetween = time.Minute      // between two rounds of an upstream, after an answer 401 or a failure
	mostAgain    = 10 * time.Second // for which Again waits
	atOnce       = 8                // programs that run at once
)

// A Program prints a secret for an upstream.
type Program struct {
	Upstream string
	Command  []string
	Exec     upstream.Exec
}

// Of returns the programs of a configuration.
func Of(c *config.Config) (list []Program) {
	for _, name := range slices.Sorted(maps.Keys(c.Origins)) {
		for _, o := range c.Origins[name] {
			known := func(p Program) bool { return p.Upstream == name && slices.Equal(p.Command, o.Program) }
			if len(o.Program) > 0 && !slices.ContainsFunc(list, known) {
				list = append(list, Program{name, o.Program, c.Upstreams[name].Exec})
			}
		}
	}
	return list
}

// Programs are the programs of a configuration, with what they have printed last. The programs of an upstream run one
// after another, in a goroutine of that upstream: at once, again after exec.every, and after Refused. Close them.
type Programs struct {
	// Changed receives when a program has printed another secret, or has failed for the first time.
	Changed <-chan struct{}

	run     func(context.Context, Program) (string, error)
	changed chan struct{}
	slots   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	upstreams map[string]*programs
	version   int // of what Value returns; guarded by mu
}

// programs are those of one upstream.
type programs struct {
	list   []Program
	cancel context.CancelFunc
	asked  chan struct{} // 1-buffered: the server has answered 401
	tried  chan struct{} // closed when each program has ended once

	printed  map[string]*printed // by command; guarded by Programs.mu
	answered time.Time           // when the programs ran because of an answer; guarded by Programs.mu
	running  bool                // a round is running; guarded by Programs.mu
	round    chan struct{}       // closed at the end of the round that runs, or of the next one; guarded by Programs.mu
}

// printed is what a program has printed.
type printed struct {
	text string
	at   time.Time // when text was printed; zero if it never was
	err  error     // why the last run printed nothing that can be used
}

// New returns Programs without any.
func New() *Programs { return newPrograms(run) }

func newPrograms(run func(context.Context, Program) (string, error)) *Programs {
	changed := make(chan struct{}, 1)
	p := &Programs{Changed: changed, changed: changed, run: run, slots: make(chan struct{}, atOnce),
		upstreams: map[string]*programs{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends the programs that run, and waits for them.
func (p *Programs) Close() {
	p.cancel()
	p.running.Wait()
}

// Follow replaces the programs. Those of an upstream that are the same go on; others run at once, and started reports
// whether there are any. It does not wait.
func (p *Programs) Follow(list []Program) (started bool) {
	next := map[string][]Program{}
	for _, one := range list {
		next[one.Upstream] = append(next[one.Upstream], one)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, old := range p.upstreams {
		if slices.EqualFunc(old.list, next[name], same) {
			delete(next, name)
			continue
		}
		old.cancel()
		if len(next[name]) == 0 {
			delete(p.upstreams, name)
		}
	}
	for name, its := range next {
		u := &programs{list: its, asked: make(chan struct{}, 1), tried: make(chan struct{}),
			printed: map[string]*printed{}, round: make(chan struct{})}
		for _, one := range its {
			if old := p.upstreams[name]; old != nil && old.printed[key(one.Command)] != nil {
				u.printed[key(one.Command)] = old.printed[key(one.Command)]
			}
		}
		var ctx context.Context
		ctx, u.cancel = context.WithCancel(p.ctx)
		p.upstreams[name] = u
		p.running.Go(func() { p.repeat(ctx, u) })
	}
	return len(next) > 0
}

func same(a, b Program) bool {
	return slices.Equal(a.Command, b.Command) && a.Exec.Interval() == b.Exec.Interval() &&
		slices.Equal(a.Exec.InheritEnv, b.Exec.InheritEnv)
}

// key returns the key of a command, whose words have no NUL.
func key(command []string) string { return strings.Join(command, "\x00") }

// repeat runs the programs of an upstream until ctx ends.
func (p *Programs) repeat(ctx context.Context, u *programs) {
	defer p.end(u)
	for first, refused := true, false; ; first = false {
		begun, failed := time.Now(), false
		p.begin(u, refused)
		for _, one := range u.list {
			failed = !p.once(ctx, u, one) || failed
		}
		p.end(u)
		if first {
			close(u.tried)
		}
		every := u.list[0].Exec.Interval()
		if failed {
			every = leastBetween
		}
		if !pace.Sleep(ctx, time.Until(begun.Add(every)), u.asked) {
			return
		}
		if refused = time.Since(begun) < every; refused {
			p.mu.Lock()
			answered := u.answered
			p.mu.Unlock()
			if !pace.Sleep(ctx, time.Until(answered.Add(leastBetween)), nil) {
				return
			}
		}
	}
}

// begin notes that a round of an upstream begins, which refused says was asked for by an answer 401. The round
// answers all that has asked until now.
func (p *Programs) begin(u *programs, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.running = true
	if refused {
		u.answered = time.Now()
	}
	select {
	case <-u.asked:
	default:
	}
}

// end notes that a round of an upstream has ended.
func (p *Programs) end(u *programs) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.running = false
	close(u.round)
	u.round = make(chan struct{})
}

// once runs a program, and keeps what it has printed. A secret that was printed before stays if the program fails.
func (p *Programs) once(ctx context.Context, u *programs, one Program) (ok bool) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	text, err := p.run(ctx, one)
	<-p.slots
	if ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was := u.printed[key(one.Command)]
	now := &printed{text, time.Now(), err}
	if err != nil && was != nil {
		now.text, now.at = was.text, was.at
	} else if err != nil {
		now.at = time.Time{}
	}
	u.printed[key(one.Command)] = now
	unknown := now.at.IsZero() && (was == nil || was.err == nil || was.err.Error() != err.Error())
	if unknown || !now.at.IsZero() && (was == nil || was.at.IsZero() || was.text != text && err == nil) {
		p.version++
		pace.Wake(p.changed)
	}
	return err == nil
}

// Value implements config.Printed.
func (p *Programs) Value(name string, command []string) (value, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.upstreams[name]
	if u == nil || u.printed[key(command)] == nil {
		return "", "has no secret yet: the program " + base(command) + " is running"
	}
	if now := u.printed[key(command)]; now.at.IsZero() {
		return "", now.err.Error()
	} else {
		return now.text, ""
	}
}

// Version is a number that changes whenever Value returns something else.
func (p *Programs) Version() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// Wait waits until each program has ended once, or ctx ends.
func (p *Programs) Wait(ctx context.Context) {
	p.mu.Lock()
	var all []chan struct{}
	for _, u := range p.upstreams {
		all = append(all, u.tried)
	}
	p.mu.Unlock()
	for _, tried := range all {
		select {
		case <-tried:
		case <-ctx.Done():
			return
		}
	}
}

// Refused notes that the server of an upstream has answered 401: its programs run again, at most once a minute. It
// does not wait. An answer that comes while they run is of the secret before, and asks for no further round.
func (p *Programs) Refused(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.upstreams[name]; u != nil && !u.running {
		pace.Wake(u.asked)
	}
}

// Again is Refused, and waits until the programs have ended, for ten seconds at most. It does not wait if they ran
// for such an answer less than a minute ago. Concurrent callers share one round.
func (p *Programs) Again(ctx context.Context, name string) {
	p.mu.Lock()
	u := p.upstreams[name]
	if u == nil || !u.running && time.Now().Before(u.answered.Add(leastBetween)) {
		p.mu.Unlock()
		return
	}
	round := u.round
	if !u.running {
		pace.Wake(u.asked)
	}
	p.mu.Unlock()
	late := time.NewTimer(mostAgain)
	defer late.Stop()
	select {
	case <-round:
	case <-late.C:
	case <-ctx.Done():
	}
}

// Printed returns when a program has printed the secret that is in use, zero if it never has, and why the last run
// has failed; nil if it has not.
func (p *Programs) Printed(name string, command []string) (at time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.upstreams[name]; u != nil && u.printed[key(command)] != nil {
		return u.printed[key(command)].at, u.printed[key(command)].err
	}
	return time.Time{}, nil
}

// Load reads a configuration file for a command that connects to the upstreams in only, or to all if only is empty.
// Their programs have run once. file and needs are those of config.LoadAsService.
func Load(ctx context.Context, file string, only []string, needs ...string) (*config.Config, error) {
	c, err := config.LoadAsService(file, needs...)
	if err != nil || len(Of(c)) == 0 {
		return c, err
	}
	p := New()
	defer p.Close()
	p.Follow(slices.DeleteFunc(Of(c), func(one Program) bool {
		return len(only) > 0 && !slices.Contains(only, one.Upstream)
	}))
	p.Wait(ctx)
	return config.LoadForCommandWith(file, p.Value, needs...)
}
