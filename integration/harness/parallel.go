package harness

import (
	"os"
	"runtime"
	"testing"

	"junction/integration/harness/process"
)

// Which tests of a package run at the same time, and why.
//
// Most run beside each other. What a test starts belongs to it (process.OwnerOf), so that it sees at
// its end which of its own goroutines, processes and files are left. A test begins with one of these:
//
//   - Waits(t): the test spends most of its time waiting: for messages, processes, a token to expire.
//   - defer Computes(t)(): the test keeps a processor busy, mostly with Node. Only a few of them run
//     at once. More would delay each other, and exceed limits of some seconds. If its subtests
//     compute, the test gives its place back before they begin, because package testing begins
//     parallel subtests when the test returns.
//   - Alone(t, reason): the test measures this process, or changes something that all its tests share.
//     Package testing runs these tests first, one after the other.
//
// The first two may neither use testing.T.Setenv or testing.T.Chdir, nor listen on a port that
// another of them does.
//
// The go command runs the tests of several packages at the same time, each package in a process of
// its own. Nothing here may therefore depend on a fixed port, or on a folder outside of
// testing.T.TempDir, BuildDir and the folder npm, which is installed under a lock.

// beside is how many tests of a package run at once, unless -parallel sets another number. With more
// of them, those with a limit of a few milliseconds wait for a processor.
const beside = 16

const (
	// Programs is for a package whose tests consist of other programs. Most of these tests wait for a
	// place in Computes, so many may have begun.
	Programs = 64
	// Limits is for a package whose servers are too late by tenths of a second.
	Limits = 4
)

// places limits the tests that compute to two for each processor: half of their time they wait for
// the programs that they have started.
var places = make(chan struct{}, 2*runtime.NumCPU())

// Waits runs the test beside others. The test spends its time waiting.
func Waits(t *testing.T) {
	t.Helper()
	t.Parallel()
	process.OwnerOf(t)
}

// Alone runs the test while no other test of the package runs, for a reason.
func Alone(t *testing.T, reason string) {
	t.Helper()
	if reason == "" {
		t.Fatal("a test that runs alone needs a reason")
	}
	process.OwnerOf(t)
}

// Computes runs the test beside others when there is a place for it. The result gives the place
// back.
func Computes(t *testing.T) (done func()) {
	t.Helper()
	t.Parallel()
	process.OwnerOf(t)
	return Place()
}

// Place waits for a place among the tests that compute. The result gives the place back.
func Place() (done func()) {
	places <- struct{}{}
	return func() { <-places }
}

// WithoutShort skips a test with -short, which is for a quick look, and for the race detector. This is
// for tests of what stands beside Junction (a browser, the go command, an SDK's sign-in), whose requests
// other tests make, too.
func WithoutShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it is about programs beside Junction, and long")
	}
}

// Long skips a test unless JUNCTION_TEST_LONG=1, which .ci/whole sets. It is for what takes a processor for long, or
// the whole machine, beside a shorter test of the same that runs with each change.
func Long(t *testing.T) {
	t.Helper()
	if !IsLong() {
		t.Skip("it is long: set JUNCTION_TEST_LONG=1")
	}
}

// IsLong reports JUNCTION_TEST_LONG=1, with which a test goes through all rows of its table.
func IsLong() bool { return os.Getenv("JUNCTION_TEST_LONG") == "1" }
