//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"junction/auth"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/http1"
	"junction/upstream/upstreamtest"
)

// mustLaunch starts the program by a line of the shell, which ends with the program: "$@".
func mustLaunch(t *testing.T, p *harness.Program, line string, env ...string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line, "sh", harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), env...)
	p.MustStart(t, cmd)
}

// TestFaultDescriptors floods the program with connections, and then leaves it without a descriptor:
// clients that are connected go on, and new ones wait. A server that dies in the flood comes back, for
// clients do not get all descriptors. One that dies when there are none comes back when there are some.
func TestFaultDescriptors(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { other: { url: \""+config.URL+"\" }, demo: { command: [junction, demo] } }\n")
	mustLaunch(t, p, "ulimit -n 64; exec \"$@\"")
	p.MustReady(t, harness.Patience)
	list := keptCallers(t, p, 4)
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
	pid := p.Cmd.Process.Pid
	kill := func() {
		t.Helper()
		for _, child := range process.Descendants(pid) {
			if name, lives := process.Living(child); lives && name == "junction" {
				process.KillGroup(child)
			}
		}
	}
	kill()
	p.Stderr.MustMatch(t, regexp.MustCompile(`(?s)(msg="upstream ready" upstream=demo.*){2}`), harness.Patience, p.Done)
	server.AwaitCalls(50)
	mustLimitFiles(t, pid, 8) // those below are open for good, so that nothing more can be opened
	kill()
	server.AwaitFailures(3)
	connected.AwaitCalls(50)
	over := time.Now()
	mustLimitFiles(t, pid, 64)
	for _, c := range idle {
		c.Close()
	}
	server.AwaitCalls(50)
	harness.MustCaller(t, p.URL, harness.LegacyEra).MustCall(t, "other__echo", `{}`, "{}")
	server.Stop()
	mustLoseNothing(t, connected)
	report(t, "no descriptors, and a server dies", server.Figures(over))
}

// keptCallers returns callers of both eras that keep their connections. http.Transport closes one if its
// goroutine that writes has not run for 50 ms after a response, as on a busy machine.
func keptCallers(t *testing.T, p *harness.Program, n int) []*harness.Caller {
	t.Helper()
	list := make([]*harness.Caller, n)
	for i := range list {
		conns := &http1.Client{Dial: new(net.Dialer).DialContext, MaxIdle: harness.Patience}
		t.Cleanup(conns.CloseIdleConnections)
		list[i] = harness.MustCallerBy(t, &http.Client{Transport: conns}, p.URL, harness.BothEras()[i%2])
		list[i].MustCall(t, "other__echo", `{}`, "{}")
	}
	return list
}

// mustLimitFiles changes how many files a running process may have open.
func mustLimitFiles(t *testing.T, pid int, most uint64) {
	t.Helper()
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: 64}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestFaultMemory gives the program 192 MiB, as a container would. Callers send
// and get more than that at once: some are told to come later, none ends the program, and the calls of
// another user go on.
func TestFaultMemory(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	const limit = 192 << 20
	group, err := os.MkdirTemp("/sys/fs/cgroup/memory", "junction-test-")
	if err == nil {
		t.Cleanup(func() { os.Remove(group) })
		err = os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o600)
	}
	join, env, most := "", []string(nil), limit
	if err == nil {
		join = "echo $$ >" + filepath.Join(group, "cgroup.procs") + "; "
		program, err := os.Stat(harness.JunctionBinary(t))
		if err != nil {
			t.Fatal(err)
		}
		most += int(program.Size()) // the pages of its file may count for another group
	} else {
		t.Logf("no container can be made here, so GOMEMLIMIT stands for one: %v", err)
		env = append(env, "GOMEMLIMIT=154MiB")
		most += limit / 4 // it is a goal of the collector, which a busy machine delays
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
		err := load.Call(ctx, list[2+i], "other__echo", large)
		if err != nil { // which says to wait: 3 MiB that are refused cost as much as those that are not
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return err
	})
	greedy.AwaitCalls(40) // more than one for each caller
	over := time.Now()
	greedy.Stop()
	other.AwaitCalls(50)
	other.Stop()
	f := other.Figures(over)
	if peak := p.Peak(t); peak > most {
		t.Errorf("the program had %d MB", peak/1e6)
	}
	report(t, fmt.Sprintf("24 callers with 3 MiB each, 192 MiB of memory, at most %d MB used; small calls", p.Peak(t)/1e6), f)
	report(t, "the large calls of those", greedy.Figures(time.Time{}))
}

