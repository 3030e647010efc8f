package auth_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"junction/auth"
)

// TestRequestIDs: ids are unique, and do not count requests.
func TestRequestIDs(t *testing.T) {
	ids := auth.NewRequestIDs()
	if got := auth.RequestID(httptest.NewRecorder()); got != "" {
		t.Errorf("a request that nobody has given an id has %q", got)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 1000 {
				w := httptest.NewRecorder()
				ids.Stamp(w)
				id := auth.RequestID(w)
				w.Header().Add("X-Request-Id", "of somebody else") // is nobody's but this one's
				mu.Lock()
				if seen[id] || len(id) < 10 || len(id) > 24 || id != w.Header().Get("X-Request-Id") {
					t.Errorf("a request has the id %q", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// An id does not tell how many requests were before it: ids share no beginning and no end.
	for name, part := range map[string]func(id string) string{
		"beginning": func(id string) string { return id[:len(id)/2] },
		"end":       func(id string) string { return id[len(id)-len(id)/2:] },
	} {
		parts := map[string]string{}
		for id := range seen {
			if other := parts[part(id)]; other != "" {
				t.Errorf("%q and %q have the same %s", id, other, name)
				break
			}
			parts[part(id)] = id
		}
	}
}

// BenchmarkStamp measures the cost of an id: almost no memory.
func BenchmarkStamp(b *testing.B) {
	ids, w := auth.NewRequestIDs(), httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		ids.Stamp(http.ResponseWriter(w))
	}
}

// TestTraceID reads headers as W3C Trace Context allows and forbids them.
func TestTraceID(t *testing.T) {
	const id, rest = "4bf92f3577b34da6a3ce929d0e0e4736", "-00f067aa0ba902b7-01"
	for header, want := range map[string]string{
		"":                                     "",
		"00-" + id + rest:                      id,
		"01-" + id + rest:                      id,
		"01-" + id + rest + "-more":            id,
		"01-" + id + rest + "more":             "",
		"00-" + id + rest + "-more":            "",
		"ff-" + id + rest:                      "",
		"00-" + strings.ToUpper(id) + rest:     "",
		"00-" + strings.Repeat("0", 32) + rest: "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01": "",
		"00-" + id + "_00f067aa0ba902b7-01":                "",
		"00-" + id:                                         "",
		"00-" + id[:31] + `"` + rest:                       "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		if header != "" {
			r.Header.Set("traceparent", header)
		}
		if got := auth.TraceID(r); got != want {
			t.Errorf("the trace of %q is %q, want %q", header, got, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header["Traceparent"] = []string{"00-" + id + rest, "00-" + id + rest}
	if got := auth.TraceID(r); got != "" {
		t.Errorf("the trace of two headers is %q", got)
	}
}
