package npm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// Patience is for one run of a client. It takes half a second; on a busy machine it may take
// many times that.
const Patience = 2 * time.Minute

// MustFolder returns the folder npm with its packages installed.
func MustFolder(t testing.TB) string {
	t.Helper()
	harness.Need(t, HaveNode())
	dir, err := Installed()
	if err != nil {
		t.Fatalf("install the npm packages: %v", err)
	}
	return dir
}

// HaveNode says what is missing to run the clients and servers.
var HaveNode = sync.OnceValue(func() error {
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

// Installed runs npm ci, unless a stamp beside the packages says that they are those of the lock.
// Test processes wait for each other.
var Installed = sync.OnceValues(func() (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "integration", "npm")
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
	_, unlock, err := harness.SharedDir(root)
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

// HaveRegistry says why npx could not install the servers of the example.
func HaveRegistry() error {
	cmd := exec.Command("npm", "view", "@modelcontextprotocol/server-memory@2026.8.31", "version")
	cmd.Dir = os.TempDir() // away from any .npmrc of a project
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("there is no npm registry: %w\n%s", err, out)
	}
	return nil
}

// Script is one of the folder npm that says one JSON document per line, and hears lines.
type Script struct {
	T      testing.TB
	Name   string
	In     io.WriteCloser
	lines  chan []byte // closed when it has ended
	Stderr *process.Output
	Ended  chan struct{} // closed when nothing of it is left
}

// MustTalk starts the command of a script; its context ends with the test.
func MustTalk(t testing.TB, name string, command func(context.Context) *exec.Cmd) *Script {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command(ctx)
	n := &Script{T: t, Name: name, lines: make(chan []byte, 100), Stderr: process.NewOutput(),
		Ended: make(chan struct{})}
	cmd.Stderr = n.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", n.Name, err)
	}
	n.In = in
	go func() {
		defer close(n.Ended)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case n.lines <- bytes.Clone(scanner.Bytes()):
			case <-ctx.Done():
			}
		}
		close(n.lines)
		cmd.Wait() // how it ended does not matter, but its output does
	}()
	t.Cleanup(func() {
		cancel()
		<-n.Ended
		if t.Failed() {
			t.Logf("%s says:\n%s", n.Name, n.Stderr.Tail(3000))
		}
	})
	return n
}

// MustRead decodes the next line that the script prints.
func (n *Script) MustRead(into any) {
	n.T.Helper()
	select {
	case line, ok := <-n.lines:
		if !ok {
			n.T.Fatalf("%s has ended; its standard error:\n%s", n.Name, n.Stderr)
		}
		if err := json.Unmarshal(line, into); err != nil {
			n.T.Fatalf("%s: %v in: %s", n.Name, err, line)
		}
	case <-time.After(harness.Patience):
		n.T.Fatalf("%s says nothing for %v; its standard error:\n%s", n.Name, harness.Patience, n.Stderr)
	}
}

// MustWrite sends the script a line.
func (n *Script) MustWrite(line string) {
	n.T.Helper()
	if _, err := io.WriteString(n.In, line+"\n"); err != nil {
		n.T.Fatalf("%s: %v; its standard error:\n%s", n.Name, err, n.Stderr)
	}
}
