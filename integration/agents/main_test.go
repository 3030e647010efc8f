//go:build linux

package agents

import (
	"bytes"
	"fmt"
	"junction/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience limits every wait of these tests.
const patience = 90 * time.Second

// TestMain makes the test binary play the upstream server when upstreamVariable is set.
func TestMain(m *testing.M) {
	if address := os.Getenv(upstreamVariable); address != "" {
		if err := serveUpstream(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	os.RemoveAll(harness.BuildDir())
	os.Exit(code)
}

// mustOptIn skips the test unless JUNCTION_AGENTS=1, and returns the folder with the packages.
func mustOptIn(t *testing.T) (packages string) {
	t.Helper()
	if os.Getenv("JUNCTION_AGENTS") != "1" {
		t.Skip("the agent command lines need 1.4 GB from npm: set JUNCTION_AGENTS=1 to install and run them")
	}
	dir, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// installed runs npm ci, unless a stamp beside the packages says that they are those of the lock.
var installed = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("node_modules")
	if err != nil {
		return "", err
	}
	want, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(dir, ".junction-stamp")
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, want) {
		return dir, nil
	}
	if out, err := exec.Command("npm", "ci").CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, os.WriteFile(stamp, want, 0o666)
})
