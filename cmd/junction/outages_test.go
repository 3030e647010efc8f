package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/cmd/junction/config"
	"junction/cmd/junction/record"
	"junction/upstream"
)

// TestOutages: a server fails for two hours, changes its reason twice, and is back.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := record.NewLog(authtest.Searched(t, "the log", &text), config.Log{Level: slog.LevelInfo, Format: config.LogText})
		var o outages
		fails := func(reason string) {
			o.changed(log, "up", upstream.StateConnecting, nil)
			time.Sleep(20 * time.Second)
			o.changed(log, "up", upstream.StateWaiting, errors.New(reason))
		}
		for range 100 {
			fails("exited with status 1")
		}
		for i := range 6 {
			fails("another reason " + strings.Repeat("!", i))
		}
		o.changed(log, "up", upstream.StateReady, nil)
		o.changed(log, "up", upstream.StateConnecting, nil)
		o.changed(log, "up", upstream.StateReady, nil)
		var got []string
		for line := range strings.Lines(text.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, line)
		}
		want := []string{
			`level=INFO msg="upstream connecting" upstream=up state=connecting`,
			`level=WARN msg="upstream waiting" upstream=up state=waiting error="exited with status 1"`,
			`level=WARN msg="upstream waiting" upstream=up state=waiting error="another reason "`,
			`level=WARN msg="upstream waiting" upstream=up state=waiting error="another reason !!!"`,
			`level=INFO msg="upstream ready" upstream=up state=ready failures=106 down=35m0s`,
			`level=INFO msg="upstream connecting" upstream=up state=connecting`,
			`level=INFO msg="upstream ready" upstream=up state=ready`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
