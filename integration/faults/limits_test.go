//go:build linux

package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// mustLaunch starts the program by a line of the shell, which ends with the program: "$@".
func mustLaunch(t *testing.T, p *harness.Program, line string, env ...string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line, "sh", harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), env...)
	p.MustStart(t, cmd)
}

// TestFaultDescriptors leaves the program without a descriptor: clients that are connected go on, new
// ones wait, and a server that dies meanwhile comes back when there are descriptors again.
func TestFaultDescriptors(t *testing.T) {
	harness.WithoutShort(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { other: { url: \""+config.URL+"\" }, demo: { command: [junction, demo] } }\n")
	mustLaunch(t, p, "ulimit -n 64; exec \"$@\"")
	p.MustReady(t, harness.Patience)
	list := callers(t, p, 4)
	connected := load.Start(t, 2, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[i], "other__echo", `{"a":1}`)
	})
	server := load.Start(t, 2, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[2+i], "demo__echo", `{"text":"hello"}`)
	})
	connected.AwaitCalls(50)
	server.AwaitCalls(50)
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp")
	var idle []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	mustExhaust(t, p.Cmd.Process.Pid, 64)
	for _, pid := range harness.Descendants(p.Cmd.Process.Pid) {
		if name, lives := harness.Living(pid); lives && name == "junction" {
			harness.KillGroup(pid)
		}
	}
	server.AwaitFailures(3)
	connected.AwaitCalls(50)
	over := time.Now()
	for _, c := range idle {
		c.Close()
	}
	server.AwaitCalls(50)
	harness.MustCaller(t, p.URL, harness.LegacyEra).MustCall(t, "other__echo", `{}`, "{}")
	server.Stop()
	mustLoseNothing(t, connected)
	report(t, "no descriptors, and a server dies", server.Figures(over))
}

// mustExhaust waits until a process has as many descriptors as it may.
func mustExhaust(t *testing.T, pid, limit int) {
	t.Helper()
	for end := time.Now().Add(harness.Patience); time.Now().Before(end); {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) >= limit {
			return
		}
	}
	t.Fatal("the program does not use up its descriptors")
}

// TestFaultMemory gives the program 192 MiB, as a container would. Callers send
// and get more than that at once: some are told to come later, none ends the program, and the calls of
// another user go on.
func TestFaultMemory(t *testing.T) {
	harness.WithoutShort(t)
	const limit = 192 << 20
	group, err := os.MkdirTemp("/sys/fs/cgroup/memory", "junction-test-")
	if err == nil {
		t.Cleanup(func() { os.Remove(group) })
		err = os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o600)
	}
	join, env := "", []string(nil)
	if err == nil {
		join = "echo $$ >" + filepath.Join(group, "cgroup.procs") + "; "
	} else {
		t.Logf("no container can be made here, so GOMEMLIMIT stands for one: %v", err)
		env = append(env, "GOMEMLIMIT=154MiB")
	}
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { other: { url: \""+config.URL+"\" } }\n")
	mustLaunch(t, p, join+"exec \"$@\"", env...)
	p.MustReady(t, harness.Patience)
	p.Stderr.MustMatch(t, regexp.MustCompile(`msg="memory is limited" limit=\d+ bodies=\d+`), harness.Patience, p.Done)
	list := callers(t, p, 26)
	large := `{"text":"` + strings.Repeat("x", 3<<20) + `"}`
	other := load.Start(t, 2, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[i], "other__echo", `{"a":1}`)
	})
	other.AwaitCalls(20)
	greedy := load.Start(t, 24, func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[2+i], "other__echo", large)
	})
	greedy.AwaitCalls(100)
	over := time.Now()
	greedy.Stop()
	other.AwaitCalls(50)
	other.Stop()
	f := other.Figures(over)
	if peak := p.Peak(t); peak > limit {
		t.Errorf("the program had %d MB", peak/1e6)
	}
	report(t, fmt.Sprintf("24 callers with 3 MiB each, 192 MiB of memory, at most %d MB used; small calls", p.Peak(t)/1e6), f)
	report(t, "the large calls of those", greedy.Figures(time.Time{}))
}
