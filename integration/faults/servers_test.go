package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// TestFaultServersCrash kills 50 servers at once. Another one loses no call, and all 50 come back.
func TestFaultServersCrash(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	const many = 50
	var servers strings.Builder
	for i := range many {
		fmt.Fprintf(&servers, "  s%02d: { command: [junction, demo] }\n", i)
	}
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.MustProgram(t, "upstreams:\n  other: { url: \""+config.URL+"\" }\n"+servers.String())
	p.MustReady(t, 2*harness.Patience)
	list := callers(t, p, 8)
	other := load.Start(t, 2, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[i], "other__echo", `{"a":1}`)
	})
	crashed := load.Start(t, 6, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[2+i], fmt.Sprintf("s%02d__echo", (i*17+n)%many), `{"text":"hello"}`)
	})
	crashed.AwaitCalls(200)
	killed := 0
	for _, pid := range process.Descendants(p.Cmd.Process.Pid) {
		if name, lives := process.Living(pid); lives && name == "junction" {
			process.KillGroup(pid)
			killed++
		}
	}
	over := time.Now()
	if killed != many {
		t.Fatalf("%d servers were killed, want %d", killed, many)
	}
	p.MustReady(t, 2*harness.Patience)
	ready := time.Since(over).Round(time.Millisecond)
	crashed.AwaitCalls(200)
	crashed.Stop()
	mustLoseNothing(t, other)
	report(t, fmt.Sprintf("50 servers crash (all ready after %v)", ready), crashed.Figures(over))
}
