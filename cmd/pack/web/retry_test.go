package web

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/cmd/pack/manifest"
)

// answers is a transport that gives one answer after the other; nil is a refused connection.
type answers struct {
	list []*http.Response
	at   []time.Duration // of the requests
	from time.Time
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	a.at = append(a.at, time.Since(a.from))
	next := a.list[min(len(a.at), len(a.list))-1]
	if next == nil {
		return nil, syscall.ECONNREFUSED
	}
	copied := *next
	copied.Body = io.NopCloser(strings.NewReader("body"))
	return &copied, nil
}

func status(code int, after string) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Retry-After": {after}}}
}

// TestRetries: pauses grow, are not shorter than Retry-After, have jitter, and end with the timeout.
func TestRetries(t *testing.T) {
	ok := status(200, "")
	for name, test := range map[string]struct {
		answers  []*http.Response
		retries  int
		requests int
		least    time.Duration // before the last request
		most     time.Duration
		fails    bool
	}{
		"refused twice":               {[]*http.Response{nil, nil, ok}, 2, 3, 500 * time.Millisecond, time.Second, false},
		"refused":                     {[]*http.Response{nil}, 3, 4, time.Second, 2 * time.Second, true},
		"none":                        {[]*http.Response{nil, ok}, 0, 1, 0, 0, true},
		"busy":                        {[]*http.Response{status(503, ""), ok}, 1, 2, 180 * time.Millisecond, time.Second, false},
		"busy for seconds":            {[]*http.Response{status(503, "4"), ok}, 1, 2, 4 * time.Second, 5 * time.Second, false},
		"busy beyond the timeout":     {[]*http.Response{status(503, "31"), ok}, 5, 1, 0, 0, true},
		"a pause that is no number":   {[]*http.Response{status(503, "-1"), ok}, 1, 2, 180 * time.Millisecond, time.Second, false},
		"another error of the server": {[]*http.Response{status(500, "1"), ok}, 5, 1, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{list: test.answers, from: time.Now()}
				c := &Client{http.Client{Transport: a}}
				var limits manifest.Limits
				limits.Timeout, limits.MaxOutput, limits.Retries.Count = 30*time.Second, 1<<10, test.retries
				_, err := c.Send(t.Context(), "x", &Request{Method: "GET", URL: "https://a.example/", Header: http.Header{}, Repeat: true}, limits)
				last := a.at[len(a.at)-1]
				if len(a.at) != test.requests || last < test.least || last > test.most || (err != nil) != test.fails {
					t.Errorf("%d requests, the last after %v, and %v; want %d", len(a.at), last, err, test.requests)
				}
				a.at = nil
				if c.Send(t.Context(), "x", &Request{Method: "POST", URL: "https://a.example/", Header: http.Header{}}, limits); len(a.at) != 1 {
					t.Errorf("a request that must not be repeated was sent %d times", len(a.at))
				}
			})
		})
	}
}
