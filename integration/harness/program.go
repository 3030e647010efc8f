package harness

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
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/cmd/junction/ops/diagnose"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
	"junction/proxy/view"
)

// This file starts the real program as a user would: a process with a configuration file.

// Program is a running junction. It ends with the test that started it, and is then expected to
// leave no process behind.
type Program struct {
	URL    string          // of the merged endpoint: http://127.0.0.1:PORT/mcp
	Admin  string          // of /readyz and /healthz: http://127.0.0.1:PORT
	Stdout *process.Output // of all its starts
	Stderr *process.Output // of all its starts

	Dir  string // its configuration, its key
	From string // the path of the program; "" is JunctionBinary
	Cmd  *exec.Cmd
	Done <-chan struct{} // closed when the process has ended

	Others []*Program // further members; URL is then that of a load balancer
	own    string     // the URL of this process, if URL is that of a load balancer
}

// MustProgram starts the program with a configuration to which it adds listen, admin and sessions,
// and returns when it serves. Its upstreams may not be ready yet: MustReady waits for them. With
// JUNCTION_TEST_PROCESSES the program is several processes (MustProcesses).
func MustProgram(t testing.TB, config string) *Program {
	t.Helper()
	if n := Processes(); n > 1 {
		return MustProcesses(t, n, config)
	}
	p := NewProgram(t)
	p.MustConfigure(t, config)
	p.MustServe(t)
	return p
}

// MustProcesses starts n processes over one Postgres with one configuration, behind nginx, which
// sends each request to the next process. The result is the first process with the URL of nginx.
func MustProcesses(t testing.TB, n int, config string) *Program {
	t.Helper()
	dsn := authtest.Schema(t) // it lives longer than the processes
	first, front := NewProgram(t), process.FreePort(t)
	first.MustConfigure(t, config+fmt.Sprintf("\nreplicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
		"storage: { driver: postgres, dsn: %q, key_file: %q }\n", dsn, filepath.Join(first.Dir, "master.key"))+
		allowing("http://"+front+"/mcp"))
	first.MustServe(t)
	addresses := []string{first.address()}
	for range n - 1 {
		p := NewProgram(t)
		p.Dir = first.Dir
		p.MustServe(t)
		first.Others, addresses = append(first.Others, p), append(addresses, p.address())
	}
	for _, p := range append(first.Others, first) {
		p.MustJoin(t, n)
	}
	MustNginx(t, front, addresses)
	first.own, first.URL = first.URL, "http://"+front+"/mcp"
	return first
}

// allowing returns the line of the file for pages of the origin of a URL.
func allowing(url string) string { return fmt.Sprintf("allowed_origins: [%q]\n", originOf(url)) }

// originOf returns the origin of the URL of a merged endpoint.
func originOf(url string) string { return strings.TrimSuffix(url, "/mcp") }

// address returns the host and port of the program.
func (p *Program) address() string { return strings.TrimPrefix(p.Origin(), "http://") }

// MustJoin waits until the process knows n members.
func (p *Program) MustJoin(t testing.TB, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d members", n), func() bool {
		r, err := p.report(t.Context())
		return err == nil && len(r.Replicas) == n
	})
}

// Again is a line for MustNginx: nginx sends a request that was answered with 503 to the next server, and
// once more, as the recipe of cmd/junction/deploy does.
const Again = "proxy_intercept_errors on; recursive_error_pages on; error_page 503 = @next;"

// MustNginx starts nginx at an address. It sends each request to the next server. lines are further
// ones of its configuration.
func MustNginx(t testing.TB, address string, servers []string, lines ...string) {
	t.Helper()
	needs.Nginx.Require(t)
	program, err := needs.Path("nginx")
	if err != nil {
		t.Fatal(err)
	}
	dir, user := t.TempDir(), ""
	if os.Geteuid() == 0 {
		user = "user root;"
	}
	file := filepath.Join(dir, "nginx.conf")
	request := "proxy_request_buffering off;"
	if len(lines) > 0 { // then a body may have to be sent again
		request = ""
	}
	text := fmt.Sprintf(`daemon off; %[4]s
worker_processes 1;
pid %[1]s/pid;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	upstream members { server %[3]s; keepalive 64; }
	server {
		listen %[2]s;
		client_max_body_size 0;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		proxy_set_header Host $http_host;
		proxy_buffering off;
		proxy_pass_header X-Accel-Buffering;
		proxy_read_timeout 1h;
		location / { proxy_pass http://members; %[5]s }
		location @next {
			proxy_pass http://members; proxy_intercept_errors on; recursive_error_pages on; error_page 503 = @last;
		}
		location @last { proxy_pass http://members; }
	}
}
`, dir, address, strings.Join(servers, "; server "), user, strings.Join(append([]string{request}, lines...), " "))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-e", "stderr", "-c", file)
	log := process.NewOutput()
	cmd.Stderr, cmd.SysProcAttr = log, process.ChildAttr(syscall.SIGTERM)
	ended, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		await(t, "nginx to end", func() bool {
			process.Terminate(cmd.Process.Pid) // again, because it may miss one while it starts
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})
		if t.Failed() {
			t.Logf("nginx:\n%s", log.Tail(2000))
		}
	})
	await(t, "nginx to listen", func() bool { return process.Taken(address) })
}

