package files

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// holdEnv names the file that the test binary locks instead of running tests.
const holdEnv = "JUNCTION_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(holdEnv); name != "" {
		if _, err := LockFile(context.Background(), name); err != nil {
			os.Exit(3)
		}
		os.Stdout.WriteString("locked\n")
		io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has ended
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Ensure that a lock keeps others out however old it is, that waiting ends with its context, and that
// the lock of a killed process is free.
func TestLockEndsWithItsProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "one.lock")
	holder := exec.CommandContext(t.Context(), os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"="+name)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(stdout).ReadString('\n'); said != "locked\n" {
		t.Fatalf("the holder wrote %q, %v", said, err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(name, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := LockFile(over, name); !errors.Is(err, context.Canceled) {
		t.Errorf("a second lock: %v, want that the context has ended", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // reports the kill
	unlock, err := LockFile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFile(over, name); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock of the same process: %v, want that the context has ended", err)
	}
	unlock()
	if unlock, err = LockFile(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	unlock()
}
