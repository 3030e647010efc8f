//go:build unix

package script

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/sandbox"
	"junction/upstream/upstreamtest"
)

// TestScript runs the stories of testdata/script: the real program and real processes, with
// commands and what they must print. Package testscript has most of the commands; these are ours.
// Whatever junction writes in one of them is searched for secrets (TestAllOutputIsSearched).
//
//   - junction ARG ... runs junction to its end, as exec would.
//   - start [NAME=VALUE ...] [ARG ...] starts junction in the background, and waits until it serves
//     and has tried every upstream. Standard output is the file out, the log is the file log. It
//     sets $URL and $ADMIN, and $ADDRESS and $ADMIN_ADDRESS without scheme and path.
//   - end [-now] [SIGNAL] sends TERM, or another signal, and waits for the end: with status 0, or,
//     with KILL or -now, by that signal.
//   - ended waits for the end, with status 0.
//   - signal SIGNAL sends a signal.
//   - status CODE [NAME=VALUE ...] ARG ... runs junction until it ends by itself, with this status.
//     With status 2 it prints one line.
//   - http [-save FILE] METHOD URL [-H 'NAME: VALUE'] [-pad N] [BODY | @FILE] prints status, header
//     and body of the response. POST has the headers of an MCP client; a header without value is
//     left out. With -save it goes on in the background, and the last line of FILE becomes [end] or
//     [cut off].
//   - upstreams prints /readyz: the status, and NAME STATE ERA TOOLS ERROR of each upstream.
//   - waitfor FILE|upstreams REGEXP waits until it matches the file, or what upstreams prints.
//   - capture NAME REGEXP sets $NAME to the first group of the match in stdout.
//   - server NAME FILE serves an upstreamtest.Script over Streamable HTTP, and sets $NAME to its URL.
//   - registry NAME FILE serves a registrytest.Registry, and sets $NAME to its URL.
//   - foreign CLIENT KEY COMMAND [ARG ...] runs a client of the folder npm, with an API key, against
//     $URL; see npm/commands.mjs. A script that uses it begins with [!node] skip.
//   - pack ARG ... runs junction-pack to its end, as junction does.
//   - api NAME serves an HTTP API, see cmdAPI, and sets $NAME to its URL.
//   - authority makes a certificate authority, and serves an issuer at $ISSUER, see cmdAuthority.
//   - elsewhere serves OpenAPI documents at https://example.com, see cmdElsewhere.
//   - packserve NAME ARG ... starts junction-pack serve in the background, and sets $NAME to its URL.
//   - gitserver NAME serves the repositories of the folder git over HTTPS, and sets $NAME to its URL.
//   - commit REPO FOLDER [TAG] makes the files of a folder the next commit of one, and sets $COMMIT.
//   - gone_pid FILE waits until the process with the id in the file has ended.
//   - gone FILE waits until no mcp-server -life FILE runs; ! gone fails unless one runs now.
func TestScript(t *testing.T) {
	harness.Waits(t)
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	for name, target := range map[string]string{"junction": harness.JunctionBinary(t),
		"junction-pack": harness.PackBinary(t), scriptServerName: self} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatalf("make %s available: %v", name, err)
		}
	}
	// Lines of the output that stories expect are broken where paths are longer.
	root := filepath.Join(os.TempDir(), "s")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	testscript.Run(t, testscript.Params{
		WorkdirRoot:         root,
		Dir:                 filepath.Join("testdata", "script"),
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
			e.Setenv("GORACE", os.Getenv("GORACE")) // that of harness.Main
			t := e.T().(testing.TB)
			e.Values[junctionKey{}] = &junctionProcess{t: t, names: []string{"GORACE"}}
			e.Defer(harness.Place())
			e.Defer(harness.DefaultAddresses(t, filepath.Base(e.WorkDir) == "script-first_run"))
			e.Defer(func() { harness.KeysIn(e.WorkDir) })
			e.Defer(func() { endIn(t, e.Getenv("HOME")) })
			return errors.Join(os.MkdirAll(e.Getenv("HOME"), 0o700), talkative(e.WorkDir))
		},
		Condition: func(c string) (bool, error) {
			switch c {
			case "ordinary": // who may not do everything
				return os.Getuid() != 0, nil
			case "disk": // a small one can be mounted
				return needs.Mounts.Find() == nil, nil
			case "landlock": // the kernel enforces sandboxes
				return sandbox.Kernel().Enforces(), nil
			case "node":
				err := needs.Node.Find()
				if needs.Strict() {
					return err == nil, err
				}
				return err == nil, nil
			}
			return false, fmt.Errorf("there is no condition %q", c)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"junction": cmdProgram("junction"), "pack": cmdProgram("junction-pack"), "start": cmdStart, "end": cmdEnd, "ended": cmdEnded, "signal": cmdSignal,
			"status": cmdStatus, "http": cmdHTTP, "upstreams": cmdUpstreams, "waitfor": cmdWaitFor,
			"capture": cmdCapture, "server": cmdServer, "gone": cmdGone, "foreign": cmdForeign, "registry": cmdRegistry,
			"gitserver": cmdGitServer, "commit": cmdCommit, "gone_pid": cmdGonePid, "packserve": cmdPackServe, "api": cmdAPI,
			"authority": cmdAuthority, "elsewhere": cmdElsewhere, "searched": cmdSearched,
		},
	})
}

