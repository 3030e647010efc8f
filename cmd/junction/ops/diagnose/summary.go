package diagnose

import (
	"fmt"

	"junction/upstream"
)

// This file says in a word how the upstreams are.

// Need is whether an upstream works, and otherwise on what it waits. The smaller value comes first
// in lists for people.
type Need int

const (
	NeedsOperator Need = iota // a sign-in, a correction of the file, or what Advice says
	NeedsRetry                // Junction tries again; it has no advice
	NeedsTime                 // the first connection is in progress
	NeedsFolder               // a client has to name a folder
	NeedsNothing
)

// Need returns what the upstream needs before it works.
func (u *UpstreamStatus) Need() Need {
	switch {
	case u.Invalid || u.State == upstream.StateBlocked.String() || u.State == upstream.StateSignIn.String():
		return NeedsOperator
	case u.State == upstream.StateDegraded.String(),
		u.State == upstream.StateRetrying.String() && u.Advice != "", u.NoFolder:
		return NeedsOperator
	case u.State == upstream.StateRetrying.String():
		return NeedsRetry
	case u.State == upstream.StateStarting.String():
		return NeedsTime
	case u.State == upstream.StateWaiting.String():
		return NeedsFolder
	}
	return NeedsNothing
}

// Summary counts the upstreams by their needs, such as "8 of 14 servers work, 6 need you", without a
// full stop.
func Summary(list []UpstreamStatus) string {
	var counts [NeedsNothing + 1]int
	stuck := 0
	for i := range list {
		counts[list[i].Need()]++
		stuck += max(list[i].stuckCount(), 0)
	}
	text := Works(counts[NeedsNothing], len(list))
	for _, part := range []struct {
		need      Need
		one, many string
	}{
		{NeedsOperator, "needs you", "need you"}, {NeedsRetry, "is retried", "are retried"},
		{NeedsTime, "is starting", "are starting"}, {NeedsFolder, "waits for a folder", "wait for a folder"},
	} {
		if n := counts[part.need]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, plural(n, part.one, part.many))
		}
	}
	return text + Stuck(stuck)
}

// Works says how many of all servers work, without a full stop.
func Works(works, all int) string {
	switch {
	case all == 0:
		return "No server is enabled"
	case works == all && all == 1:
		return "1 server works"
	case works == all:
		return fmt.Sprintf("All %d servers work", all)
	case all == 1:
		return "0 of 1 server works"
	}
	return fmt.Sprintf("%d of %d servers %s", works, all, plural(works, "works", "work"))
}
