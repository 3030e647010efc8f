package record

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/upstream"
)

// TestOutages: a server fails for two hours, changes its reason twice, and is back.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := NewLog(authtest.Searched(t, "the log", &text), config.Log{Level: slog.LevelInfo, Format: config.LogText})
		var o Outages
		fails := func(reason string) {
			o.Changed(log, upstream.Change{Name: "up", State: upstream.StateStarting}, false)
			time.Sleep(20 * time.Second)
			o.Changed(log, upstream.Change{Name: "up", State: upstream.StateRetrying, Err: errors.New(reason)}, false)
		}
		for range 100 {
			fails("exited with status 1")
		}
		for i := range 6 {
			fails("another reason " + strings.Repeat("!", i))
		}
		o.Changed(log, upstream.Change{Name: "up", State: upstream.StateReady, Tools: 3}, false)
		o.Changed(log, upstream.Change{Name: "up", State: upstream.StateStarting}, false)
		o.Changed(log, upstream.Change{Name: "up", State: upstream.StateReady, Tools: 3}, false)
		o.Changed(log, upstream.Change{Name: "up", State: upstream.StateDegraded, Err: errors.New("no answer")}, false)
		time.Sleep(time.Minute)
		o.Changed(log, upstream.Change{Name: "up", State: upstream.StateReady, Tools: 3, Again: true}, false)
		var got []string
		for line := range strings.Lines(text.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, line)
		}
		want := []string{
			`level=INFO msg="upstream starting" upstream=up state=starting`,
			`level=WARN msg="upstream retrying" upstream=up state=retrying error="exited with status 1"`,
			`level=WARN msg="upstream retrying" upstream=up state=retrying error="another reason "`,
			`level=WARN msg="upstream retrying" upstream=up state=retrying error="another reason !!!"`,
			`level=INFO msg="upstream ready" upstream=up state=ready tools=3 failures=106 down=35m0s`,
			`level=INFO msg="upstream starting" upstream=up state=starting`,
			`level=INFO msg="upstream ready" upstream=up state=ready tools=3`,
			`level=WARN msg="upstream degraded" upstream=up state=degraded error="no answer"`,
			`level=INFO msg="upstream ready" upstream=up state=ready tools=3 failures=1 down=1m0s`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
