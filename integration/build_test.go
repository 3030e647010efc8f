package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for something of a process that should happen at once, on a
// machine that has much else to do.
const patience = 2 * time.Minute

// promptly is twice the time within which what was taken back, or has run out, is good for nothing
// any more.
const promptly = 20 * time.Second

// junctionBinary returns the path of the program, built from this tree once for all tests of this
// process: package main cannot be imported. It is built with the race detector when the tests are;
// a race then ends the program with status 66.
func junctionBinary(t testing.TB) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatalf("build junction: %v", err)
	}
	return binary
}

var built = sync.OnceValues(func() (string, error) {
	if err := os.MkdirAll(buildDir(), 0o700); err != nil {
		return "", err
	}
	name := "junction"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	binary := filepath.Join(buildDir(), name)
	args := []string{"build", "-o", binary}
	if raceEnabled() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "junction/cmd/junction")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
})

// buildDir is the folder of what this process has built; TestMain removes it.
func buildDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("junction-test-%d", os.Getpid()))
}

func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
