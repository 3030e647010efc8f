package harness

import (
	"crypto/sha256"
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

	"github.com/rogpeppe/go-internal/lockedfile"

	"junction/integration/harness/process"
)

// Patience is how long a test waits for something that should happen at once.
const Patience = process.Patience

// Promptly is twice the time within which what was taken back, or has run out, is good for nothing
// any more.
const Promptly = 20 * time.Second

// JunctionBinary returns the path of the program, built from this tree once for all tests:
// package main cannot be imported. It is built with the race detector when the tests are;
// a race then ends the program with status 66.
func JunctionBinary(t testing.TB) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatalf("build junction: %v", err)
	}
	return binary
}

// PackBinary returns the path of junction-pack, built like JunctionBinary.
func PackBinary(t testing.TB) string {
	t.Helper()
	binary, err := builtPack()
	if err != nil {
		t.Fatalf("build junction-pack: %v", err)
	}
	return binary
}

// NextBinary returns the path of an invented next version of the program, which needs a newer schema of the
// database (auth/store/migrate_invented.go).
func NextBinary(t testing.TB) string {
	t.Helper()
	binary, err := builtNext()
	if err != nil {
		t.Fatalf("build the next junction: %v", err)
	}
	return binary
}

// BeforeBinary returns the path of the program of an older commit, which JUNCTION_TEST_BEFORE names; without it the
// test is skipped. The program is built once for all tests of the checkout.
func BeforeBinary(t testing.TB) string {
	t.Helper()
	commit := os.Getenv("JUNCTION_TEST_BEFORE")
	if commit == "" {
		t.Skip("JUNCTION_TEST_BEFORE has no commit; .ci/whole names one")
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	shared, unlock, err := SharedDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	program := filepath.Join(shared, "junction-before-"+commit)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	source := t.TempDir()
	for _, step := range [][]string{
		{"git", "-C", root, "archive", "--output", filepath.Join(source, "source.tar"), commit},
		{"tar", "-x", "-C", source, "-f", filepath.Join(source, "source.tar")},
		{"go", "build", "-C", source, "-buildvcs=false", "-o", program, "./cmd/junction"},
	} {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("build the program of %s: %s: %v\n%s", commit, step, err, out)
		}
	}
	return program
}

var (
	built     = sync.OnceValues(func() (string, error) { return build("junction", "") })
	builtPack = sync.OnceValues(func() (string, error) { return build("junction-pack", "") })
	builtNext = sync.OnceValues(func() (string, error) { return build("junction", "inventedschema") })
)

// build builds a program in a folder that the test binaries of all packages share: the go command
// links it only if the last one of them did not. The tests use a link to it in BuildDir, so that
// another test binary can replace the shared program meanwhile.
func build(command, tag string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	name, args := command, []string{"build", "-buildvcs=false"} // as test binaries, whose version is "devel"
	if raceEnabled() {
		name, args = command+"-race", append(args, "-race")
	}
	if tag != "" {
		name, args = name+"-"+tag, append(args, "-tags", tag)
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	shared, unlock, err := SharedDir(root)
	if err != nil {
		return "", err
	}
	defer unlock()
	program := filepath.Join(shared, name)
	cmd := exec.Command("go", append(args, "-o", program, "./cmd/"+command)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if err := os.MkdirAll(BuildDir(), 0o711); err != nil {
		return "", err
	}
	own := filepath.Join(BuildDir(), command+tag+filepath.Ext(name))
	return own, os.Link(program, own)
}

// SharedDir returns a folder for the test binaries of one checkout, and locks it.
func SharedDir(root string) (dir string, unlock func(), err error) {
	place := sha256.Sum256([]byte(root))
	dir = filepath.Join(temp(), fmt.Sprintf("junction-test-%d-%x", os.Getuid(), place[:8]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	unlock, err = lockedfile.MutexAt(filepath.Join(dir, "lock")).Lock()
	return dir, unlock, err
}

// Root returns the folder of the module, above the folder in which the tests run.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod above %s", start)
		}
	}
}

// BuildDir is the folder of what this process has built; TestMain removes it. Processes of other users
// may run programs in it.
func BuildDir() string { return filepath.Join(temp(), fmt.Sprintf("junction-test-%d", os.Getpid())) }

// temp is the system's folder for temporary files. The tests get one of their own (Main).
var temp = sync.OnceValue(os.TempDir)

func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
