package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
)

// benchChild is a process of a benchmark. It ends with the benchmark that started it, whatever
// becomes of that.
type benchChild struct {
	name string
	cmd  *exec.Cmd
	log  string        // the file with its standard error
	done chan struct{} // closed when it has ended
	stop func()        // ends it and waits; may be called again
}

// startChild starts cmd and stops it when b ends: by end, and after five seconds by force, with
// everything in its process group.
func startChild(b *testing.B, name string, end syscall.Signal, cmd *exec.Cmd) *benchChild {
	b.Helper()
	log, err := os.Create(filepath.Join(b.TempDir(), "stderr"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.SysProcAttr = process.ChildAttr(end)
	if err := cmd.Start(); err != nil {
		b.Fatalf("start %s: %v", name, err)
	}
	c := &benchChild{name: name, cmd: cmd, log: log.Name(), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		cmd.Wait() // how it ended does not matter: its users notice that it did
	}()
	c.stop = sync.OnceFunc(func() {
		if cmd.Process.Signal(end) != nil {
			cmd.Process.Kill() // it has ended already, or the system knows no such signal
		}
		select {
		case <-c.done:
		case <-time.After(5 * time.Second):
		}
		process.KillGroup(cmd.Process.Pid)
		<-c.done
	})
	b.Cleanup(c.stop)
	return c
}

// fatal ends the benchmark with what the child wrote last to its standard error.
func (c *benchChild) fatal(b *testing.B, format string, args ...any) {
	b.Helper()
	b.Fatalf("%s: %s\nits standard error ends with:\n%s", c.name, fmt.Sprintf(format, args...), c.said())
}

// said returns the end of the child's standard error.
func (c *benchChild) said() []byte {
	said, _ := os.ReadFile(c.log) // what is not there is not shown
	return said[max(0, len(said)-2000):]
}

// startRole starts this binary as one of the programs of roles, with pipes to its standard
// input and from its standard output.
func startRole(b *testing.B, role string, args ...string) (*benchChild, io.Writer, *bufio.Reader) {
	b.Helper()
	cmd := exec.Command(benchProgram(b), args...)
	cmd.Env = append(os.Environ(), "JUNCTION_ROLE="+role)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	return startChild(b, role, syscall.SIGTERM, cmd), in, bufio.NewReader(out)
}

func benchProgram(b *testing.B) string {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	return exe
}

// benchEndpoint is an MCP endpoint, and the processes that serve it.
type benchEndpoint struct {
	addr string
	proc *benchChild
	pids []int // the processes whose CPU time counts

	token string // that it wants; "" where everybody is let in
	owner string // address of another process, which sessions begin at; "" if there is none

	others []*benchChild // further processes of the program under test
}

func startServer(b *testing.B, role string, args ...string) benchEndpoint {
	b.Helper()
	c, _, out := startRole(b, role, args...)
	addr, err := out.ReadString('\n')
	if err != nil {
		c.fatal(b, "no address: %v", err)
	}
	return benchEndpoint{addr: strings.TrimSpace(addr), proc: c, pids: []int{c.cmd.Process.Pid}}
}

func startEcho(b *testing.B, tools int, args ...string) benchEndpoint {
	b.Helper()
	return startServer(b, "bench-echo", append([]string{"-tools", strconv.Itoa(tools)}, args...)...)
}

func startHop(b *testing.B, to benchEndpoint) benchEndpoint {
	b.Helper()
	return startServer(b, "bench-hop", "-to", "http://"+to.addr)
}

func startHopStdio(b *testing.B) benchEndpoint {
	b.Helper()
	return startServer(b, "bench-hop-stdio")
}

// findNginx returns the program, or why there is none.
func findNginx() (program, absent string) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, ""
		}
	}
	return "", "nginx is not installed (apt-get install nginx-light)"
}

// nginxConfig is a plain reverse proxy that keeps its connections; what it has for buffers comes
// last.
const nginxConfig = `daemon off;
worker_processes auto;
pid %[1]s/pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	tcp_nodelay on;
	keepalive_timeout 1h;
	keepalive_requests 1000000000;
	client_max_body_size 16m;
	client_body_buffer_size 2m;
	upstream echo {
		server %[3]s;
		keepalive 64;
		keepalive_requests 1000000000;
		keepalive_timeout 1h;
	}
	server {
		listen %[2]s;
		location / {
			proxy_pass http://echo;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
%[4]s		}
	}
}
`

