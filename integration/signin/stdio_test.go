package signin

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// stdioEnvironment is that of a person without a browser.
func stdioEnvironment(state string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + state, "XDG_STATE_HOME=" + state}
}

// mustStdio starts junction stdio for an endpoint.
func mustStdio(t *testing.T, state, url string) *npm.Script {
	t.Helper()
	return npm.MustTalk(t, "junction stdio", func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, harness.JunctionBinary(t), "stdio", "--url", url)
		cmd.Env = stdioEnvironment(state)
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		return cmd
	})
}

// TestStdioSignIn has junction stdio sign a person in, whose other commands then use that sign-in, and
// sign in again after it was revoked.
func TestStdioSignIn(t *testing.T) {
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	state := t.TempDir()
	environment := stdioEnvironment(state)
	start := func() *npm.Script { return mustStdio(t, state, c.origin+"/mcp") }
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
		`"clientInfo":{"name":"test","version":"1"}}}`
	call := func(s *npm.Script, want string) {
		t.Helper()
		s.MustWrite(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		var line json.RawMessage
		for s.MustRead(&line); strings.Contains(string(line), "list_changed"); {
			s.MustRead(&line)
		}
		if !strings.Contains(string(line), want) {
			t.Fatalf("it answers %.300s, want %s", line, want)
		}
	}
	const page = `(http://127\.0\.0\.1:\d+/oauth/authorize\?\S+)`
	signIn := func(s *npm.Script, pattern string) {
		t.Helper()
		where := s.Stderr.MustMatch(t, regexp.MustCompile(pattern), harness.Patience, s.Ended)
		newPerson(t, "ann").mustAllow(where[1]) // the browser brings the answer to the command
	}

	// The first request waits for the person.
	first := start()
	first.MustWrite(hello)
	signIn(first, page)
	var line json.RawMessage
	if first.MustRead(&line); !strings.Contains(string(line), `"serverInfo"`) {
		t.Fatalf("it answers %.300s", line)
	}
	first.MustWrite(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	call(first, "up__echo")

	// The file is only for its owner, and serves another process and another command.
	files, err := filepath.Glob(filepath.Join(state, "junction", "signins", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files of sign-ins are %q, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	second := start()
	second.MustWrite(hello)
	if second.MustRead(&line); !strings.Contains(string(line), `"serverInfo"`) {
		t.Fatalf("another process answers %.300s", line)
	}
	tools := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), harness.JunctionBinary(t), "tools", "--url", c.origin+"/mcp")
		cmd.Env = environment
		out, err := cmd.CombinedOutput()
		authtest.Searched(t, "what junction tools writes").Write(out)
		return string(out), err
	}
	if out, err := tools(); err != nil || !strings.Contains(out, "up__echo") {
		t.Errorf("junction tools prints %v\n%s", err, out)
	}

	// After the sign-in was revoked, the person is asked again. Without a terminal, other commands say
	// what to do.
	c.mustOperate(t, "sessions", "revoke", "--all", "--yes")
	signIn(first, `(?s)authorize\?.*`+page)
	call(first, "up__echo")
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if out, err := tools(); err == nil || !strings.Contains(out, "the endpoint requires a sign-in; run junction tools in a terminal") {
		t.Errorf("without a sign-in, junction tools prints %v\n%s", err, out)
	}
}

// TestToolsAndCallSignIn has junction tools and junction call sign a person in at a terminal, which
// script makes.
func TestToolsAndCallSignIn(t *testing.T) {
	defer harness.Computes(t)()
	if runtime.GOOS != "linux" {
		t.Skip("script has other flags there; CI runs on Linux")
	}
	terminal, err := exec.LookPath("script")
	if err != nil {
		t.Fatal(err)
	}
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	for command, want := range map[string]string{
		"tools 'up__ec*' --url " + c.origin + "/mcp":              "up__echo",
		"call up__echo text=hello-ann --url " + c.origin + "/mcp": "hello-ann",
	} {
		state := t.TempDir()
		cmd := exec.CommandContext(t.Context(), terminal, "-qefc", harness.JunctionBinary(t)+" "+command, "/dev/null")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + state, "XDG_STATE_HOME=" + state, "SHELL=/bin/sh", "TERM=dumb"}
		cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
		out, ended := process.NewOutput(), make(chan struct{})
		cmd.Stdout, cmd.Stderr = out, out
		stdin, err := cmd.StdinPipe() // it stays open, so that script does not end the input of the terminal
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var failed error
		go func() {
			defer close(ended)
			failed = cmd.Wait()
		}()
		where := out.MustMatch(t, regexp.MustCompile(`(http://127\.0\.0\.1:\d+/oauth/authorize\?\S+)`), harness.Patience, ended)
		newPerson(t, "ann").mustAllow(where[1]) // the browser brings the answer to the command
		<-ended
		stdin.Close()
		before, printed, _ := strings.Cut(out.String(), where[1]) // the URL has secrets, for this person
		authtest.Searched(t, "what junction prints at a terminal").Write([]byte(before + printed))
		if failed != nil || !strings.Contains(printed, want) {
			t.Errorf("junction %s: %v, want %s in\n%s", command, failed, want, out)
		}
	}
}
