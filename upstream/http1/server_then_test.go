package http1

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSafety8Then: what a handler has left to be done is done when its answer was sent, and before
// the connection reads the next request.
func TestSafety8Then(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const request = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
		var did []string
		waits := make(chan struct{})
		h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			did = append(did, "answer")
			io.WriteString(w, "an answer")
			w.(interface{ Then(func()) }).Then(func() {
				did = append(did, "wait")
				<-waits
			})
		})}
		s := &Server{HTTP: h}
		l := newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		c := l.dial(t)
		c.send(request, request)
		if a := c.read(); a.Status != 200 || a.Body != "an answer" {
			t.Errorf("the answer is %+v", a)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(did, []string{"answer", "wait"}) {
			t.Errorf("done were %q; want an answer, and a wait before the next request is read", did)
		}
		close(waits)
		if a := c.read(); a.Status != 200 {
			t.Errorf("the second answer is %+v", a)
		}
		s.Close()
		<-done
	})
}