// MustKill ends the process as kill -9 does.
func (p *Program) MustKill(t testing.TB) {
	t.Helper()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Done
	p.Cmd = nil // it has not ended well
}

// Reached waits until a condition is reached, and fails the test if it is not.
func Reached(t testing.TB, what string, reached func() bool) {
	t.Helper()
	await(t, what, reached)
}

// await waits until another process has reached a state, which it does not announce.
func await(t testing.TB, what string, reached func() bool) {
	t.Helper()
	again, enough := time.NewTicker(10*time.Millisecond), time.After(Patience)
	defer again.Stop()
	for !reached() {
		select {
		case <-again.C:
		case <-enough:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// NewProgram returns a program that is not started yet. What it writes, at the level debug in
// tests, may show none of the secrets that they have come by (TestAllOutputIsSearched).
func NewProgram(t testing.TB) *Program {
	t.Helper()
	if _, lasts := t.(*lasting); !lasts {
		process.OwnerOf(t)
	}
	p := &Program{Stdout: process.NewOutput(), Stderr: process.NewOutput(), Dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s ends with:\n%s", p.URL, p.Stderr.Tail(4000))
		}
	})
	t.Cleanup(func() {
		p.MustStop(t)
		KeysIn(p.Dir)
		authtest.MustTellNothing(t, "what the program writes", p.Stdout.String()+p.Stderr.String())
	})
	return p
}

// KeysIn has no log show the keys that the program has put into files of a folder.
func KeysIn(dir string) {
	// of what cannot be read nothing is known to be a secret
	filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if name := filepath.Base(file); err == nil && entry.Type().IsRegular() &&
			(name == "key" || name == "master.key") {
			text, _ := os.ReadFile(file)
			for key := range strings.FieldsSeq(string(text)) {
				authtest.Secret("the file "+name, key[strings.IndexByte(key, ':')+1:])
			}
		}
		return nil
	})
}

// File returns the name of the configuration file.
func (p *Program) File() string { return filepath.Join(p.Dir, "junction.yaml") }

// MustConfigure replaces the configuration file in the way of an editor: whole, by renaming.
func (p *Program) MustConfigure(t testing.TB, config string) {
	t.Helper()
	if _, test := t.(*testing.T); test && !strings.HasPrefix(config, "log:") && !strings.Contains(config, "\nlog:") {
		config += "\nlog: { level: debug }\n"
	}
	p.MustWrite(t, fmt.Sprintf(anyPort+"admin: 127.0.0.1:0\nsessions: { key_file: %q }\n%s",
		filepath.Join(p.Dir, "key"), config))
}

// MustWrite replaces the configuration file, as MustConfigure does, and adds nothing.
func (p *Program) MustWrite(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(p.File()+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.File()+".new", p.File()); err != nil {
		t.Fatal(err)
	}
}

// MustReload replaces a text of the file, and waits until the program has read it.
func (p *Program) MustReload(t testing.TB, before, after string) {
	t.Helper()
	text, err := os.ReadFile(p.File())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(before)) {
		t.Fatalf("%q is not in the file:\n%s", before, text)
	}
	const reloaded = "configuration reloaded.*"
	n := strings.Count(p.Stderr.String(), "configuration reloaded")
	if err := os.WriteFile(p.File()+".new", bytes.ReplaceAll(text, []byte(before), []byte(after)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.File()+".new", p.File()); err != nil {
		t.Fatal(err)
	}
	p.Stderr.MustMatch(t, regexp.MustCompile("(?s)"+strings.Repeat(reloaded, n+1)), Patience, p.Done)
}

// serves is the line of the log that says where.
var serves = regexp.MustCompile(`(?m) msg=serving url=(\S+)(?: admin=(\S+))?(?: tls=\S+)?(?: config=.+)?$`)

// anyPort is the first line of the file of MustConfigure.
const anyPort = "listen: 127.0.0.1:0\n"

// MustServe starts the program with its file, and further arguments, and returns when it serves. If it
// may choose its port, it gets one that nothing else takes before it starts again (process.Listen).
func (p *Program) MustServe(t testing.TB, args ...string) {
	t.Helper()
	text, _ := os.ReadFile(p.File()) // the program reports a file that it cannot read
	if bytes.HasPrefix(text, []byte(anyPort)) && !slices.Contains(args, "--listen") {
		args = append([]string{"--listen", process.FreePort(t)}, args...)
	}
	program := p.From
	if program == "" {
		program = JunctionBinary(t)
	}
	p.MustStart(t, exec.Command(program, append([]string{"--config", p.File()}, args...)...))
}