// nginxBuffers hold a megabyte in memory. They were the fastest of those tried at 1 MB, by a factor
// of two over forty of 32k; up to 10 KB the first small one is enough. As it comes, nginx has eight
// of 4k and a file behind them.
const nginxBuffers = `			proxy_buffering on;
			proxy_buffer_size 16k;
			proxy_buffers 2 1m;
			proxy_busy_buffers_size 1m;
			proxy_max_temp_file_size 0;
`

func startNginx(b *testing.B, program string, to benchEndpoint, buffers string) benchEndpoint {
	b.Helper()
	return startNginxWith(b, program, to, nginxConfig, buffers, "")
}

// startNginxWith is startNginx with another configuration, and the beginning of its address.
func startNginxWith(b *testing.B, program string, to benchEndpoint, config, buffers, begin string) benchEndpoint {
	b.Helper()
	dir, addr := b.TempDir(), process.FreePort(b)
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, config, dir, addr, to.addr, buffers), 0o600); err != nil {
		b.Fatal(err)
	}
	// Its master ends its workers when it is told to, but not when it is killed.
	c := startChild(b, "nginx", syscall.SIGTERM, exec.Command(program, "-p", dir, "-e", "stderr", "-c", conf))
	ep := benchEndpoint{addr: begin + addr, proc: c, pids: []int{c.cmd.Process.Pid}}
	waitTools(b, ep, harness.LegacyEra, 1)
	ep.pids = append(ep.pids, process.ChildPIDs(c.cmd.Process.Pid)...)
	return ep
}

// builder returns a function that builds the program under test once, in a folder that lives as
// long as b. BENCH_JUNCTION names a program to use in its place: an older one, to compare.
func builder(b *testing.B) func(b *testing.B) string {
	dir := b.TempDir()
	build := sync.OnceValues(func() (string, error) {
		if p := os.Getenv("BENCH_JUNCTION"); p != "" {
			return filepath.Abs(p)
		}
		bin := filepath.Join(dir, "junction")
		cmd := exec.Command("go", "build", "-o", bin, "junction/cmd/junction")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		return bin, nil
	})
	return func(b *testing.B) string {
		b.Helper()
		bin, err := build()
		if err != nil {
			b.Fatal(err)
		}
		return bin
	}
}

// upstreamEntry is one entry of a configuration's upstreams, in YAML's flow style.
type upstreamEntry struct{ name, text string }

func overHTTP(to benchEndpoint, era string) upstreamEntry {
	return upstreamEntry{"echo", fmt.Sprintf(`{url: "http://%s/mcp", era: %s, prefix: ""}`, to.addr, era)}
}

// overStdio is an echo server that the program under test starts itself: this binary in another
// role.
func overStdio(b *testing.B, name, era, prefix string, args ...string) upstreamEntry {
	b.Helper()
	command, err := json.Marshal(append([]string{benchProgram(b)}, args...)) // JSON is YAML
	if err != nil {
		b.Fatal(err)
	}
	return upstreamEntry{name,
		fmt.Sprintf(`{command: %s, env: {JUNCTION_ROLE: bench-echo-stdio}, era: %s, prefix: %q}`, command, era, prefix)}
}

// launchJunction starts the program under test and does not wait for it.
func launchJunction(b *testing.B, program string, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	return launchJunctionWith(b, program, "", upstreams...)
}

// launchJunctionWith is launchJunction with further sections of its file.
func launchJunctionWith(b *testing.B, program, sections string, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	dir, addr := b.TempDir(), process.FreePort(b)
	var conf strings.Builder
	// BENCH_ADMIN=127.0.0.1:0 switches metrics on
	fmt.Fprintf(&conf, "listen: %s\nadmin: %q\n%supstreams:\n", addr, os.Getenv("BENCH_ADMIN"), sections)
	for _, u := range upstreams {
		fmt.Fprintf(&conf, "  %s: %s\n", u.name, u.text)
	}
	file := filepath.Join(dir, "junction.yaml")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program,
		append([]string{"--config", file}, strings.Fields(os.Getenv("BENCH_JUNCTION_ARGS"))...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir) // its key is not the user's
	c := startChild(b, "junction", syscall.SIGTERM, cmd)
	return benchEndpoint{addr: addr, proc: c, pids: []int{c.cmd.Process.Pid}}
}

// startReplicas starts two processes of the program under test over one Postgres. Sessions begin at
// one of them. If forwarded is set, calls go to the other one.
func startReplicas(b *testing.B, program, era string, forwarded bool, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	ep := startReplicasWith(b, program, era, "", "", upstreams...)
	if !forwarded {
		ep.addr = ep.owner
	}
	return ep
}

