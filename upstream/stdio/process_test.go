//go:build unix

package stdio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/transport"
)

func TestStdioClose(t *testing.T) {
	t.Parallel()
	const (
		short = 300 * time.Millisecond // every step is waited for
		long  = 2 * time.Second        // a step is waited for, and another is taken at once, be the machine slow
		last  = 6 * time.Second        // the same, where a slow machine must not be taken for a child that stays
		never = 20 * time.Second       // no step of the ladder may be waited for
	)
	for _, row := range []struct {
		role, state string
		grace       time.Duration
	}{
		{"server", "exit status 0", never},     // its input ended
		{"eof-deaf", "exit status 7", long},    // SIGTERM
		{"stubborn", "signal: killed", short},  // SIGKILL
		{"deaf", "signal: terminated", long},   // never reads
		{"family", "exit status 0", long},      // has a child that holds its stdout and ignores everything
		{"family-old", "exit status 0", last},  // has a child that holds its stdout and goes on SIGTERM
		{"family-run", "exit status 0", never}, // the same, and that child has left the group
	} {
		t.Run(row.role, func(t *testing.T) {
			t.Parallel() // each waits for its steps
			// A child that a busy machine gives no time is not told from one that stays: it gets more.
			for grace := row.grace; ; grace *= 3 {
				w, runaway := mustOpenToClose(t, row.role, grace, never)
				start := time.Now()
				mustCloseOften(t, w)
				took, state := time.Since(start), w.process.state.String()
				if runaway > 0 {
					if err := syscall.Kill(runaway, syscall.SIGKILL); err != nil {
						t.Errorf("the runaway: %v", err)
					}
				}
				asked := row.role != "family-old" || strings.Contains(w.log.String(), "told to go")
				switch {
				case state == row.state && asked && took < max(never, 4*grace):
					return
				case grace >= never || t.Failed():
					t.Fatalf("with a grace of %v the child ended with %s after %v, want %s; its child was asked to go: %t", grace,
						state, took, row.state, asked)
				}
				t.Logf("with a grace of %v the child ended with %s after %v", grace, state, took)
			}
		})
	}
}

// mustOpenToClose starts a child with a call in flight, and returns the process that it has started
// outside of its group, if any.
func mustOpenToClose(t *testing.T, role string, grace, words time.Duration) (w *opened, runaway int) {
	t.Helper()
	w = mustOpen(t, role, func(o *Options) {
		if o.StopGrace = grace; role != "family-run" { // whose last words do not end
			o.LastWords = words
		}
	})
	switch role {
	case "family", "family-old":
		if m := w.hear(); m == nil || m.Method != "begun" { // the child, which knows from now on what to do with a signal
			t.Fatalf("the second message is %v, want begun", m)
		}
	case "family-run":
		m := w.hear()
		for m.Method != "runaway" { // it begins, too
			m = w.hear()
		}
		fmt.Sscanf(string(m.Params), "[%d]", &runaway)
	}
	return w, runaway
}

// mustCloseOften closes a connection three times at once, and checks how its calls end.
func mustCloseOften(t *testing.T, w *opened) {
	t.Helper()
	call := w.start(t.Context(), "1", "hang", "{}")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := w.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
	all.Wait()
	if a := <-call; !errors.Is(a.err, transport.ErrClosed) {
		t.Errorf("a call in flight ends with %v, want closed", a.err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("Wait after Close = %v, want nil", err)
	}
	if _, err := w.Call(t.Context(), newRequest("2", "echo", "{}"), nil); !errors.Is(err, transport.ErrNotSent) || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Call after Close = %v, want not sent and closed", err)
	}
}

func TestStdioOpenErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("#!/nonexistent\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no command"},
		{Options{Command: []string{"no-such-program"}}, "no-such-program: not found in PATH"},
		{Options{Command: []string{"sh"}, Env: Environment{Own: map[string]string{"PATH": dir}}}, "sh: not found in PATH of its env"},
		{Options{Command: []string{"/no/such/program"}}, "start /no/such/program: no such file or directory"},
		{Options{Command: []string{file}}, "start " + file + ": no such file or directory"},
		{Options{Command: []string{dir}}, "start " + dir + ": permission denied"},
		{Options{Command: []string{"sh"}, Dir: "/no/such/dir"}, "dir /no/such/dir: no such file or directory"},
		{Options{Command: []string{"sh"}, Dir: file}, "dir " + file + ": is no directory"},
	} {
		row.o.Log, row.o.Confine = authtest.Log(t), confinedTest()
		w, err := Open(row.o, nil)
		if err == nil {
			w.Close()
		}
		if err == nil || err.Error() != row.want {
			t.Errorf("Open(%v) = %v, want %s", row.o.Command, err, row.want)
		}
	}
}