// TestFaultHalfSentRequests has 80 clients that begin a request and do not go on, and a program that may
// open few files. The admin address answers, /readyz, the metrics and one line of the log show that new
// connections wait, and a client is served as soon as others have left.
func TestFaultHalfSentRequests(t *testing.T) {
	harness.Waits(t)
	const limit = 64
	p := harness.NewProgram(t)
	p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\n")
	mustLaunch(t, p, fmt.Sprintf("ulimit -n %d; exec \"$@\"", limit))
	p.MustReady(t, harness.Patience)
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp")
	var halves []net.Conn
	for range 80 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\n\r\n{", address); err != nil {
			t.Fatal(err)
		}
		halves = append(halves, c)
	}
	p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="new connections wait: `), harness.Patience, p.Done)
	for range 20 {
		if r := p.MustReady(t, harness.Patience); r.Status != "degraded" {
			t.Errorf("the admin address answers %+v", r)
		}
		text := mustGet(t, p.Admin+"/metrics", http.StatusOK)
		for _, line := range []string{fmt.Sprintf("junction_descriptors_limit %d", limit), "junction_connections 16",
			"junction_connections_limit 16", "junction_connections_waiting 1"} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("the metrics have no line %q:\n%s", line, text)
			}
		}
	}
	const waits = "connections: new connections wait: all that the limit of open files allows are open"
	if text := strings.Join(strings.Fields(mustStatus(t, p)), " "); !strings.Contains(text, waits) {
		t.Errorf("the status does not show that connections wait:\n%s", text)
	}
	if n := strings.Count(p.Stderr.String(), "level=WARN msg=\"new connections wait"); n != 1 {
		t.Errorf("the log has %d lines about waiting connections, want 1", n)
	}
	for _, c := range halves {
		c.Close()
	}
	harness.MustCaller(t, p.URL, harness.LegacyEra).MustCall(t, "demo__echo", `{"text":"hello"}`, "hello")
	if r := p.MustReady(t, harness.Patience); r.Status != "ready" {
		t.Errorf("when the others have left: %+v", r)
	}
}

// TestFaultUnfinishedHeaders has 100 clients that begin a header, in each of the two servers, and do not go
// on. Connections are closed until the others fit, and the log has one line about it. Clients of both eras
// connect and call, and one that is connected sends a large header.
func TestFaultUnfinishedHeaders(t *testing.T) {
	harness.Waits(t)
	for name, begin := range map[string]string{
		"own": "POST /mcp HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 10_000), // takes 16 KiB
		// 112 KiB, most of it for the lines
		"handed over": "PUT /mcp HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("y", 15_000) + "\r\n" + strings.Repeat("A:\n", 750),
	} {
		t.Run(name, func(t *testing.T) {
			p := harness.NewProgram(t)
			p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\n"+
				"limits: { body: 512KiB, bodies: 1MiB, read_timeout: 10m }\n") // of which unfinished requests have 1 MiB
			p.MustServe(t)
			p.MustReady(t, harness.Patience)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			large := func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Origin()+"/mcp?x", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Cookie", strings.Repeat("y", 60_000))
				resp, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
					t.Errorf("a header of 60 KB gets %s", resp.Status)
				}
			}
			large()
			const many = 100
			ends := make(chan error, many)
			var reading sync.WaitGroup
			defer reading.Wait()
			for range many {
				c, err := net.Dial("tcp", strings.TrimPrefix(p.Origin(), "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if err := c.SetDeadline(time.Now().Add(harness.Patience)); err != nil {
					t.Fatal(err)
				}
				reading.Go(func() {
					if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
						ends <- fmt.Errorf("a connection is open, or was answered: %w", err)
						return
					}
					ends <- nil
				})
				_, _ = io.WriteString(c, begin) // some are closed before the end of it
			}
			p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="connections are closed: unfinished requests take `), harness.Patience, p.Done)
			for range 30 {
				if err := <-ends; err != nil {
					t.Fatal(err)
				}
			}
			for _, era := range harness.BothEras() {
				harness.MustCaller(t, p.URL, era).MustCall(t, "demo__echo", `{"text":"hello"}`, "hello")
			}
			large()
			if n := strings.Count(p.Stderr.String(), "connections are closed"); n != 1 {
				t.Errorf("the log has %d lines about closed connections, want 1", n)
			}
		})
	}
}

// mustGet returns the body of an answer with that status.
func mustGet(t *testing.T, url string, status int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s is answered %d: %s (%v)", url, resp.StatusCode, text, err)
	}
	return string(text)
}

