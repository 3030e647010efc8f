package transport

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestFloodsFillNoLog: a server that sends without end what it should not send is told of a few
// times, however it sends.
func TestFloodsFillNoLog(t *testing.T) {
	const many = 1000
	for name, send := range map[string]func(*testing.T, *slog.Logger){
		"events on the stream of a call": func(t *testing.T, log *slog.Logger) {
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, strings.Repeat("data: hello\n\n", many)+event("", answer7))
			})
			w := OpenHTTP(HTTPOptions{URL: srv.URL, Log: log}, nil)
			if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
				t.Error(err)
			}
			w.Close()
			mustBeGone(t)
		},
		"events of HTTP+SSE": func(t *testing.T, log *slog.Logger) {
			o := newOld(t, named+strings.Repeat("data: hello\n\n", many), echo)
			w, err := OpenSSE(short(t), HTTPOptions{URL: o.URL + "/sse", Headers: map[string]string{"X-Api-Key": "canary-k"}, Log: log}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
				t.Error(err)
			}
			w.Close()
			mustBeGone(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			send(t, authtest.Log(t, &log))
			if n := strings.Count(log.String(), "level=WARN"); n != 5 {
				t.Errorf("the log has %d lines of %d messages, want 5:\n%.500s", n, many, log.String())
			}
		})
	}
}

func TestFlood(t *testing.T) {
	var f LogLimit
	for range logLimit {
		if ok, dropped := f.allow(time.Unix(1000, 0)); !ok || dropped != 0 {
			t.Fatalf("allow = %v, %d, want true, 0", ok, dropped)
		}
	}
	now := time.Unix(1000, 0)
	for i, row := range []struct {
		after   time.Duration
		ok      bool
		dropped int
	}{{0, false, 0}, {logWindow - 1, false, 0}, {1, true, 2}, {0, true, 0}, {0, true, 0}, {0, true, 0}, {0, true, 0}, {0, false, 0}} {
		now = now.Add(row.after)
		if ok, dropped := f.allow(now); ok != row.ok || dropped != row.dropped {
			t.Errorf("%d: allow = %v, %d, want %v, %d", i, ok, dropped, row.ok, row.dropped)
		}
	}
}