// endIn ends the processes of a story, which have its home folder. One in the background is no child, and has none
// of our variables. After a story that has not failed, there is none.
func endIn(t testing.TB, home string) {
	patience := process.Patience
	if t.Failed() {
		patience = 0
	}
	if left := process.End("HOME="+home, patience); len(left) > 0 && !t.Failed() {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// junctionKey is the key of a script's *junctionProcess.
type junctionKey struct{}

// junctionProcess is the junction that a script has started last.
type junctionProcess struct {
	t      testing.TB
	cmd    *exec.Cmd // nil while none runs
	exited chan struct{}
	names  []string // of the variables that commands of ours have set, which junction is given
}

func setenv(ts *testscript.TestScript, name, value string) {
	p := ts.Value(junctionKey{}).(*junctionProcess)
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
	ts.Setenv(name, value)
}

// junctionCommand returns the command of the arguments, which may begin with variables.
func junctionCommand(ctx context.Context, ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "junction"))
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{}
	for _, name := range append([]string{"PATH", "HOME", "XDG_STATE_HOME", "TMPDIR", "WORK"},
		ts.Value(junctionKey{}).(*junctionProcess).names...) {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && strings.Contains(args[0], "=") {
		cmd.Env = append(cmd.Env, args[0])
		args = args[1:]
	}
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// talkative has the configuration files of a folder log everything, unless they say otherwise.
func talkative(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("upstreams:")) && !bytes.Contains(text, []byte("\nlog:")) {
			if err := os.WriteFile(file, append(text, "log: { level: debug }\n"...), 0o600); err != nil {
				return err
			}
		}
	}
	return err
}

func cmdProgram(name string) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		err := ts.Exec(name, args...)
		search(ts, args)
		if (err != nil) != neg {
			ts.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
		}
	}
}

// search searches the output of the last command for secrets.
func search(ts *testscript.TestScript, args []string) {
	stdout, stderr := authtest.Command(ts.Value(junctionKey{}).(*junctionProcess).t, args, io.Discard, io.Discard)
	io.WriteString(stdout, ts.ReadFile("stdout"))
	io.WriteString(stderr, ts.ReadFile("stderr"))
}

