//go:build linux

package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
)

// program is a real Junction process with a configuration file.
type program struct {
	t       *testing.T
	dir     string
	address string // of the endpoint, the same after every start
	admin   string // the URL of the admin listener of the last start
	log     *process.Output
	cmd     *exec.Cmd
	done    chan struct{}
}

// newProgram writes the configuration and chooses the address; start starts it.
func newProgram(t *testing.T, config string) *program {
	t.Helper()
	p := &program{t: t, dir: t.TempDir(), address: process.FreePort(t), log: process.NewOutput()}
	config = fmt.Sprintf("listen: %s\nadmin: 127.0.0.1:0\nlog: { level: debug }\n%s", p.address, config)
	if err := os.WriteFile(p.file(), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the log of Junction ends with:\n%s", p.log.Tail(6000))
		}
		authtest.MustTellNothing(t, "what the program writes", p.log.String())
	})
	return p
}

func (p *program) file() string { return filepath.Join(p.dir, "junction.yaml") }

// mustServe starts the process and waits until it serves. Its upstreams may not be ready.
func (p *program) mustServe() {
	p.t.Helper()
	before := len(p.log.String())
	cmd := exec.Command(harness.JunctionBinary(p.t), "--config", p.file())
	cmd.Env = append(cmd.Environ(), "XDG_STATE_HOME="+p.dir)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cmd.Wait() // the log says why it ended
	}()
	p.cmd, p.done = cmd, done
	p.admin = p.log.MustMatchAfter(p.t, before, serves, patience, done)[2]
}

// serves is the line of the log that has the addresses.
var serves = regexp.MustCompile(`(?m) msg=serving url=(\S+) admin=(\S+)(?: config=.+)?$`)

// stop sends a signal and waits for the end of the process. It does nothing without a process.
func (p *program) stop(signal syscall.Signal) {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Signal(signal) // an ended process needs none
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Errorf("Junction does not end within %v of %v", patience, signal)
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	p.cmd = nil
}

// upstreamState is an upstream in /readyz.
type upstreamState struct {
	State string
	Tools int
}

// mustBeReady waits until /readyz reports that all upstreams are ready.
func (p *program) mustBeReady() {
	p.t.Helper()
	p.mustReport("all upstreams are ready", func(all []upstreamState) bool {
		return !slices.ContainsFunc(all, func(u upstreamState) bool { return u.State != "ready" })
	})
}

// mustOffer waits until /readyz reports that the only upstream has a number of tools.
func (p *program) mustOffer(tools int) {
	p.t.Helper()
	want := fmt.Sprintf("the upstream has %d tools", tools)
	p.mustReport(want, func(all []upstreamState) bool { return all[0].Tools == tools })
}

// mustReport waits until /readyz reports what is wanted.
func (p *program) mustReport(want string, enough func([]upstreamState) bool) {
	p.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for {
		all, err := p.report()
		if err == nil && enough(all) {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			p.t.Fatalf("/readyz does not report within %v that %s: %+v, %v", patience, want, all, err)
		}
	}
}

// report returns the upstreams in the order of the configuration.
func (p *program) report() ([]upstreamState, error) {
	resp, err := http.Get(p.admin + "/readyz")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var r struct{ Upstreams []upstreamState }
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return nil, err
	}
	return r.Upstreams, nil
}
