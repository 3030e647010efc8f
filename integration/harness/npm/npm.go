// Package npm runs the clients and servers of the folder npm (../../npm), which others wrote, and
// installs their packages. npm.go has the clients, each in its eras; node.go has Node itself, and the
// scripts that talk with a test line by line.
package npm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// Client is a client of the folder npm in one of its eras.
type Client struct {
	Name   string
	Args   []string // before the URL
	Modern bool     // it speaks 2026-07-28 with a server that does
	Sdk    bool     // it has the commands of commands.mjs; the inspector has its own
	Stdio  bool     // it reaches the URL over junction stdio
	Env    []string // further variables of its environment

	kept *kept // runs all commands; nil for a process of each
}

// Clients returns all clients of the folder npm, in each of their eras.
func Clients() []Client {
	return []Client{
		{Name: "sdk1", Args: []string{"client-v1.mjs"}, Sdk: true},
		{Name: "sdk2-legacy", Args: []string{"client-v2.mjs", "legacy"}, Sdk: true},
		{Name: "sdk2-auto", Args: []string{"client-v2.mjs", "auto"}, Modern: true, Sdk: true},
		{Name: "sdk2-modern", Args: []string{"client-v2.mjs", "modern"}, Modern: true, Sdk: true},
		{Name: "inspector-legacy", Args: []string{"inspector.mjs", "legacy"}},
		{Name: "inspector-modern", Args: []string{"inspector.mjs", "modern"}, Modern: true},
	}
}

// OverStdio returns the clients of the SDK as they reach an endpoint over junction stdio.
func OverStdio(clients []Client) []Client {
	var list []Client
	for _, c := range clients {
		if c.Sdk {
			c.Name, c.Stdio = c.Name+"-stdio", true
			list = append(list, c)
		}
	}
	return list
}

// Tried are those of the clients that tests go through: with -short the SDK's 1.x and its 2.x in
// the modern era are enough.
func Tried(t testing.TB, clients []Client) []Client {
	short := testing.Short()
	return slices.DeleteFunc(clients,
		func(c Client) bool { return short && c.Name != "sdk1" && c.Name != "sdk2-modern" })
}

// Era is the word that the SDK has for the era.
func (c Client) Era() string {
	if c.Modern {
		return "modern"
	}
	return "legacy"
}

// command returns the command of a client at an endpoint, which is killed with all its children
// when ctx ends.
func (c Client) command(ctx context.Context, t testing.TB, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, "node", append(append(c.Args[:len(c.Args):len(c.Args)], url), args...)...)
	cmd.Dir = MustFolder(t)
	cmd.Env = process.OwnerOf(t).EnvironOfOthers(cmd.Environ())
	if c.Stdio {
		cmd.Env = append(cmd.Env, "JUNCTION_STDIO="+harness.JunctionBinary(t))
	}
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// kept is a process that runs one command after the other.
type kept struct {
	*Script
	mu sync.Mutex // is held during a command
}

// Kept returns the client, one of the SDK, as a process that lives until the test ends. It runs one
// command after the other, each with a connection of its own, also for parallel subtests. Starting Node
// takes longer than a command.
func (c Client) Kept(t testing.TB) Client {
	t.Helper()
	if !c.Sdk {
		t.Fatalf("%s cannot be kept", c.Name)
	}
	c.kept = &kept{Script: MustTalk(t, c.Name, func(ctx context.Context) *exec.Cmd { return c.command(ctx, t, "-") })}
	return c
}

// run runs a command for a test.
func (k *kept) run(t testing.TB, into any, args ...string) error {
	t.Helper()
	line, err := json.Marshal(args)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := *k.Script
	s.T = t
	s.MustWrite(string(line))
	var said struct {
		Code     int
		Document json.RawMessage
	}
	if s.MustRead(&said); said.Code != 0 {
		return fmt.Errorf("%s %s: code %d\n%s", s.Name, strings.Join(args, " "), said.Code, said.Document)
	}
	return json.Unmarshal(said.Document, into)
}

// Run runs a client to its end and decodes the document that it prints. The error is of a client
// that ended with another status than 0.
func (c Client) Run(t testing.TB, into any, url string, args ...string) error {
	t.Helper()
	if c.kept != nil {
		return c.kept.run(t, into, append([]string{url}, args...)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	cmd := c.command(ctx, t, url, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s%s", c.Name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		return fmt.Errorf("%s %s: %w in:\n%s", c.Name, strings.Join(args, " "), err, &stdout)
	}
	return nil
}

// ToolResult is the result of a tool.
type ToolResult struct {
	Content []struct {
		Type, Text string
	}
	StructuredContent json.RawMessage
	IsError           bool
}

// Text is the text of all content, and what is no text by its type in brackets.
func (r ToolResult) Text() string {
	var b strings.Builder
	for _, c := range r.Content {
		if c.Type != "text" {
			b.WriteString("[" + c.Type + "]")
		}
		b.WriteString(c.Text)
	}
	return b.String()
}

// List is what a client says about an endpoint. The inspector says only Tools and Raw.
type List struct {
	Tools           []string // their names
	Raw             json.RawMessage
	Era             string
	ProtocolVersion string
	ServerInfo      struct{ Name string }
}

// MustList lists the tools of an endpoint.
func (c Client) MustList(t testing.TB, url string) List {
	t.Helper()
	var l List
	if c.Sdk {
		if err := c.Run(t, &l, url, "list"); err != nil {
			t.Fatal(err)
		}
		return l
	}
	var inspected struct{ Result json.RawMessage }
	if err := c.Run(t, &inspected, url, "tools/list"); err != nil {
		t.Fatal(err)
	}
	l.Raw = inspected.Result
	var page struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(l.Raw, &page); err != nil {
		t.Fatalf("%s: list: %v in:\n%s", c.Name, err, l.Raw)
	}
	for _, tool := range page.Tools {
		l.Tools = append(l.Tools, tool.Name)
	}
	return l
}

// MustCall calls a tool.
func (c Client) MustCall(t testing.TB, url, tool, arguments string) ToolResult {
	t.Helper()
	var inspected struct{ Result ToolResult }
	var err error
	if c.Sdk {
		err = c.Run(t, &inspected.Result, url, "call", tool, arguments)
	} else {
		err = c.Run(t, &inspected, url, "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
	}
	if err != nil {
		t.Fatal(err)
	}
	return inspected.Result
}

// Progress is a call with what was heard of its progress.
type Progress struct {
	Progress []struct {
		Progress, Total float64
		Message         string
	}
	Result ToolResult
}

// Session is a client that stays connected and says on standard output, line by line, what
// happens.
type Session struct{ *Script }

// MustOpen starts the command watch or restart of a client.
func (c Client) MustOpen(t testing.TB, url, command string) Session {
	t.Helper()
	return Session{MustTalk(t, c.Name+" "+command,
		func(ctx context.Context) *exec.Cmd { return c.command(ctx, t, url, command) })}
}

// MustContinue sends the line that it waits for.
func (s Session) MustContinue() {
	s.T.Helper()
	s.MustWrite("go on")
}

// MustServe starts server-everything over HTTP, in the mode streamableHttp or sse, and returns its
// URL.
func MustServe(t testing.TB, mode string) string {
	t.Helper()
	cmd := exec.Command("node", "serve.mjs", mode)
	cmd.Dir = MustFolder(t)
	return process.MustStartServer(t, cmd, regexp.MustCompile(`"url":"([^"]+)"`))[1]
}
