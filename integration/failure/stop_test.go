//go:build unix

package failure

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
)

// TestStubbornServersEndTogether stops a program whose ten servers ignore the end of their input and
// SIGTERM. There are calls in progress, open streams, a client that does not read its answer, and the
// CPU is busy. Calls get their grace. A server has two seconds after the end of its input and two
// after SIGTERM, then it is killed: all servers at the same time, so that the stop takes much less
// than one server after the other would.
func TestStubbornServersEndTogether(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	const grace, ladder, servers = 2 * time.Second, 4 * time.Second, 10
	config := "shutdown_grace: 2s\nupstreams:\n"
	for i := range servers {
		config += fmt.Sprintf("  stubborn%d: { command: [sh, -c, %q, sh, %q] }\n", i, `trap "" TERM; "$1" demo; sleep 1000`,
			harness.JunctionBinary(t))
	}
	p := harness.MustProgram(t, config)
	p.MustReady(t, harness.Patience)
	for i := range 10 {
		for _, era := range harness.Eras {
			c := harness.Talk(t, p.URL, era)
			c.Begin(t, harness.Called(fmt.Sprintf("stubborn%d__count", i), `{"n":100,"ms":1000}`))
			if era == client.EraLegacy {
				c.Get(t)
			}
		}
	}
	deafTo(t, p)
	var idle atomic.Bool
	var burners sync.WaitGroup
	family := process.Descendants(p.Cmd.Process.Pid)
	for range runtime.NumCPU() {
		burners.Go(func() {
			for !idle.Load() {
			}
		})
	}
	began := time.Now()
	process.Terminate(p.Cmd.Process.Pid)
	<-p.Done
	took := time.Since(began)
	idle.Store(true)
	burners.Wait()
	t.Logf("the stop took %v with a grace of %v", took, grace)
	if inARow := grace + servers*ladder; took < grace || took > inARow*2/3 {
		t.Errorf("the stop took %v, want more than %v, and much less than %v", took, grace, inARow)
	}
	for _, child := range family {
		if name, lives := process.Living(child); lives {
			t.Errorf("process %d (%s) outlived junction", child, name)
		}
	}
}

// deafTo makes a call with a large answer, and does not read it.
func deafTo(t *testing.T, p *harness.Program) {
	t.Helper()
	c := harness.Talk(t, p.URL, client.EraModern)
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	q := harness.Called("stubborn0__echo", `{"text":"`+strings.Repeat("x", 8<<20)+`"}`)
	q.ID = "1"
	if err := c.Request(t, harness.Patient(t), q).Write(conn); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer has begun
		t.Fatal(err)
	}
}