// startReplicasWith is startReplicas with further sections of the file, and a token that they allow.
// Calls go to the process that does not have the sessions.
func startReplicasWith(b *testing.B, program, era, sections, token string, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	dir := b.TempDir()
	sections += fmt.Sprintf("replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\nsessions: { key_file: %q }\n"+
		"storage: { driver: postgres, dsn: %q, key_file: %q }\n", filepath.Join(dir, "key"), authtest.Schema(b),
		filepath.Join(dir, "master.key"))
	start := func() benchEndpoint {
		ep := launchJunctionWith(b, program, sections, upstreams...)
		ep.token = token
		waitTools(b, ep, era, 1)
		return ep
	}
	owner := start()
	ep := start()
	ep.owner, ep.pids = owner.addr, append(ep.pids, owner.pids...)
	ep.others = append(ep.others, owner.proc)
	return ep
}

// startSignedIn starts the program under test for people who sign in at an authorization server,
// and is one of them.
func startSignedIn(b *testing.B, program, era string, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	const us = "https://mcp.example.com"
	issuer := authtest.Start(b)
	ep := launchJunctionWith(b, program,
		"public_url: "+us+"\nauth: { jwt: [{ issuer: "+issuer.URL+", audiences: ["+us+"/mcp] }] }\n", upstreams...)
	ep.token = issuer.Token(b, issuer.Claims(us+"/mcp", nil))
	waitTools(b, ep, era, 1)
	return ep
}

// startJunction starts the program under test and waits until it lists as many tools.
func startJunction(b *testing.B, program, era string, tools int, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	ep := launchJunction(b, program, upstreams...)
	waitTools(b, ep, era, tools)
	return ep
}

// waitTools asks again and again until an endpoint lists at least so many tools, and returns when
// it did.
func waitTools(b *testing.B, ep benchEndpoint, era string, tools int) time.Time {
	b.Helper()
	client := newRawClient(ep.addr, era, ep.token)
	defer client.Close()
	started := false
	try := func() error {
		if !started {
			if err := client.start(); err != nil {
				return err
			}
			started = true
		}
		names, err := client.tools()
		if err == nil && len(names) < tools {
			err = fmt.Errorf("%d tools are listed, want %d", len(names), tools)
		}
		return err
	}
	again, enough := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return time.Now()
		}
		client.Close() // after an error the rest of the connection is unknown
		select {
		case <-ep.proc.done:
			ep.proc.fatal(b, "it has ended")
		case <-enough:
			ep.proc.fatal(b, "not ready in time: %v", err)
		case <-again.C:
		}
	}
}

// loader is a running load generator, with its sessions open on an endpoint.
type loader struct {
	on  benchEndpoint
	c   *benchChild
	in  *json.Encoder
	out *json.Decoder
}

// startLoad opens sessions on an endpoint; loadFlags are further flags of loadGenerator.
func startLoad(b *testing.B, on benchEndpoint, era string, sessions int, loadFlags ...string) *loader {
	b.Helper()
	c, in, out := startRole(b, "bench-load",
		append([]string{"-addr", on.addr, "-era", era, "-sessions", strconv.Itoa(sessions), "-token", on.token,
			"-owner", on.owner},
			loadFlags...)...)
	l := &loader{on, c, json.NewEncoder(in), json.NewDecoder(out)}
	l.read(b)
	return l
}

// loadSample is what one run of the load generator measured.
type loadSample struct {
	loadReport
	CPU time.Duration // of the endpoint's processes; 0 where the system cannot tell
}

func (s loadSample) rate() float64 { return float64(s.Calls) / s.Elapsed.Seconds() }

func (s loadSample) cpuPerCall() float64 { return microseconds(s.CPU) / float64(s.Calls) }

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// run makes one run. A call that fails ends the benchmark.
func (l *loader) run(b *testing.B, o loadOrder) loadSample {
	b.Helper()
	before, _ := process.CPUTime(l.on.pids)
	if err := l.in.Encode(o); err != nil {
		l.c.fatal(b, "order a run: %v", err)
	}
	r := l.read(b)
	after, _ := process.CPUTime(l.on.pids)
	return loadSample{r, after - before}
}

func (l *loader) read(b *testing.B) loadReport {
	b.Helper()
	var r loadReport
	if err := l.out.Decode(&r); err != nil {
		l.c.fatal(b, "no report: %v", err)
	}
	if r.Error != "" {
		l.on.proc.fatal(b, "a call failed: %s", r.Error)
	}
	return r
}
