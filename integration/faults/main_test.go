// Package faults causes faults around the real program while callers make calls: of servers, disks,
// DNS, identity providers, memory and descriptors. Each test requires that no call is lost that the
// fault does not concern, and that Junction recovers by itself. It logs its figures:
//
//	go test ./integration/faults ./integration/signin -run TestFault -v | grep FAULT
package faults

import (
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/load"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// report logs a line of the table of faults.
func report(t *testing.T, what string, f load.Figures) { t.Logf("FAULT %s: %v", what, f) }

// mustLoseNothing requires that no call has failed.
func mustLoseNothing(t *testing.T, l *load.Load) {
	t.Helper()
	if f := l.Figures(time.Time{}); f.Lost > 0 || f.Calls == 0 {
		t.Errorf("what the fault does not concern has lost calls: %v", f)
	}
}

// callers returns callers of both eras.
func callers(t *testing.T, p *harness.Program, n int) []*harness.Caller {
	t.Helper()
	list := make([]*harness.Caller, n)
	for i := range list {
		list[i] = harness.MustCaller(t, p.URL, harness.BothEras()[i%2])
	}
	return list
}
