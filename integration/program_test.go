package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
)

// This file starts the real program as a user would: a process with a configuration file.

// program is a running junction. It ends with the test that started it, and is then expected to
// leave no process behind.
type program struct {
	URL    string  // of the merged endpoint: http://127.0.0.1:PORT/mcp
	Admin  string  // of /readyz and /healthz: http://127.0.0.1:PORT
	Stdout *output // of all its starts
	Stderr *output // of all its starts

	dir  string // its configuration, its key
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// mustProgram starts the program with a configuration to which it adds listen, admin and sessions,
// and returns when it serves. Its upstreams may not be ready yet: mustReady waits for them.
func mustProgram(t testing.TB, config string) *program {
	t.Helper()
	p := newProgram(t)
	p.mustConfigure(t, config)
	p.mustServe(t)
	return p
}

// newProgram returns a program that is not started yet. What it writes, at the level debug in
// tests, may show none of the secrets that they have come by (TestAuthT116).
func newProgram(t testing.TB) *program {
	t.Helper()
	p := &program{Stdout: newOutput(), Stderr: newOutput(), dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends with:\n%s", p.URL, p.Stderr.tail(4000))
		}
	})
	t.Cleanup(func() {
		p.mustStop(t)
		keysIn(p.dir)
		authtest.MustTellNothing(t, "what the program writes", p.Stdout.String()+p.Stderr.String())
	})
	return p
}

// keysIn has no log show the keys that the program has put into files of a folder.
func keysIn(dir string) {
	// of what cannot be read nothing is known to be a secret
	filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if name := filepath.Base(file); err == nil && entry.Type().IsRegular() && (name == "key" || name == "master.key") {
			text, _ := os.ReadFile(file)
			for key := range strings.FieldsSeq(string(text)) {
				authtest.Secret("the file "+name, key[strings.IndexByte(key, ':')+1:])
			}
		}
		return nil
	})
}

func (p *program) file() string { return filepath.Join(p.dir, "junction.yaml") }

// mustConfigure replaces the configuration file in the way of an editor: whole, by renaming.
func (p *program) mustConfigure(t testing.TB, config string) {
	t.Helper()
	if _, test := t.(*testing.T); test && !strings.HasPrefix(config, "log:") && !strings.Contains(config, "\nlog:") {
		config += "\nlog: { level: debug }\n"
	}
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nsessions: { key_file: %q }\n%s", filepath.Join(p.dir, "key"), config)
	if err := os.WriteFile(p.file()+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.file()+".new", p.file()); err != nil {
		t.Fatal(err)
	}
}

// mustReload replaces a text of the file, and waits until the program has read it.
func (p *program) mustReload(t testing.TB, before, after string) {
	t.Helper()
	text, err := os.ReadFile(p.file())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(before)) {
		t.Fatalf("%q is not in the file:\n%s", before, text)
	}
	const reloaded = "configuration reloaded.*"
	n := strings.Count(p.Stderr.String(), "configuration reloaded")
	if err := os.WriteFile(p.file()+".new", bytes.ReplaceAll(text, []byte(before), []byte(after)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.file()+".new", p.file()); err != nil {
		t.Fatal(err)
	}
	p.Stderr.mustMatch(t, regexp.MustCompile("(?s)"+strings.Repeat(reloaded, n+1)), patience, p.done)
}

// serves is the line of the log that says where.
var serves = regexp.MustCompile(`(?m) msg=serving url=(\S+)(?: admin=(\S+))?$`)

// mustServe starts the program with its file, and further arguments, and returns when it serves.
func (p *program) mustServe(t testing.TB, args ...string) {
	t.Helper()
	p.mustStart(t, exec.Command(junctionBinary(t), append([]string{"--config", p.file()}, args...)...))
}

// runJunction runs the program until it ends by itself, with further variables of the environment,
// and returns what it wrote and how it ended. Nothing of that may be a secret, but for what a
// command is asked to print (authtest.Command).
func runJunction(t testing.TB, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runJunctionBy(t, nil, env, args...)
}