// cmdSearched follows wait, for a junction in the background: "exec junction … &name&".
func cmdSearched(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 0, "searched")
	search(ts, args)
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) >= 1, "status CODE [NAME=VALUE ...] ARG ...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := junctionCommand(ctx, ts, args[1:])
	var stdout, stderr strings.Builder
	t := ts.Value(junctionKey{}).(*junctionProcess).t
	cmd.Stdout, cmd.Stderr = authtest.Command(t, cmd.Args[1:], io.MultiWriter(ts.Stdout(), &stdout),
		io.MultiWriter(ts.Stderr(), &stderr))
	err = cmd.Run()
	if ctx.Err() != nil {
		ts.Fatalf("junction still runs after %v", harness.Patience)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		ts.Fatalf("%v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("junction ended with status %d, want %d", got, want)
	}
	if lines := strings.Count(stderr.String(), "\n"); want == 2 && (stdout.Len() > 0 || lines != 1) {
		ts.Fatalf("a usage error has %d lines, want 1, and %q on standard output, want nothing", lines, stdout.String())
	}
}

// once is for commands that have no opposite.
func once(ts *testscript.TestScript, neg bool, good bool, usage string) {
	if neg || !good {
		ts.Fatalf("usage: %s", usage)
	}
}

// eventually calls try until it returns an empty string, and fails the script with what it returned
// last when patience is over.
func eventually(ts *testscript.TestScript, try func() string) {
	timeout := time.NewTimer(harness.Patience)
	defer timeout.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lacking := try()
		if lacking == "" {
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			ts.Fatalf("after %v: %s", harness.Patience, lacking)
		}
	}
}

var serving = regexp.MustCompile(`(?m) msg=serving url=(\S+)(?: admin=(\S+))?(?: tls=\S+)?(?: config=.+)?$`)

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, true, "start [NAME=VALUE ...] [ARG ...]")
	p := ts.Value(junctionKey{}).(*junctionProcess)
	if p.cmd != nil {
		ts.Fatalf("junction runs already")
	}
	cmd := junctionCommand(context.Background(), ts, args)
	out, err := os.Create(ts.MkAbs("out"))
	ts.Check(err)
	defer out.Close()
	log, err := os.Create(ts.MkAbs("log"))
	ts.Check(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = out, log
	ts.Check(cmd.Start())
	exited, searched := make(chan struct{}), authtest.Searched(p.t, "what the program writes")
	go func() {
		cmd.Wait() // what it returns is in cmd.ProcessState, too
		for _, file := range []string{out.Name(), log.Name()} {
			text, _ := os.ReadFile(file) // one that a script has removed is its own affair
			searched.Write(text)
		}
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	ts.Defer(func() {
		if p.cmd == cmd { // the script did not end as it should
			cmd.Process.Kill()
			<-exited
			text, _ := os.ReadFile(log.Name())
			ts.Logf("[log]\n%s", text)
		}
	})
	eventually(ts, func() string {
		text, err := os.ReadFile(log.Name())
		ts.Check(err)
		if m := serving.FindSubmatch(text); m != nil {
			setenv(ts, "URL", string(m[1]))
			setenv(ts, "ADMIN", string(m[2]))
			setenv(ts, "ADDRESS", strings.TrimSuffix(strings.TrimPrefix(string(m[1]), "http://"), "/mcp"))
			setenv(ts, "ADMIN_ADDRESS", strings.TrimPrefix(string(m[2]), "http://"))
			return ""
		}
		select {
		case <-exited:
			ts.Fatalf("junction ended with %v before it served", cmd.ProcessState)
		default:
		}
		return "it does not serve"
	})
	if ts.Getenv("ADMIN") != "" {
		eventually(ts, func() string {
			text, err := readyz(ts)
			if err != nil || !strings.HasPrefix(text, "ready\n") && !strings.HasPrefix(text, "degraded\n") {
				return fmt.Sprintf("not ready: %v\n%s", err, text)
			}
			return ""
		})
	}
}

func mustSignal(ts *testscript.TestScript, name string) syscall.Signal {
	s, ok := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
		"KILL": syscall.SIGKILL}[name]
	if !ok {
		ts.Fatalf("there is no signal %q here", name)
	}
	return s
}

