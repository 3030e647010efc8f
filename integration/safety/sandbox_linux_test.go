package safety

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/sandbox"
)

// mustEnforce skips a test of what the kernel enforces where it does not.
func mustEnforce(t *testing.T) {
	t.Helper()
	if missing := sandbox.Kernel().Missing(&sandbox.Rules{}); missing != "" {
		t.Skip("NOT TESTED: " + missing)
	}
}

// haveUV says why uvx could not install the server of the tests.
func haveUV() error {
	if out, err := exec.Command("uvx", pythonServer, "--help").CombinedOutput(); err != nil {
		return fmt.Errorf("uvx cannot run %s: %w\n%s", pythonServer, err, out)
	}
	return nil
}

const (
	pythonServer = "mcp-server-time==2026.10.19"
	nodeServer   = "@modelcontextprotocol/server-filesystem@2026.8.31"
)

// states returns what /readyz says of the sandboxes, by upstream: state, sandbox and error.
func states(t *testing.T, p *harness.Program) map[string][3]string {
	t.Helper()
	resp, err := http.Get(p.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r struct {
		Upstreams []struct{ Name, State, Sandbox, Error string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	all := map[string][3]string{}
	for _, u := range r.Upstreams {
		all[u.Name] = [3]string{u.State, u.Sandbox, u.Error}
	}
	return all
}

// mustSettle waits until no upstream connects any more.
func mustSettle(t *testing.T, p *harness.Program) map[string][3]string {
	t.Helper()
	late := time.After(harness.Patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		all, connecting := states(t, p), false
		for _, s := range all {
			connecting = connecting || s[0] == "starting"
		}
		if !connecting {
			return all
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("still connecting after %v: %v", harness.Patience, all)
		}
	}
}

// TestSandboxServersFromNPM starts a real server by npx, which downloads it, with the short
// environment alone and in a sandbox. The server may use all of the machine by its own arguments,
// and reads a secret without the sandbox.
func TestSandboxServersFromNPM(t *testing.T) {
	defer harness.Computes(t)()
	needs.Node.Require(t)
	needs.Skip(t, npm.HaveRegistry())
	open, secret := filepath.Join(t.TempDir(), "open.txt"), filepath.Join(t.TempDir(), "secret.txt")
	for _, file := range []string{open, secret} {
		if err := os.WriteFile(file, []byte("text of "+filepath.Base(file)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := harness.Command(t, "npx", "-y", nodeServer, "/")
	try := func(t *testing.T, sandbox string, confined bool) {
		p := harness.MustProgram(t, fmt.Sprintf("upstreams:\n  files: { %s%s }\n", command, sandbox))
		p.MustReady(t, harness.Patience)
		read := func(file string) (string, error) {
			stdout, stderr, err := harness.RunJunction(t, nil, "call", "--url", p.URL, "files__read_text_file", "path="+file)
			return stdout + stderr, err
		}
		if text, err := read(open); err != nil || !strings.Contains(text, "text of open.txt") {
			t.Errorf("what it may read is %q (%v)", text, err)
		}
		text, err := read(secret)
		denied, told := err != nil && strings.Contains(text, "EACCES"), strings.Contains(text, "text of secret.txt")
		if denied != confined || told == confined {
			t.Errorf("what it must not read is %q (%v)", text, err)
		}
		if confined {
			if s := states(t, p)["files"]; s[1] != "enforced" {
				t.Errorf("/readyz says %q of the sandbox", s)
			}
			written := filepath.Join(filepath.Dir(open), "new.txt")
			out, _, err := harness.RunJunction(t, nil, "call", "--url", p.URL, "files__write_file", "path="+written, "content=x")
			if _, gone := os.Stat(written); err == nil || gone == nil {
				t.Errorf("it has written where it may read: %q", out)
			}
			cache, err := filepath.Glob(filepath.Join(p.Dir, "sandbox", "*", "files", ".cache", "npm", "_npx", "*"))
			if err != nil || len(cache) != 1 {
				t.Errorf("its private cache has %q (%v)", cache, err)
			}
		}
	}
	t.Run("the short environment", func(t *testing.T) { try(t, "", false) })
	t.Run("a sandbox", func(t *testing.T) {
		mustEnforce(t)
		try(t, fmt.Sprintf(", sandbox: { read: [%q], tcp: [443], require: true }", filepath.Dir(open)), true)
	})
}

// TestSandboxServersFromPyPI is the same for uvx, and a server that needs no files.
func TestSandboxServersFromPyPI(t *testing.T) {
	defer harness.Computes(t)()
	needs.UV.Require(t)
	needs.Skip(t, haveUV())
	try := func(t *testing.T, sandbox string) {
		p := harness.MustProgram(t,
			fmt.Sprintf("upstreams:\n  time: { %s%s }\n", harness.Command(t, "uvx", pythonServer), sandbox))
		p.MustReady(t, harness.Patience)
		stdout, stderr, err := harness.RunJunction(t, nil, "call", "--url", p.URL, "time__convert_time",
			"source_timezone=UTC", "time=12:00", "target_timezone=Asia/Tokyo")
		if err != nil || !strings.Contains(stdout, "T21:00:00+09:00") {
			t.Errorf("12:00 in UTC is %q in Tokyo (%s, %v)", stdout, stderr, err)
		}
		if s := states(t, p)["time"]; (s[1] == "enforced") != (sandbox != "") {
			t.Errorf("/readyz says %q of the sandbox", s)
		}
	}
	t.Run("the short environment", func(t *testing.T) { try(t, "") })
	t.Run("a sandbox", func(t *testing.T) {
		mustEnforce(t)
		try(t, ", sandbox: { tcp: [443], require: true }")
	})
}

// TestSandboxWithoutLandlock runs the program on what looks like a kernel without Landlock. One
// command starts all the same, and every place names the reason; one that requires its sandbox does
// not.
func TestSandboxWithoutLandlock(t *testing.T) {
	defer harness.Computes(t)()
	const reason = "this kernel has no Landlock, or a seccomp filter hides it; use Linux 6.7 or newer"
	p := harness.NewProgram(t)
	p.MustConfigure(t, `
upstreams:
  free: { command: [junction, demo] }
  warned: { command: [junction, demo], sandbox: {} }
  strict: { command: [junction, demo], sandbox: { require: true } }
`)
	p.MustStart(t, launched(withoutLandlock, harness.JunctionBinary(t), "--config", p.File()))
	got := mustSettle(t, p)
	want := map[string][3]string{
		"free":   {"ready", "", ""},
		"warned": {"ready", "not enforced: " + reason, ""},
		"strict": {"blocked", "not enforced: " + reason,
			"not started without its whole sandbox (sandbox.require): " + reason},
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s is\n%q, want\n%q", name, got[name], want[name])
		}
	}
	for _, line := range []string{
		`level=WARN msg="this machine does not enforce all of it, .* file=\S+ line=\d+ key=upstreams\.warned\.sandbox`,
		`level=WARN msg="this machine cannot enforce the sandbox, .*blocked.* key=upstreams\.strict\.sandbox\.require`,
		`level=WARN msg="upstream blocked" upstream=strict .*` + regexp.QuoteMeta(reason),
	} {
		p.Stderr.MustMatch(t, regexp.MustCompile(line), harness.Patience, p.Done)
	}

	out, _, err := harness.RunJunction(t, p.Owner(), "doctor", "--admin", strings.TrimPrefix(p.Admin, "http://"))
	for _, part := range []string{
		"warned: the sandbox is not enforced", "set sandbox.require: true",
		"strict: start failed: not started without its whole sandbox",
	} {
		if err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), part) {
			t.Errorf("doctor (%v) does not say %q:\n%s", err, part, out)
		}
	}
	launcher := []string{"env", "JUNCTION_ROLE=" + withoutLandlock, os.Args[0]}
	out, _, err = harness.RunJunctionBy(t, launcher, nil, "check", "--config", p.File())
	for _, part := range []string{
		"upstreams.warned.sandbox: this machine does not enforce all of it", "because require is not true: " + reason,
		"upstreams.strict.sandbox.require: this machine cannot enforce the sandbox, and that upstream shows as blocked: " +
			reason, "ok: 3 upstreams",
	} {
		if err != nil || !strings.Contains(out, part) {
			t.Errorf("check (%v) does not say %q:\n%s", err, part, out)
		}
	}
}

// TestSandboxWithoutFilters runs the program where Landlock works and no filter of system calls can
// be installed: a command that requires its sandbox does not start, and every other place names
// what is not restricted.
func TestSandboxWithoutFilters(t *testing.T) {
	defer harness.Computes(t)()
	mustEnforce(t)
	const reason = "TCP Fast Open, protocols other than TCP and io_uring are not restricted: " +
		"a seccomp filter forbids another one; allow the system call seccomp"
	p := harness.NewProgram(t)
	p.MustConfigure(t, `
upstreams:
  warned: { command: [junction, demo], sandbox: {} }
  strict: { command: [junction, demo], sandbox: { require: true } }
`)
	p.MustStart(t, launched(withoutFilters, harness.JunctionBinary(t), "--config", p.File()))
	got := mustSettle(t, p)
	if w := got["warned"]; w[0] != "ready" || !strings.HasPrefix(w[1], "enforced in part: ") ||
		!strings.HasSuffix(w[1], reason) {
		t.Errorf("the command without require is %q", w)
	}
	want := [3]string{"blocked", "enforced in part: " + reason,
		"not started without its whole sandbox (sandbox.require): " + reason}
	if got["strict"] != want {
		t.Errorf("the command with require is %q, want %q", got["strict"], want)
	}
	p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="this machine does not enforce all of it, .*`+
		regexp.QuoteMeta(reason)), harness.Patience, p.Done)
}

// privileges returns, for each child of the program, whether it is confined: what Landlock confines
// cannot gain privileges (no_new_privs).
func privileges(t *testing.T, p *harness.Program) (confined, free []int) {
	t.Helper()
	for _, pid := range process.ChildPIDs(p.Cmd.Process.Pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.HasSuffix(line, []byte("\x00demo\x00")) { // the watchdog is a child, too
			continue
		}
		if strings.Contains(string(status), "NoNewPrivs:\t1") {
			confined = append(confined, pid)
		} else {
			free = append(free, pid)
		}
	}
	return confined, free
}

// TestSandboxFollowsAReload: a sandbox that is added to the file, changed or removed counts from
// the reload on, because another process is started; what has not changed keeps its process.
func TestSandboxFollowsAReload(t *testing.T) {
	defer harness.Computes(t)()
	mustEnforce(t)
	p := harness.MustProgram(t, `
upstreams:
  other: { command: [junction, demo], sandbox: { require: true } }
  demo: { command: [junction, demo] }
`)
	p.MustReady(t, harness.Patience)
	confined, free := privileges(t, p)
	if len(confined) != 1 || len(free) != 1 {
		t.Fatalf("%d processes are confined and %d are not, want one each", len(confined), len(free))
	}
	other := confined[0]
	known := append(confined, free...)
	// mustChange reloads, and waits for a new process with, or without, a sandbox, and the end of
	// the old one.
	mustChange := func(before, after string, wantConfined, wantFree int) {
		t.Helper()
		p.MustReload(t, before, after)
		late := time.After(harness.Patience)
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for {
			confined, free = privileges(t, p)
			fresh := slices.ContainsFunc(append(confined, free...), func(pid int) bool { return !slices.Contains(known, pid) })
			if fresh && len(confined) == wantConfined && len(free) == wantFree {
				break
			}
			select {
			case <-again.C:
			case <-late:
				t.Fatalf("after %s → %s, %v are confined and %v are not", before, after, confined, free)
			}
		}
		known = append(confined, free...)
		if !slices.Contains(confined, other) {
			t.Error("the process of an entry that has not changed is another one")
		}
	}
	mustChange("demo: { command: [junction, demo] }", "demo: { command: [junction, demo], sandbox: {} }", 2, 0)
	mustChange("sandbox: {} }", "sandbox: { tcp: [443] } }", 2, 0)
	mustChange(", sandbox: { tcp: [443] } }", " }", 1, 1)
	p.MustReady(t, harness.Patience)
}