// pinned is the error of version 2 of the Python package mcp for servers of version 1.
const pinned = "No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed to MCPServer " +
	"(from mcp.server.mcpserver import MCPServer) and other APIs changed; see the migration guide at " +
	"https://py.sdk.modelcontextprotocol.io/v2/migration/#fastmcp-renamed-to-mcpserver or pin 'mcp<2' to keep " +
	"running v1 code."

func TestCauseLine(t *testing.T) {
	for _, row := range []struct{ stderr, want string }{
		{"", ""},
		{"starting\n  no disk  ", "no disk"},
		{"node:internal/modules:1\n  throw err;\n  ^\n\nError: Cannot find module 'x'\n    at a\n    at b {\n  code: 'X'\n}\n\nNode.js v24", "Error: Cannot find module 'x'"},
		{"Traceback:\n  File x\nModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"},
		{"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\tx.go:1 +0x1d\nexit status 2", "panic: boom"},
		{"npm warn x\nnpm error code E404\nnpm error 404 Not Found - GET https://example.com/x\nnpm error 404\nnpm error A complete log of this run: x",
			"npm error 404 Not Found - GET https://example.com/x"},
		// the advice is at the end of the line
		{"    raise ModuleNotFoundError(_MESSAGE, name=__name__)\nModuleNotFoundError: " + pinned, "ModuleNotFoundError: " + pinned},
		{"docker: Cannot connect to the Docker daemon. Is it running?\n\nRun 'docker run --help' for more information",
			"docker: Cannot connect to the Docker daemon. Is it running?"},
		{"unexpected argument '-q'\nUsage: x [OPTIONS]\n\nFor more information, try '--help'.", "Usage: x [OPTIONS]"},
		{"see --help", "see --help"},
		{strings.Repeat("x", 1000), strings.Repeat("x", shownLine)},
	} {
		if got := causeLine(row.stderr); got != row.want {
			t.Errorf("causeLine(%q) = %q, want %q", row.stderr, got, row.want)
		}
	}
}

func TestStdioEnvAndDir(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "my-server")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JUNCTION_OURS", "ours")
	w := mustOpen(t, "server", func(o *Options) {
		o.Command, o.Dir = []string{"my-server"}, dir
		o.Env.Own["PATH"], o.Env.Own["JUNCTION_THEIRS"] = dir, "theirs"
		o.Env.Inherit = []string{"JUNCTION_OURS"}
	})
	if got, want := w.mustCall("1", "environment", "{}"), fmt.Sprintf("[%q,%q,%q,%q]", "ours", "theirs", dir, "my-server"); got != want {
		t.Errorf("the child sees %s, want %s", got, want)
	}
}

// TestStderrPriority: warnings and errors that begin with their priority are logged without
// debugging, other lines are not, and no line is kept with its priority.
func TestStderrPriority(t *testing.T) {
	var b strings.Builder
	p := &process{o: Options{Log: authtest.Log(t, &b)}}
	for _, line := range []string{"<3>broken", "<4>odd", "<6>fine", "<9>none", "plain", "<3", "<>x"} {
		p.heard([]byte(line + "\n"))
	}
	if got := b.String(); strings.Count(got, "the server reports a problem") != 2 || !strings.Contains(got, "line=broken") ||
		!strings.Contains(got, "line=odd") {
		t.Errorf("the log is:\n%s", got)
	}
	if want := "broken\nodd\nfine\n<9>none\nplain\n<3\n<>x\n"; string(p.tail) != want {
		t.Errorf("the last lines are %q, want %q", p.tail, want)
	}
	for range 100 {
		p.heard([]byte("<3>again\n"))
	}
	if n := strings.Count(b.String(), "\n"); n > 10 {
		t.Errorf("a server fills the log with %d lines", n)
	}
}

// TestReported: the problems that a server reports are kept, the last ones, until a line with another
// priority. Lines without a priority say nothing about that.
func TestReported(t *testing.T) {
	w := &stdio{process: &process{o: Options{Log: authtest.Log(t)}}}
	hear := func(line string, want ...string) {
		t.Helper()
		w.process.heard([]byte(line + "\n"))
		var got []string
		for _, r := range w.Reported() {
			got = append(got, r.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %q, reported is %q, want %q", line, got, want)
		}
	}
	hear("plain")
	hear("<3>broken", "broken")
	hear("<4>odd", "broken", "odd")
	hear("plain", "broken", "odd")
	before := w.Reported()
	hear("<6>fine")
	if before[0].Text != "broken" || before[0].At.IsZero() {
		t.Errorf("what was reported before has become %v", before)
	}
	for range maxReported {
		w.process.heard([]byte("<3>again\n"))
	}
	hear("<2>last", append(slices.Repeat([]string{"again"}, maxReported-1), "last")...)
}
