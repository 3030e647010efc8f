package diagnose

import (
	"testing"
	"time"

	"junction/upstream"
)

// TestKnownCrashIsNoDownload: an installer that takes long downloads, until its process has ended: then the note
// has the reason, while another process is started.
func TestKnownCrashIsNoDownload(t *testing.T) {
	since := time.Now().Add(-10 * time.Second)
	const npx = "/usr/bin/npx"
	for _, row := range []struct {
		name   string
		status upstream.Status
		want   string
	}{
		{"long", upstream.Status{State: upstream.StateStarting, Since: since}, "npx may be downloading the package"},
		{"just begun", upstream.Status{State: upstream.StateStarting, Since: time.Now()}, ""},
		{"crashed", upstream.Status{State: upstream.StateStarting, Since: since, Exited: "exited with status 1: no module"},
			"exited with status 1: no module; starting it once more, in the legacy era"},
		{"failed", upstream.Status{State: upstream.StateRetrying, Since: since}, ""},
	} {
		if got := note(&row.status, npx); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}