// TestFaultFullDisk has the audit on a disk with less space than Junction needs. The body of /readyz,
// the command status and a metric show it; the status code stays, and calls go on. With more space, all
// is well again.
func TestFaultFullDisk(t *testing.T) {
	harness.Waits(t)
	needs.Mounts.Require(t)
	p := harness.NewProgram(t)
	disk, more := filepath.Join(p.Dir, "disk"), filepath.Join(p.Dir, "more")
	if err := errors.Join(os.Mkdir(disk, 0o700), syscall.Mkfifo(more, 0o600)); err != nil {
		t.Fatal(err)
	}
	p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\naudit: { file: "+disk+"/audit.jsonl }\n")
	const line = `mount -t tmpfs -o size=12m tmpfs "$1" || exit 9
		(read -r _ < "$2"; mount -o remount,size=64m "$1") &
		shift 2; exec "$@"`
	p.MustStart(t, exec.Command("unshare", "-rm", "sh", "-c", line, "sh", disk, more, harness.JunctionBinary(t), "--config",
		p.File()))
	if r := p.MustReady(t, harness.Patience); r.Status != "degraded" {
		t.Errorf("the report is %+v, want degraded", r)
	}
	const full = "the disk of "
	for _, text := range []string{mustGet(t, p.Admin+"/readyz", http.StatusOK), mustStatus(t, p)} {
		text = strings.Join(strings.Fields(text), " ") // a line may be broken
		if !strings.Contains(text, full+disk) || !strings.Contains(text, "is full") {
			t.Errorf("the full disk is not in:\n%s", text)
		}
	}
	up := func() bool {
		return strings.Contains(mustGet(t, p.Admin+"/metrics", http.StatusOK), "\njunction_part_up{junction_part=\"disk\"} 1\n")
	}
	if up() {
		t.Error("the metric says that the disk works")
	}
	harness.MustCaller(t, p.URL, harness.LegacyEra).MustCall(t, "demo__echo", `{"text":"hello"}`, "hello")
	if err := os.WriteFile(more, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	p.Stderr.MustMatch(t, regexp.MustCompile(`msg="a part that Junction depends on works again" part=disk`), harness.Patience,
		p.Done)
	if r := p.MustReady(t, harness.Patience); r.Status != "ready" || !up() {
		t.Errorf("with more space, the report is %+v", r)
	}
	if text := mustStatus(t, p); strings.Contains(text, full) {
		t.Errorf("with more space, the status is\n%s", text)
	}
}

// TestFaultRevocationOnAFullDisk revokes keys of a file on a full disk. The first revocation has space for the file
// alone, the second one has none, and removes an old backup. Another change of the file waits for space.
func TestFaultRevocationOnAFullDisk(t *testing.T) {
	harness.Waits(t)
	needs.Mounts.Require(t)
	p := harness.NewProgram(t)
	text := "upstreams: {}\nauth:\n  api_keys:\n"
	for _, name := range []string{"ann", "bob", "eve"} {
		hash, err := auth.HashKey(auth.NewKey())
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("    - { name: %s, hash: %q }\n", name, hash)
	}
	p.MustConfigure(t, text)
	const script = `mount -t tmpfs -o size=24k tmpfs "$1" && cp "$2" "$1/junction.yaml" && cd "$1" || exit 9
		for year in 2020 2021; do
			echo old > junction.yaml.$year-01-02T030405.bak
			touch -d $year-01-02 junction.yaml.$year-01-02T030405.bak
		done
		dd if=/dev/zero of=filler bs=4096 count=2 2>/dev/null || exit 9
		"$3" keys revoke ann --config junction.yaml || exit 1
		dd if=/dev/zero of=filled bs=4096 count=9 2>/dev/null
		! "$3" add other --config junction.yaml -- true || exit 2
		"$3" keys revoke bob --config junction.yaml || exit 3
		cat junction.yaml; ls`
	disk := filepath.Join(p.Dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-rm", "sh", "-c", script, "sh", disk, p.File(), harness.JunctionBinary(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for word, n := range map[string]int{"There is no backup, because the disk is full": 2, "name: ann": 0, "name: bob": 0,
		"name: eve": 1, "free some space there": 1, ".2020-": 0, ".2021-": 1} {
		if got := strings.Count(string(out), word); got != n {
			t.Errorf("%q is there %d times, want %d, in:\n%s", word, got, n, out)
		}
	}
}

// mustStatus returns what junction status prints.
func mustStatus(t *testing.T, p *harness.Program) string {
	t.Helper()
	cmd := exec.Command(harness.JunctionBinary(t), "status", "--admin", strings.TrimPrefix(p.Admin, "http://"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("junction status: %v\n%s", err, out)
	}
	return string(out)
}
