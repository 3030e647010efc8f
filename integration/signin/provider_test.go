package signin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// This file has the identity providers of the tests: one process for all of them, since starting Node and
// reading oidc-provider takes longer than a sign-in.

// provider is an identity provider of one test.
type provider struct {
	t      testing.TB
	issuer string
}

// mustProvider opens a provider for a redirect URI. It ends with the test.
func mustProvider(t testing.TB, redirect string) *provider {
	t.Helper()
	var said struct{ Issuer string }
	providers().mustDo(t, map[string]any{"open": []string{redirect}}, &said)
	p := &provider{t, said.Issuer}
	t.Cleanup(func() {
		p.command("close")
		if t.Failed() {
			t.Logf("the providers say:\n%s", providers().stderr.Tail(3000))
		}
	})
	return p
}

// command gives the provider an order, and waits until it is done.
func (p *provider) command(order string) {
	p.t.Helper()
	var said struct{ Done string }
	providers().mustDo(p.t, map[string]any{"issuer": p.issuer, "order": order}, &said)
	if said.Done != order {
		p.t.Errorf("the order %q is answered with %q", order, said.Done)
	}
}

var providers = sync.OnceValue(func() *providerProcess { return &providerProcess{stderr: process.NewOutput()} })

// providerProcess is the process with the providers of all tests. The first test that needs it starts it.
type providerProcess struct {
	stderr *process.Output

	mu     sync.Mutex // held during an order and its answer
	in     io.WriteCloser
	out    *os.File
	answer *bufio.Reader
	broken error // why it takes no orders any more
}

// mustDo gives the process an order, and decodes the answer.
func (p *providerProcess) mustDo(t testing.TB, order map[string]any, into any) {
	t.Helper()
	if err := p.do(t, order, into); err != nil {
		t.Fatalf("the providers: %v\n%s", err, p.stderr.Tail(3000))
	}
}

func (p *providerProcess) do(t testing.TB, order map[string]any, into any) error {
	folder := npm.MustFolder(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in == nil && p.broken == nil {
		process.OwnerOf(t).Lasts(func() { p.broken = p.start(folder) })
	}
	if p.broken != nil {
		return p.broken
	}
	p.broken = p.exchange(order, into) // after a failure, the next answer may be that of this order
	return p.broken
}

// start starts the process; mu is held.
func (p *providerProcess) start(folder string) error {
	cmd := exec.Command("node", "idp.mjs")
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = folder, p.stderr, process.ChildAttr(syscall.SIGKILL)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd.Stdout = theirs
	if err := cmd.Start(); err != nil {
		return err
	}
	p.in, p.out, p.answer = in, out, bufio.NewReader(out)
	harness.AtEnd(func() {
		in.Close() // which ends it
		late := time.AfterFunc(harness.Patience, func() { process.KillGroup(cmd.Process.Pid) })
		defer late.Stop()
		cmd.Wait() // how it ended does not matter
		out.Close()
	})
	return nil
}

// exchange writes an order and reads the answer; mu is held.
func (p *providerProcess) exchange(order map[string]any, into any) error {
	line, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := p.out.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		return err
	}
	text, err := p.answer.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no answer to %s: %w", line, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w in: %s", err, text)
	}
	return nil
}
