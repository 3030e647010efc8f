package front

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// timed is the connection of a client. It notes how long each write may take at most; 0 is forever.
type timed struct {
	*httptest.ResponseRecorder
	until  time.Time
	limits []time.Duration
}

func (w *timed) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func (w *timed) note() {
	limit := time.Until(w.until)
	if w.until.IsZero() {
		limit = 0
	}
	w.limits = append(w.limits, limit)
}

func (w *timed) WriteHeader(status int) { w.note(); w.ResponseRecorder.WriteHeader(status) }
func (w *timed) Write(b []byte) (int, error) {
	w.note()
	return w.ResponseRecorder.Write(b)
}
func (w *timed) Flush() { w.note(); w.ResponseRecorder.Flush() }

// TestSlowClient: a client that does not read the answer of another process has the timeout for each
// part of it, however late that part comes, and then the request ends.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &timed{ResponseRecorder: httptest.NewRecorder()}
		w := newRelay(client, httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}")), time.Minute)
		steps := []func(){
			func() { w.WriteHeader(http.StatusOK) },
			func() { w.FlushError() },
			func() { w.Write([]byte("data: 1\n\n")) },
			func() { w.FlushError() },
			func() { w.Write([]byte("data: 2\n\n")) },
		}
		for i, step := range steps {
			time.Sleep(time.Hour)
			if step(); len(client.limits) != i+1 || client.limits[i] != time.Minute {
				t.Fatalf("after step %d the client has %v for the writes, want %v for each", i, client.limits, time.Minute)
			}
		}
	})
}
