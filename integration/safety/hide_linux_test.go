package safety

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/sandbox"
)

// mustOpenTo copies a program into a folder, and gives both to the user of asNobody.
func mustOpenTo(t *testing.T, dir, program string, more ...string) string {
	t.Helper()
	copied := filepath.Join(dir, filepath.Base(program))
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	// A process that another test starts meanwhile would have the file open for writing until it is another
	// program, and Linux starts no program that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	to, err := os.OpenFile(copied, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil || to.Close() != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return copied
	}
	for _, path := range append(more, dir, copied) {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return copied
}

// environmentOf returns what another process of the same user, who is not root, reads of the
// environment of a process.
func environmentOf(pid int) (string, error) {
	out, err := launched(asNobody, "/bin/cat", "/proc/"+strconv.Itoa(pid)+"/environ").CombinedOutput()
	return string(out), err
}

// mustHide fails if the environment of a process of the program is open to others.
func mustHide(t *testing.T, pid int, secret string) {
	t.Helper()
	text, err := environmentOf(pid)
	if shown := strings.Contains(text, secret); err == nil || shown || !strings.Contains(text, "Permission denied") {
		t.Errorf("the environment is open to others, the secret in it: %v, %v", shown, err)
	}
}

// TestServeHidesItsEnvironment: another process of the same user, who is not root, reads the
// environment of processes of that user, and not that of junction. The program starts confined
// commands all the same, although its own /proc is closed to it, too.
func TestServeHidesItsEnvironment(t *testing.T) {
	defer harness.Computes(t)()
	p := harness.NewProgram(t)
	require := sandbox.Kernel().Missing(&sandbox.Rules{}) == ""
	p.MustConfigure(t, fmt.Sprintf("upstreams: { demo: { command: [junction, demo], sandbox: { require: %v } } }\n",
		require))
	binary := mustOpenTo(t, p.Dir, harness.JunctionBinary(t), p.File())
	cmd := launched(asNobody, binary, "--config", p.File())
	cmd.Env = append(cmd.Env, "SOME_SECRET=canary-hidden")
	p.MustStart(t, cmd)
	p.MustReady(t, harness.Patience)
	mustHide(t, p.Cmd.Process.Pid, "canary-hidden")
	// The same must work for a process that hides nothing, or the test would prove nothing.
	sleeper := launched(asNobody, "/bin/sleep", "60")
	sleeper.Env = append(sleeper.Env, "SOME_SECRET=canary-shown")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Kill()
	late := time.After(harness.Patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		text, err := environmentOf(sleeper.Process.Pid)
		if strings.Contains(text, "canary-shown") {
			return
		}
		select {
		case <-again.C: // it has yet to become sleep
		case <-late:
			t.Fatalf("the environment of sleep is hidden from its user: %v", err)
		}
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"

// TestPacksHideTheirEnvironment: nor does it read the credentials of a pack.
func TestPacksHideTheirEnvironment(t *testing.T) {
	harness.Waits(t)
	dir := t.TempDir()
	manifest := []byte("tools: { today: { description: The date., command: [date] } }\n")
	if err := os.WriteFile(filepath.Join(dir, "pack.yaml"), manifest, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := launched(asNobody, mustOpenTo(t, dir, harness.PackBinary(t)), "serve", dir)
	cmd.Env = append(cmd.Env, "TOKEN=canary-of-a-pack")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := io.WriteString(stdin, initialize); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the pack answers %q: %v", line, err)
	}
	mustHide(t, cmd.Process.Pid, "canary-of-a-pack")
}

// TestCommandsHideTheirEnvironment: nor does that process read the key of a command that asks
// an endpoint, or of one that connects a client to it. The endpoint answers nothing until the test
// has looked.
func TestCommandsHideTheirEnvironment(t *testing.T) {
	defer harness.Computes(t)()
	binary := mustOpenTo(t, t.TempDir(), harness.JunctionBinary(t))
	for _, args := range [][]string{
		{"stdio"}, {"tools"}, {"call", "demo__echo", "text=hello"}, {"doctor"},
	} {
		t.Run(args[0], func(t *testing.T) {
			asked, looked := make(chan struct{}, 8), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				select {
				case <-looked:
				case <-r.Context().Done():
				}
			}))
			defer server.Close()
			defer close(looked)
			where := []string{"--url", server.URL + "/mcp"}
			if args[0] == "doctor" {
				where = []string{"--admin", strings.TrimPrefix(server.URL, "http://")}
			}
			key := "canary-key-" + args[0]
			authtest.Secret("key", key)
			cmd, output := launched(asNobody, binary, append(args, where...)...), process.NewOutput()
			cmd.Env = append(cmd.Env, "JUNCTION_KEY="+key)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(initialize), output, output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-asked:
				mustHide(t, cmd.Process.Pid, key)
			case err := <-ended:
				t.Fatalf("the command ends without a request: %v\n%s", err, output)
			case <-time.After(harness.Patience):
				t.Errorf("the command asks nothing\n%s", output)
			}
			_ = cmd.Process.Kill()
			<-ended
		})
	}
}
