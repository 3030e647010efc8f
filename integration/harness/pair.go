package harness

import (
	"fmt"
	"testing"
	"time"

	"junction/upstream"
)

// EachTimeout runs f with a timeout, and with longer ones as long as f says that it was too late:
// an upstream that a slow machine keeps waiting is no failure, and what does not come with any of
// them is one.
func EachTimeout(t *testing.T, timeout time.Duration, f func(t *testing.T, timeout time.Duration) (late bool)) {
	t.Helper()
	for late := true; late; timeout *= 4 {
		t.Run(timeout.String(), func(t *testing.T) {
			if late = f(t, timeout); late && timeout > 5*time.Second {
				t.Fatalf("it is too late within %v", timeout)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// Pair is which eras meet, and over which wire the upstream is reached.
type Pair struct {
	Client, Upstream upstream.Era
	Transport        string // stdio, http or sse
}

// EachPair runs f in each pair of eras over each wire that there is.
func EachPair(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			EachTransport(t, Pair{client, up, ""}, f)
		}
	}
}

// EachTransport runs f over each wire that the upstream's era has.
func EachTransport(t *testing.T, p Pair, f func(*testing.T, Pair)) {
	t.Helper()
	for _, p.Transport = range []string{"stdio", "http", "sse"} {
		if p.Transport == "sse" && p.Upstream == upstream.EraModern {
			continue
		}
		RunPair(t, p, f)
	}
}

// EachEra runs f in each pair of eras over HTTP, for what has nothing to do with the wire.
func EachEra(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			RunPair(t, Pair{client, up, "http"}, f)
		}
	}
}

func RunPair(t *testing.T, p Pair, f func(*testing.T, Pair)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s client, %s %s", p.Client, p.Upstream, p.Transport), func(t *testing.T) { f(t, p) })
}
