package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// This file installs and runs the clients and servers of the folder npm, which others wrote.
// npm/README.md describes them.

// npmPatience is for one run of a client. It takes half a second; on a busy machine it may take
// many times that.
const npmPatience = 2 * time.Minute

// need skips the test where the machine lacks something, or fails it where it must not:
// JUNCTION_REQUIRE_NODE=1 says that Node and all else is there.
func need(t testing.TB, lacking error) {
	t.Helper()
	switch {
	case lacking == nil:
	case os.Getenv("JUNCTION_REQUIRE_NODE") == "1":
		t.Fatal(lacking)
	default:
		t.Skip(lacking)
	}
}

// mustNPM returns the folder npm with its packages installed.
func mustNPM(t testing.TB) string {
	t.Helper()
	need(t, haveNode())
	dir, err := installed()
	if err != nil {
		t.Fatalf("install the npm packages: %v", err)
	}
	return dir
}

// haveNode says what is missing to run the clients and servers.
var haveNode = sync.OnceValue(func() error {
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("there is no Node: %w", err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		return fmt.Errorf("this is Node %s, and the clients need 20 or later", version)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("there is no npm: %w", err)
	}
	return nil
})

// installed runs npm ci, unless a stamp beside the packages says that they are those of the lock.
// Test processes wait for each other.
var installed = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("npm")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	want := hex.EncodeToString(hash.Sum(nil))
	// npm ci removes node_modules first, so the lock lies elsewhere; the stamp goes with the
	// packages.
	place := sha256.Sum256([]byte(dir))
	unlock, err := lockedfile.MutexAt(filepath.Join(os.TempDir(), "junction-npm-"+hex.EncodeToString(place[:8])+".lock")).Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	stamp := filepath.Join(dir, "node_modules", ".junction-stamp")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, os.WriteFile(stamp, []byte(want), 0o666)
})

// npmClient is a client of the folder npm in one of its eras.
type npmClient struct {
	name   string
	args   []string // before the URL
	modern bool     // it speaks 2026-07-28 with a server that does
	sdk    bool     // it has the commands of commands.mjs; the inspector has its own
}

func npmClients() []npmClient {
	return []npmClient{
		{"sdk1", []string{"client-v1.mjs"}, false, true},
		{"sdk2-legacy", []string{"client-v2.mjs", "legacy"}, false, true},
		{"sdk2-auto", []string{"client-v2.mjs", "auto"}, true, true},
		{"sdk2-modern", []string{"client-v2.mjs", "modern"}, true, true},
		{"inspector-legacy", []string{"inspector.mjs", "legacy"}, false, false},
		{"inspector-modern", []string{"inspector.mjs", "modern"}, true, false},
	}
}

// tried are those of the clients that tests go through: with -short the SDK's 1.x and its 2.x in
// the modern era are enough.
func tried(clients []npmClient) []npmClient {
	return slices.DeleteFunc(clients, func(c npmClient) bool { return testing.Short() && c.name != "sdk1" && c.name != "sdk2-modern" })
}

// era is the word that the SDK has for the era.
func (c npmClient) era() string {
	if c.modern {
		return "modern"
	}
	return "legacy"
}

// command returns the command of a client at an endpoint, which is killed with all its children
// when ctx ends.
func (c npmClient) command(ctx context.Context, t testing.TB, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, "node", append(append(c.args[:len(c.args):len(c.args)], url), args...)...)
	cmd.Dir = mustNPM(t)
	cmd.SysProcAttr = childAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { killGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a client to its end and decodes the document that it prints. The error is of a client
// that ended with another status than 0.
func (c npmClient) run(t testing.TB, into any, url string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), npmPatience)
	defer cancel()
	cmd := c.command(ctx, t, url, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s%s", c.name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		return fmt.Errorf("%s %s: %w in:\n%s", c.name, strings.Join(args, " "), err, &stdout)
	}
	return nil
}

// toolResult is the result of a tool.
type toolResult struct {
	Content []struct {
		Type, Text string
	}
	StructuredContent json.RawMessage
	IsError           bool
}

