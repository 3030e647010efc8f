package signin

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// TestMCPRemoteSignsIn has mcp-remote, by which clients that know only standard input and output
// reach a server behind a sign-in, go through all of it.
func TestMCPRemoteSignsIn(t *testing.T) {
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	home := t.TempDir()
	_, port, _ := strings.Cut(process.FreePort(t), ":")
	remote := npm.MustTalk(t, "mcp-remote", func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", filepath.Join("node_modules", "mcp-remote", "dist", "proxy.js"),
			c.origin+"/mcp", port, "--allow-http", "--transport", "http-only")
		cmd.Dir = npm.MustFolder(t)
		// where there is no browser
		cmd.Env = append(cmd.Environ(), "HOME="+home, "MCP_REMOTE_CONFIG_DIR="+home,
			"PATH="+filepath.Dir(mustLook(t, "node")))
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
		cmd.WaitDelay = 5 * time.Second
		return cmd
	})
	hear := func(want string) {
		t.Helper()
		var line json.RawMessage
		if remote.MustRead(&line); !strings.Contains(string(line), want) {
			t.Fatalf("it answers %.300s, want %s", line, want)
		}
	}
	where := remote.Stderr.MustMatch(t, regexp.MustCompile(`http://127\.0\.0\.1:\d+/oauth/authorize\?\S+`),
		harness.Patience, remote.Ended)
	ann := newPerson(t, "ann")
	if back := ann.mustAllow(where[0]); back.Hostname() == "localhost" {
		ann.do("GET", back.String(), nil)
	}
	remote.MustWrite(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"test","version":"1"}}}`)
	hear(`"serverInfo"`)
	remote.MustWrite(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	remote.MustWrite(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	hear(`up__echo`)
	remote.MustWrite(
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"up__echo","arguments":{"text":"over two wires"}}}`)
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