// MustStart starts a process, with our environment where cmd has none, and returns when it serves.
func (p *Program) MustStart(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), "XDG_STATE_HOME="+p.Dir)
	if _, lasts := t.(*lasting); !lasts {
		cmd.Env = process.OwnerOf(t).Environ(cmd.Env)
	}
	log := process.NewOutput() // of this start alone
	cmd.Stdout, cmd.Stderr = p.Stdout, io.MultiWriter(p.Stderr, log)
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGTERM) // so that it can still end its upstreams when we die
	cmd.WaitDelay = 10 * time.Second                     // for a grandchild that holds our pipes
	ended, err := process.Start(cmd)
	if err != nil {
		t.Fatalf("start %s: %v", cmd, err)
	}
	p.Cmd, p.Done = cmd, ended
	where := log.MustMatch(t, serves, Patience, p.Done)
	p.URL, p.Admin = where[1], where[2]
}

// Report is the part of /readyz that tests look at.
type Report struct {
	Status    string
	Tools     int
	Upstreams []UpstreamReport
	Problems  []view.Problem
	Replicas  []struct{ ID string } // none if there is one process
}

// UpstreamReport is what /readyz reports of one upstream.
type UpstreamReport struct {
	Name, State, Error, Era, Version string
	Tools, Listed, Links             int
	Stored                           bool
}

// MustReady waits until all upstreams are ready.
func (p *Program) MustReady(t testing.TB, patience time.Duration) Report {
	t.Helper()
	for _, o := range p.Others {
		o.MustReady(t, patience)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	unready := func(u UpstreamReport) bool { return u.State != "ready" && u.State != "per user" }
	for {
		r, err := p.report(ctx)
		if err == nil && !slices.ContainsFunc(r.Upstreams, unready) {
			return r
		}
		select {
		case <-again.C:
		case <-p.Done:
			t.Fatalf("junction has ended: %v", p.Cmd.ProcessState)
		case <-ctx.Done():
			t.Fatalf("not all upstreams are ready within %v (%v): %+v", patience, err, r.Upstreams)
		}
	}
}

func (p *Program) report(ctx context.Context) (r Report, err error) {
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

// Owner is the environment of a command of the user who runs the program: it finds the secret of that
// user.
func (p *Program) Owner() []string { return []string{"XDG_STATE_HOME=" + p.Dir} }

// MustOwn sends a POST request to a path of the admin address as the owner, whose secret is beside the
// run file, and returns the answer.
func (p *Program) MustOwn(t testing.TB, path string) (status int, body string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.Dir, "junction", "running", "*.secret"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the secret of the owner is in %q (%v), want one file", found, err)
	}
	secret, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	authtest.Secret("the secret of the owner", string(secret))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(diagnose.OwnerHeader, string(secret))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// MustRestart ends the process and starts it again, on the same address and with the same file.
func (p *Program) MustRestart(t testing.TB) {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/mcp")
	p.MustStop(t)
	p.MustServe(t, "--listen", address)
}

// MustStop ends the process in the way of a service manager, and expects it to end well and with
// all its children. It does nothing when it was called before.
func (p *Program) MustStop(t testing.TB) {
	t.Helper()
	if p.Cmd == nil {
		return
	}
	cmd := p.Cmd
	p.Cmd = nil
	pid := cmd.Process.Pid
	family := process.Descendants(pid)
	if filepath.Base(cmd.Path) == "go" { // go run passes no signal on
		for _, child := range process.ChildPIDs(pid) {
			process.Terminate(child)
		}
	} else {
		process.Terminate(pid)
	}
	select {
	case <-p.Done:
	case <-time.After(Patience):
		t.Errorf("junction did not end within %v of SIGTERM", Patience)
	}
	process.KillGroup(pid)
	<-p.Done
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("junction ended with %v, want status 0", cmd.ProcessState)
	}
	for _, child := range family {
		if name, lives := process.Living(child); lives {
			t.Errorf("process %d (%s) outlived junction", child, name)
			process.KillGroup(child)
		}
	}
}

// Peak returns the most memory that the process has had so far, in bytes; 0 where the system does
// not say.
func (p *Program) Peak(t testing.TB) (n int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// Command is a command as the configuration has it.
func Command(t testing.TB, words ...string) string {
	t.Helper()
	text, err := json.Marshal(words) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	return "command: " + string(text)
}

// Origin returns the URL of the program without a path.
func (p *Program) Origin() string { return originOf(p.URL) }