func mustRun(ts *testscript.TestScript) *junctionProcess {
	p := ts.Value(junctionKey{}).(*junctionProcess)
	if p.cmd == nil {
		ts.Fatalf("junction does not run")
	}
	return p
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 1, "signal SIGNAL")
	ts.Check(mustRun(ts).cmd.Process.Signal(mustSignal(ts, args[0])))
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	now := len(args) > 0 && args[0] == "-now"
	if now {
		args = args[1:]
	}
	once(ts, neg, len(args) <= 1, "end [-now] [SIGNAL]")
	p, sig := mustRun(ts), syscall.SIGTERM
	if len(args) == 1 {
		sig = mustSignal(ts, args[0])
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		ts.Fatalf("signal: %v", err)
	}
	mustEnd(ts, p, now || sig == syscall.SIGKILL)
}

func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 0, "ended")
	mustEnd(ts, mustRun(ts), false)
}

func mustEnd(ts *testscript.TestScript, p *junctionProcess, killed bool) {
	select {
	case <-p.exited:
	case <-time.After(harness.Patience):
		ts.Fatalf("junction lives %v after it was told to end", harness.Patience)
	}
	state := p.cmd.ProcessState
	if got := state.Sys().(syscall.WaitStatus).Signaled(); got != killed || !killed && state.ExitCode() != 0 {
		ts.Fatalf("junction ended with %v", state)
	}
	p.cmd = nil
}

func cmdForeign(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) >= 3, "foreign CLIENT KEY COMMAND [ARG ...]")
	i := slices.IndexFunc(npm.Clients(), func(c npm.Client) bool { return c.Name == args[0] && c.Sdk })
	if i < 0 {
		ts.Fatalf("there is no client %q", args[0])
	}
	dir, err := npm.Installed()
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), npm.Patience)
	defer cancel()
	line := slices.Concat(npm.Clients()[i].Args, []string{ts.Getenv("URL")}, args[2:])
	cmd := exec.CommandContext(ctx, "node", line...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "JUNCTION_KEY="+args[1])
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		ts.Fatalf("the client still runs after %v", npm.Patience)
	}
}

func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	const usage = "http [-save FILE] METHOD URL [-H 'NAME: VALUE'] [-pad N] [BODY | @FILE]"
	save := ""
	if len(args) > 1 && args[0] == "-save" {
		save, args = ts.MkAbs(args[1]), args[2:]
	}
	once(ts, neg, len(args) >= 2, usage)
	method, url := args[0], args[1]
	header := http.Header{}
	if method == http.MethodPost {
		header.Set("Content-Type", "application/json")
		header.Set("Accept", "application/json, text/event-stream")
	}
	flags := flag.NewFlagSet("http", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	host, pad := "", flags.Int("pad", 0, "")
	flags.Func("H", "", func(field string) error {
		name, value, ok := strings.Cut(field, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
			return errors.New("want NAME: VALUE")
		case strings.EqualFold(name, "Host"):
			host = value
		case value == "":
			header.Del(name)
		default:
			header.Set(name, value)
		}
		return nil
	})
	ts.Check(flags.Parse(args[2:]))
	once(ts, neg, flags.NArg() <= 1, usage)
	body := flags.Arg(0)
	if file, ok := strings.CutPrefix(body, "@"); ok {
		body = ts.ReadFile(file)
	}
	body += strings.Repeat(" ", *pad)
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	ts.Check(err)
	r.Header, r.Host = header, host
	if save == "" {
		defer cancel()
		late := time.AfterFunc(harness.Patience, cancel)
		defer late.Stop()
		ts.Check(exchangeHTTP(r, ts.Stdout()))
		return
	}
	f, err := os.Create(save)
	ts.Check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.Close()
		end := "[end]"
		if err := exchangeHTTP(r, f); err != nil {
			end = "[cut off] " + err.Error()
		}
		fmt.Fprintf(f, "\n%s\n", end)
	}()
	ts.Defer(func() {
		cancel()
		<-done
	})
}

