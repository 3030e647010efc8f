//go:build linux

package agents

import (
	"fmt"
	"junction/integration/harness"
	"junction/integration/harness/npm"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// patience limits every wait of these tests.
const patience = 3 * time.Minute

// TestMain makes the test binary play the upstream server when upstreamVariable is set.
func TestMain(m *testing.M) {
	if address := os.Getenv(upstreamVariable); address != "" {
		if err := serveUpstream(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(folderVariable) != "" {
		if err := serveFolder(); err != nil {
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

// installed installs the packages.
var installed = sync.OnceValues(func() (string, error) {
	dir, err := npm.Install("agents")
	return filepath.Join(dir, "node_modules"), err
})