// text is the text of all content, and what is no text by its type in brackets.
func (r toolResult) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		if c.Type != "text" {
			b.WriteString("[" + c.Type + "]")
		}
		b.WriteString(c.Text)
	}
	return b.String()
}

// npmList is what a client says about an endpoint. The inspector says only Tools and Raw.
type npmList struct {
	Tools           []string // their names
	Raw             json.RawMessage
	Era             string
	ProtocolVersion string
	ServerInfo      struct{ Name string }
}

// mustList lists the tools of an endpoint.
func (c npmClient) mustList(t testing.TB, url string) npmList {
	t.Helper()
	var l npmList
	if c.sdk {
		if err := c.run(t, &l, url, "list"); err != nil {
			t.Fatal(err)
		}
		return l
	}
	var inspected struct{ Result json.RawMessage }
	if err := c.run(t, &inspected, url, "tools/list"); err != nil {
		t.Fatal(err)
	}
	l.Raw = inspected.Result
	var page struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(l.Raw, &page); err != nil {
		t.Fatalf("%s: list: %v in:\n%s", c.name, err, l.Raw)
	}
	for _, tool := range page.Tools {
		l.Tools = append(l.Tools, tool.Name)
	}
	return l
}

// mustCall calls a tool.
func (c npmClient) mustCall(t testing.TB, url, tool, arguments string) toolResult {
	t.Helper()
	var inspected struct{ Result toolResult }
	var err error
	if c.sdk {
		err = c.run(t, &inspected.Result, url, "call", tool, arguments)
	} else {
		err = c.run(t, &inspected, url, "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
	}
	if err != nil {
		t.Fatal(err)
	}
	return inspected.Result
}

// npmProgress is a call with what was heard of its progress.
type npmProgress struct {
	Progress []struct {
		Progress, Total float64
		Message         string
	}
	Result toolResult
}

// npmSession is a client that stays connected and says on standard output, line by line, what
// happens.
type npmSession struct{ *nodeScript }

// mustOpen starts the command watch or restart of a client.
func (c npmClient) mustOpen(t testing.TB, url, command string) npmSession {
	t.Helper()
	return npmSession{mustTalk(t, c.name+" "+command, func(ctx context.Context) *exec.Cmd { return c.command(ctx, t, url, command) })}
}

// mustContinue sends the line that it waits for.
func (s npmSession) mustContinue() {
	s.t.Helper()
	s.mustWrite("go on")
}

// mustServe starts server-everything over HTTP, in the mode streamableHttp or sse, and returns its
// URL.
func mustServe(t testing.TB, mode string) string {
	t.Helper()
	cmd := exec.Command("node", "serve.mjs", mode)
	cmd.Dir = mustNPM(t)
	return mustStartServer(t, cmd, regexp.MustCompile(`"url":"([^"]+)"`))[1]
}

// mustStartServer starts a server that ends with the test, and returns what of its output matches.
func mustStartServer(t testing.TB, cmd *exec.Cmd, ready *regexp.Regexp) []string {
	t.Helper()
	out := newOutput()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttr(syscall.SIGKILL)
	cmd.WaitDelay = 5 * time.Second
	if _, err := cmd.StdinPipe(); err != nil { // serve.mjs ends when this is closed
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait() // how it ended shows in what it wrote
	}()
	t.Cleanup(func() {
		killGroup(cmd.Process.Pid)
		<-ended
	})
	return out.mustMatch(t, ready, patience, ended)
}

// freePort returns an address of the loopback that is free, and that nobody else in this process
// gets.
func freePort(t testing.TB) string {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.N(20000)) // below those that systems give to connections
		if !ports.given[address] && !taken(address) {
			ports.given[address] = true
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ports are those that tests of this process were given: somebody may be about to listen there.
var ports = struct {
	mu    sync.Mutex
	given map[string]bool
}{given: map[string]bool{}}

// taken reports whether somebody listens on the address.
func taken(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return true
	}
	l.Close()
	return false
}
