package integration

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/upstream/upstreamtest"
)

// TestAuthT124MCPRemote has mcp-remote, by which clients that know only standard input and output reach a server behind a sign-in, go through all of it.
func TestAuthT124MCPRemote(t *testing.T) {
	defer computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	home := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, port, _ := strings.Cut(freePort(t), ":")
	cmd := exec.CommandContext(ctx, "node", filepath.Join("node_modules", "mcp-remote", "dist", "proxy.js"), c.origin+"/mcp", port, "--allow-http", "--transport", "http-only")
	cmd.Dir = mustNPM(t)
	cmd.Env = append(cmd.Environ(), "HOME="+home, "MCP_REMOTE_CONFIG_DIR="+home, "PATH="+filepath.Dir(mustLook(t, "node"))) // where there is no browser
	cmd.SysProcAttr = childAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { killGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	stderr := newOutput()
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 10), make(chan struct{})
	go func() {
		defer close(ended)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		cmd.Wait() // how it ended shows in what it wrote
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("mcp-remote says:\n%s", stderr.tail(3000))
		}
	})
	say := func(line string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		select {
		case line := <-lines:
			if !strings.Contains(line, want) {
				t.Fatalf("it answers %.300s, want %s", line, want)
			}
		case <-time.After(patience):
			t.Fatalf("it does not answer; want %s", want)
		}
	}
	where := stderr.mustMatch(t, regexp.MustCompile(`http://127\.0\.0\.1:\d+/oauth/authorize\?\S+`), patience, ended)
	ann := newPerson(t, "ann")
	if back := ann.mustAllow(where[0]); back.Hostname() == "localhost" {
		ann.do("GET", back.String(), nil)
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	hear(`"serverInfo"`)
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	hear(`up__echo`)
	say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"up__echo","arguments":{"text":"over two wires"}}}`)
	hear(`over two wires`)
}

func mustLook(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
