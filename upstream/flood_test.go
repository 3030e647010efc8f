package upstream

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
)

// TestFloodsFillNoLog: a server that sends without end what it should not send is told of a few
// times, however it sends.
func TestFloodsFillNoLog(t *testing.T) {
	const many = 1000
	requests := func(era Era, method string) func(*testing.T, *slog.Logger) {
		return func(t *testing.T, log *slog.Logger) {
			b := new(base)
			b.init(log, hooks{}, era)
			for range many {
				b.receive(&jsonrpc.Message{ID: "1", Method: method})
			}
		}
	}
	for name, send := range map[string]func(*testing.T, *slog.Logger){
		"questions of no call":             requests(EraLegacy, "sampling/createMessage"),
		"requests of an era that has none": requests(EraModern, "roots/list"),
		"events on the stream of a call": func(t *testing.T, log *slog.Logger) {
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, strings.Repeat("data: hello\n\n", many)+event("", answer7))
			})
			w := openHTTP(httpOptions{URL: srv.URL, Log: log}, nil)
			if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
				t.Error(err)
			}
			w.Close()
			mustBeGone(t)
		},
		"events of HTTP+SSE": func(t *testing.T, log *slog.Logger) {
			o := newOld(t, named+strings.Repeat("data: hello\n\n", many), echo)
			w, err := openSSE(short(t), httpOptions{URL: o.URL + "/sse", Headers: map[string]string{"X-Api-Key": "canary-k"}, Log: log}, nil)
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
