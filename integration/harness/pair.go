package harness

import (
	"fmt"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/upstreamtest"
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

// Pair is a pair of eras that meet, and the transport to the upstream.
type Pair struct {
	Client, Upstream upstream.Era
	Transport        string // stdio, http or sse
}

// Transports returns the transports that an era has; HTTP+SSE has no modern era.
func Transports(era upstream.Era) []string {
	if era == upstream.EraModern {
		return []string{"stdio", "http"}
	}
	return []string{"stdio", "http", "sse"}
}

// Start starts a server of the pair, and returns the configuration of it and what it receives.
func (p Pair) Start(t testing.TB, script upstreamtest.Script) (upstream.Config, *upstreamtest.Journal) {
	t.Helper()
	script.Era = string(p.Upstream)
	config, journal := MustScripted(t, p.Transport, script)
	if p.Transport == "sse" {
		config.Transport = upstream.TransportSSE
	}
	return config, journal
}

// EachPair runs f in each pair of eras over each transport.
func EachPair(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			EachTransport(t, client, up, f)
		}
	}
}

// EachTransport runs f over each transport that the upstream's era has.
func EachTransport(t *testing.T, client, up upstream.Era, f func(*testing.T, Pair)) {
	t.Helper()
	for _, transport := range Transports(up) {
		RunPair(t, client, up, transport, f)
	}
}

// EachEra runs f in each pair of eras over HTTP, for tests in which the transport does not matter.
func EachEra(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			RunPair(t, client, up, "http", f)
		}
	}
}

// RunPair runs f in one pair, as a subtest.
func RunPair(t *testing.T, client, up upstream.Era, transport string, f func(*testing.T, Pair)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s client, %s %s", client, up, transport),
		func(t *testing.T) { f(t, Pair{client, up, transport}) })
}
