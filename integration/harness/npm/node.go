package npm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
)

// Patience is for one run of a client. It takes half a second; on a busy machine it may take
// many times that.
const Patience = 2 * time.Minute

// MustFolder returns the folder npm with its packages installed.
func MustFolder(t testing.TB) string {
	t.Helper()
	needs.Node.Require(t)
	dir, err := Installed()
	if err != nil {
		t.Fatalf("install the npm packages: %v", err)
	}
	return dir
}

// Installed installs the packages of the folder npm, and returns the folder.
var Installed = sync.OnceValues(func() (string, error) { return Install("npm") })

// Install installs the packages of the lock file of a folder of integration once on a machine, in a folder of the
// user's cache that the lock file's digest names, and makes node_modules a link to it. It returns the folder. Test
// processes wait for each other.
func Install(folder string) (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "integration", folder)
	cache, err := os.UserCacheDir()
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
	packages := filepath.Join(cache, "junction-test", folder+"-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if err := os.MkdirAll(filepath.Dir(packages), 0o700); err != nil {
		return "", err
	}
	unlock, err := lockedfile.MutexAt(packages + ".lock").Lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(packages); errors.Is(err, os.ErrNotExist) {
		if err := install(dir, packages); err != nil {
			return "", err
		}
	}
	link, modules := filepath.Join(dir, "node_modules"), filepath.Join(packages, "node_modules")
	if to, err := os.Readlink(link); err == nil && to == modules {
		return dir, nil
	}
	return dir, errors.Join(os.RemoveAll(link), os.Symlink(modules, link))
}

// install runs npm ci for the lock file of one folder in another one, which is there afterwards if all
// packages are.
func install(from, to string) error {
	begun := to + ".new"
	if err := errors.Join(os.RemoveAll(begun), os.MkdirAll(begun, 0o700)); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(begun, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = begun
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return os.Rename(begun, to)
}

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
	cmd.Stderr, cmd.Env = n.Stderr, process.OwnerOf(t).EnvironOfOthers(cmd.Environ())
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
