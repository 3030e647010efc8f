package diagnose

import (
	"strings"
	"testing"

	"junction/upstream"
)

// TestStatusShowsALearnedSecondProcess: the note has the line that prevents it.
func TestStatusShowsALearnedSecondProcess(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "1 connection)", 2: "2 connections)"} {
		got := second(&upstream.Status{Name: "up", Seconds: n})
		if (got == "") != (n == 0) || !strings.Contains(got, want) || n > 0 && !strings.Contains(got, `"era: modern" in upstreams.up`) {
			t.Errorf("the note of %d is %q, want %q", n, got, want)
		}
	}
}
