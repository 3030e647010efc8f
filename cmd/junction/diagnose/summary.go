package diagnose

import (
	"fmt"

	"junction/upstream"
	"junction/upstream/prose"
)

// This file says in a word how the upstreams are.

// Need is whether an upstream works, and otherwise on what it waits. The smaller value comes first
// in lists for people.
type Need int

const (
	NeedsOperator Need = iota // a sign-in, a correction of the file, or what Advice says
	NeedsRetry                // Junction tries again; it has no advice
	NeedsTime                 // the first connection is in progress
	NeedsNothing
)

// Need returns what the upstream needs before it works.
func (u *UpstreamStatus) Need() Need {
	switch {
	case u.Invalid || u.State == upstream.StateBlocked.String() || u.State == upstream.StateSignIn.String():
		return NeedsOperator
	case u.State == upstream.StateDegraded.String(),
		u.State == upstream.StateRetrying.String() && u.Advice != "":
		return NeedsOperator
	case u.State == upstream.StateRetrying.String():
		return NeedsRetry
	case u.State == upstream.StateStarting.String():
		return NeedsTime
	}
	return NeedsNothing
}

// Summary counts the upstreams by their needs, such as "8 of 14 servers work, 6 need you".
func (r *Report) Summary() string {
	var counts [NeedsNothing + 1]int
	for i := range r.Upstreams {
		counts[r.Upstreams[i].Need()]++
	}
	all := len(r.Upstreams)
	var text string
	switch works := counts[NeedsNothing]; {
	case all == 0:
		return "no servers"
	case works == all && all == 1:
		return "1 server works"
	case all == 1:
		text = "0 of 1 server works"
	case works == all:
		return fmt.Sprintf("all %d servers work", all)
	default:
		text = fmt.Sprintf("%d of %s %s", works, prose.Count(all, "server"), singular(works, "works", "work"))
	}
	for _, part := range []struct {
		need      Need
		one, many string
	}{
		{NeedsOperator, "needs you", "need you"}, {NeedsRetry, "is retried", "are retried"},
		{NeedsTime, "is starting", "are starting"},
	} {
		if n := counts[part.need]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, singular(n, part.one, part.many))
		}
	}
	return text
}

func singular(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