// runJunctionBy is runJunction with a launcher: the beginning of a command that becomes the program
// of its arguments.
func runJunctionBy(t testing.TB, launcher, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, log bytes.Buffer
	words := slices.Concat(launcher, []string{junctionBinary(t)}, args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = authtest.Command(t, args, &out, &log)
	if err = cmd.Run(); ctx.Err() != nil {
		t.Fatalf("junction %s does not end (%v):\n%s%s", strings.Join(args, " "), err, &out, &log)
	}
	return out.String(), log.String(), err
}

// mustStart starts a process, with our environment where cmd has none, and returns when it serves.
func (p *program) mustStart(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), "XDG_STATE_HOME="+p.dir)
	log := newOutput() // of this start alone
	cmd.Stdout, cmd.Stderr = p.Stdout, io.MultiWriter(p.Stderr, log)
	cmd.SysProcAttr = childAttr(syscall.SIGTERM) // so that it can still end its upstreams when we die
	cmd.WaitDelay = 10 * time.Second             // for a grandchild that holds our pipes
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func() {
		defer close(p.done)
		cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	where := log.mustMatch(t, serves, patience, p.done)
	p.URL, p.Admin = where[1], where[2]
}

// report is the part of /readyz that tests look at.
type report struct {
	Status    string
	Tools     int
	Upstreams []upstreamReport
}

type upstreamReport struct {
	Name, State, Error, Era, Version string
	Tools                            int
}

// mustReady waits until all upstreams are ready.
func (p *program) mustReady(t testing.TB, patience time.Duration) report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	unready := func(u upstreamReport) bool { return u.State != "ready" && u.State != "by person" }
	for {
		r, err := p.report(ctx)
		if err == nil && !slices.ContainsFunc(r.Upstreams, unready) {
			return r
		}
		select {
		case <-again.C:
		case <-p.done:
			t.Fatalf("junction has ended: %v", p.cmd.ProcessState)
		case <-ctx.Done():
			t.Fatalf("not all upstreams are ready within %v (%v): %+v", patience, err, r.Upstreams)
		}
	}
}

func (p *program) report(ctx context.Context) (r report, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/readyz", nil)
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// mustRestart ends the process and starts it again, on the same address and with the same file.
func (p *program) mustRestart(t testing.TB) {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp")
	p.mustStop(t)
	p.mustServe(t, "--listen", address)
}

// mustStop ends the process in the way of a service manager, and expects it to end well and with
// all its children. It does nothing when it was called before.
func (p *program) mustStop(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	cmd := p.cmd
	p.cmd = nil
	pid := cmd.Process.Pid
	family := descendants(pid)
	if filepath.Base(cmd.Path) == "go" { // go run passes no signal on
		for _, child := range childPIDs(pid) {
			terminate(child)
		}
	} else {
		terminate(pid)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("junction did not end within %v of SIGTERM", patience)
	}
	killGroup(pid)
	<-p.done
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("junction ended with %v, want status 0", cmd.ProcessState)
	}
	for _, child := range family {
		if name, lives := living(child); lives {
			t.Errorf("process %d (%s) outlived junction", child, name)
			killGroup(child)
		}
	}
}

func terminate(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Signal(syscall.SIGTERM) // one that has ended needs none
	}
}

// peak returns the most memory that the process has had so far, in bytes; 0 where the system does
// not say.
func (p *program) peak(t testing.TB) (n int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// descendants returns the children of a process, and theirs; none where the system cannot tell.
func descendants(pid int) []int {
	var all []int
	for _, child := range childPIDs(pid) {
		all = append(append(all, child), descendants(child)...)
	}
	return all
}

// living reports whether a process has not ended yet, and its name. A zombie has ended: whether
// somebody reaps it is not ours.
func living(pid int) (name string, lives bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndex(stat, []byte(") "))
	if open < 0 || end < open || end+2 >= len(stat) {
		return "", false
	}
	return string(stat[open+1 : end]), stat[end+2] != 'Z'
}

// output is what a process has written so far, for several readers.
type output struct {
	mu      sync.Mutex
	text    []byte
	changed chan struct{} // closed and replaced whenever text grows
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// tail returns at most the last n bytes.
func (o *output) tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}

// mustMatch waits until the output matches and returns the groups of the first match. The process
// that writes it must not end before; a nil ended never does.
func (o *output) mustMatch(t testing.TB, r *regexp.Regexp, patience time.Duration, ended <-chan struct{}) []string {
	t.Helper()
	enough := time.After(patience)
	for over := false; ; {
		o.mu.Lock()
		found, changed := r.FindSubmatch(o.text), o.changed
		o.mu.Unlock()
		switch {
		case found != nil:
			groups := make([]string, len(found))
			for i, g := range found {
				groups[i] = string(g)
			}
			return groups
		case over:
			t.Fatalf("the process has ended, and nothing matches %s in:\n%s", r, o.tail(4000))
		}
		select {
		case <-changed:
		case <-ended:
			over = true // look once more: all is written by now
		case <-enough:
			t.Fatalf("nothing matches %s within %v in:\n%s", r, patience, o.tail(4000))
		}
	}
}
