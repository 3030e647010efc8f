package diagnose

import (
	"testing"

	"junction/upstream"
)

// TestConnectionsOfUsersThatDoNotWorkAreCounted: the state is that of the connection that reads the
// catalog. The note counts the others.
func TestConnectionsOfUsersThatDoNotWorkAreCounted(t *testing.T) {
	const rest = "the server does not answer, or rejects the session; the log has the reason"
	for _, row := range []struct {
		state    upstream.State
		degraded int
		want     string
	}{
		{upstream.StateReady, 0, ""},
		{upstream.StateReady, 1, "1 connection of users does not work: " + rest},
		{upstream.StateReady, 2, "2 connections of users do not work: " + rest},
		{upstream.StateDegraded, 1, ""},
		{upstream.StateDegraded, 3, "2 connections of users do not work: " + rest},
	} {
		if got := silent(&upstream.Status{State: row.state, Degraded: row.degraded}); got != row.want {
			t.Errorf("%v with %d: %q, want %q", row.state, row.degraded, got, row.want)
		}
	}
}
