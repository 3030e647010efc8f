package record

import (
	"fmt"
	"testing"
	"time"
)

// TestLimitedCallersHaveALineAMinute: a flood of limited calls has one line a minute for each caller, which counts
// the others, and the memory for callers is bounded.
func TestLimitedCallersHaveALineAMinute(t *testing.T) {
	var l Limited
	now := time.Unix(1e9, 0)
	lines := 0
	for range 500 {
		if _, ok := l.Line("ann", now); ok {
			lines++
		}
	}
	if _, ok := l.Line("ben", now); !ok || lines != 1 {
		t.Errorf("ann has %d lines, want 1; ben has one: %v", lines, ok)
	}
	if more, ok := l.Line("ann", now.Add(refusalCalm)); more != 499 || !ok {
		t.Errorf("a minute later the line counts %d more (%v), want 499", more, ok)
	}
	for i := range 3000 {
		l.Line(fmt.Sprint(i), now)
	}
	if n := len(l.callers); n > 1000 {
		t.Errorf("%d callers are kept", n)
	}
}
