package diagnose

import (
	"testing"

	"junction/upstream"
)

// TestSummary counts upstreams by what they need.
func TestSummary(t *testing.T) {
	ready, retrying := upstream.StateReady.String(), upstream.StateRetrying.String()
	for _, row := range []struct {
		want  string
		given []UpstreamStatus
	}{
		{"No server is enabled", nil},
		{"1 server works", []UpstreamStatus{{State: ready}}},
		{"All 3 servers work", []UpstreamStatus{{State: ready}, {State: PerUser}, {State: upstream.StateClosed.String()}}},
		{"1 of 2 servers works, 1 needs you", []UpstreamStatus{{State: ready}, {State: upstream.StateSignIn.String()}}},
		{"0 of 1 server works, 1 is retried", []UpstreamStatus{{State: retrying}}},
		{"2 of 6 servers work, 2 need you, 1 is retried, 1 is starting", []UpstreamStatus{
			{State: ready}, {State: ready}, {State: upstream.StateBlocked.String()},
			{State: retrying, Advice: "set TOKEN"}, {State: retrying}, {State: upstream.StateStarting.String()},
		}},
		{"0 of 1 server works, 1 needs you", []UpstreamStatus{{State: upstream.StateDegraded.String()}}},
		{"1 of 2 servers works, 1 waits for a folder", []UpstreamStatus{{State: ready}, {State: upstream.StateWaiting.String()}}},
	} {
		if got := Summary(row.given); got != row.want {
			t.Errorf("the summary is %q, want %q", got, row.want)
		}
	}
}
