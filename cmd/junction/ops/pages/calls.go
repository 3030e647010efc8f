package pages

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/prose"
)

// Calls keeps the last calls, and how many each upstream had within the last minute. The zero value
// is empty.
type Calls struct {
	mu    sync.Mutex
	last  [50]record
	added int // of all time; the next one goes to last[added%len(last)]

	upstreams map[string]*traffic
}

// A Call is a call that has ended, without its arguments and its result.
type Call struct {
	Time     time.Time
	Took     time.Duration
	Caller   string // id of the principal, as in the log
	Email    string // of a user; "" if it is not verified
	Person   string // name of a user
	Client   string // the name that the client gave itself
	Upstream string // "" if the name was unknown
	Method   string
	Name     string // as the client called it
	Outcome  string // as in the log
}

// By returns the name of the caller for people: that of a user as in the audit, otherwise the id.
func (c Call) By() string { return cmp.Or(c.Email, c.Person, c.Caller) }

// record is a Call whose texts follow each other in one buffer, which is used again.
type record struct {
	at   time.Time
	took time.Duration
	text []byte
	ends [8]int
}

// longest is how many bytes of a text are kept.
const longest = 120

// Add adds a call. A refused request is no call: everybody who can reach the listener could replace
// all calls by refused ones. Add keeps nothing of c.
func (l *Calls) Add(c *proxy.CallInfo) {
	if c.Refused() {
		return
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.last[l.added%len(l.last)]
	l.added++
	r.at, r.took, r.text = now, c.Took, r.text[:0]
	for i, text := range [...]string{c.Principal, c.Email, c.Person, c.Client, c.Upstream, c.Method, c.Name,
		string(c.Outcome)} {
		r.text = append(r.text, text[:min(len(text), longest)]...)
		r.ends[i] = len(r.text)
	}
	if c.Upstream == "" {
		return
	}
	its := l.upstreams[c.Upstream]
	if its == nil {
		if l.upstreams == nil {
			l.upstreams = map[string]*traffic{}
		}
		its = new(traffic)
		l.upstreams[strings.Clone(c.Upstream)] = its
	}
	its.at, its.outcome = now, string(c.Outcome) // a constant
	its.name = append(its.name[:0], c.Name[:min(len(c.Name), longest)]...)
	its.count(now)
	its.add(now, c)
}

// Added returns how many calls were added.
func (l *Calls) Added() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}

// LastOf returns the last call of an upstream, nil if there was none.
func (l *Calls) LastOf(upstream string) *diagnose.LastCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	its := l.upstreams[upstream]
	if its == nil {
		return nil
	}
	name := prose.Flat(strings.ToValidUTF8(string(its.name), ""))
	return &diagnose.LastCall{Time: its.at, Name: name, Outcome: its.outcome}
}

// Last returns the last calls, the latest first.
func (l *Calls) Last() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Call
	for i := range min(l.added, len(l.last)) {
		r := &l.last[(l.added-1-i)%len(l.last)]
		c, from := Call{Time: r.at, Took: r.took}, 0
		for j, field := range [...]*string{&c.Caller, &c.Email, &c.Person, &c.Client, &c.Upstream, &c.Method, &c.Name,
			&c.Outcome} {
			*field = prose.Flat(strings.ToValidUTF8(string(r.text[from:r.ends[j]]), ""))
			from = r.ends[j]
		}
		list = append(list, c)
	}
	return list
}

// Rate returns how many calls an upstream had within the last minute.
func (l *Calls) Rate(upstream string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if its := l.upstreams[upstream]; its != nil {
		return its.sum(time.Now())
	}
	return 0
}

// traffic is the last call of an upstream, and the number of its calls by periods of ten seconds. The
// name of the call is in a buffer that is used again.
type traffic struct {
	at      time.Time
	name    []byte
	outcome string

	counts  [6]int
	periods [6]int64 // of counts

	minutes [60]minute
}

func (r *traffic) count(now time.Time) {
	period := now.Unix() / 10
	i := period % int64(len(r.counts))
	if r.periods[i] != period {
		r.periods[i], r.counts[i] = period, 0
	}
	r.counts[i]++
}

func (r *traffic) sum(now time.Time) (n int) {
	first := now.Unix()/10 - int64(len(r.counts)) + 1
	for i, period := range r.periods {
		if period >= first {
			n += r.counts[i]
		}
	}
	return n
}