// exchangeHTTP makes the request on a connection of its own, and writes what comes back, as it
// comes.
func exchangeHTTP(r *http.Request, w io.Writer) error {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Fprintln(w, resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		for _, value := range resp.Header[name] {
			fmt.Fprintf(w, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintln(w)
	_, err = io.Copy(w, resp.Body)
	return err
}

// readyz renders what the admin address says. The error is one of the connection.
func readyz(ts *testscript.TestScript) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.Getenv("ADMIN")+"/readyz", nil)
	ts.Check(err)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var report struct {
		Status    string
		Tools     int
		Upstreams []struct {
			Name, State, Era, Error string
			Tools                   int
		}
		Problems []struct{ Upstream, Name, Reason string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", report.Status)
	for _, u := range report.Upstreams {
		b.WriteString(
			strings.TrimSpace(fmt.Sprintf("%s %s %s %d %s", u.Name, u.State, cmp.Or(u.Era, "-"), u.Tools, u.Error)) + "\n")
	}
	for _, p := range report.Problems {
		fmt.Fprintf(&b, "problem: %s %s: %s\n", p.Upstream, p.Name, p.Reason)
	}
	if (resp.StatusCode == http.StatusOK) != (report.Status == "ready" || report.Status == "degraded") {
		fmt.Fprintf(&b, "and yet %s\n", resp.Status)
	}
	return b.String(), nil
}

func cmdUpstreams(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 0, "upstreams")
	text, err := readyz(ts)
	ts.Check(err)
	io.WriteString(ts.Stdout(), text)
}

func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 2, "waitfor FILE|upstreams REGEXP")
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	eventually(ts, func() string {
		text, err := "", error(nil)
		if args[0] == "upstreams" {
			text, err = readyz(ts)
		} else {
			b, readErr := os.ReadFile(ts.MkAbs(args[0]))
			text, err = string(b), readErr
		}
		if err != nil || !want.MatchString(text) {
			return fmt.Sprintf("nothing in %s matches %s (%v):\n%s", args[0], args[1], err, text)
		}
		return ""
	})
}

func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 2, "capture NAME REGEXP")
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := pattern.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("stdout has no group of %s", args[1])
	}
	setenv(ts, args[0], m[1])
}

func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 2, "server NAME FILE")
	var script upstreamtest.Script
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[1])))
	d.DisallowUnknownFields()
	ts.Check(d.Decode(&script))
	s := upstreamtest.New(script)
	h := httptest.NewServer(s.Handler())
	ts.Defer(func() {
		s.Close()
		h.CloseClientConnections()
		h.Close()
	})
	setenv(ts, args[0], h.URL+"/mcp")
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] gone FILE")
	}
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	held := func() string {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			ts.Check(syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
			return ""
		case !errors.Is(err, syscall.EWOULDBLOCK):
			ts.Fatalf("lock %s: %v", args[0], err)
		}
		return "a server with this file lives"
	}
	if neg {
		if held() == "" {
			ts.Fatalf("no server with this file lives")
		}
		return
	}
	eventually(ts, held)
}

// TestScriptsSayWhatTheyGuard holds the scripts to their form: the first lines say what the story
// guards.
func TestScriptsSayWhatTheyGuard(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(files) < 11 {
		t.Fatalf("%d scripts (%v), want at least 11", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head := bufio.NewScanner(bytes.NewReader(text))
		var lines []string
		for head.Scan() && strings.HasPrefix(head.Text(), "# ") {
			lines = append(lines, head.Text())
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "# Guards: ") }) {
			t.Errorf("%s does not begin with a comment that has a line \"# Guards: …\"", file)
		}
	}
}
