package replicas

import (
	"sync/atomic"
	"time"
)

// outcome is the result of forwarding a request.
type outcome int

const (
	done      outcome = iota // the owner has answered
	gone                     // the owner has ended and did not handle the request
	lost                     // the owner got the request and ended before its answer was complete
	cancelled                // by the client
	failed                   // the body of the client's request could not be read
	outcomes
)

// counters count what happened since the start.
type counters struct {
	forwarded         [outcomes]atomic.Int64
	received, claimed atomic.Int64
}

// Figures are numbers for package telemetry, which has the same type, so that it does not import
// this package.
type Figures struct {
	Members   int              // alive, with this process
	Forwarded map[string]int64 // by outcome
	Received  int64            // from other members
	Claimed   int64            // sessions whose owner this process became
	Lease     time.Duration    // until this process is no member; 0 if it is none
	Differing map[string]int64 // members with another value, by key of the configuration
}

// Figures returns the current figures.
func (m *Member) Figures() Figures {
	f := Figures{Members: len(m.Members()), Received: m.counters.received.Load(), Claimed: m.counters.claimed.Load(),
		Forwarded: map[string]int64{}}
	// All outcomes have a name: else it does not compile.
	var names [outcomes]string = [...]string{"ok", "gone", "lost", "cancelled", "failed"}
	for o, name := range names {
		f.Forwarded[name] = m.counters.forwarded[o].Load()
	}
	f.Differing = map[string]int64{}
	m.eachDifference(func(_ *otherMember, d Difference) { f.Differing[d.Key]++ })
	if l := m.lease.Load(); l != nil {
		f.Lease = max(0, time.Until(l.until))
	}
	return f
}
