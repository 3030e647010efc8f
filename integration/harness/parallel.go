package harness

import (
	"os"
	"runtime"
	"testing"
)

// Which tests of a package run at the same time, and why.
//
// Most run alone. A test with the proxy in its own process looks at its end for goroutines and child
// processes that are left. Those of another test would fail it. A test of a time limit needs the
// processors. Package testing runs all these tests first.
//
// Tests that consist of processes of their own, with ports and folders of their own, run beside each
// other after that. They begin with one of two calls:
//
//   - Waits(t): the test spends its time waiting, such as for a token to expire.
//   - defer Computes(t)(): the test keeps a processor busy, mostly with Node. Only a few of them run
//     at once. More would delay each other, and exceed limits of some seconds. If its subtests
//     compute, the test gives its place back before they begin, because package testing begins
//     parallel subtests when the test returns.
//
// Neither may have the proxy in this process (MustStand, Start), use testing.T.Setenv or
// testing.T.Chdir, or listen on a port that another of them does.
//
// The go command runs the tests of several packages at the same time, each package in a process of
// its own. Nothing here may therefore depend on a fixed port, or on a folder outside of
// testing.T.TempDir, BuildDir and the folder npm, which is installed under a lock.

// beside is how many tests run at once, unless -parallel sets another number. It is large, so that
// tests that wait for a place in Computes do not delay tests that only wait.
const beside = 64

// places limits the tests that compute to two for each processor: half of their time they wait for
// the programs that they have started.
var places = make(chan struct{}, 2*runtime.NumCPU())

// Waits runs the test beside others. The test spends its time waiting.
func Waits(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// Computes runs the test beside others when there is a place for it. The result gives the place
// back.
func Computes(t *testing.T) (done func()) {
	t.Helper()
	t.Parallel()
	return Place()
}

// Place waits for a place among the tests that compute. The result gives the place back.
func Place() (done func()) {
	places <- struct{}{}
	return func() { <-places }
}

// WithoutShort skips a test with -short. CI runs all tests with -short under the race detector, and
// then those without it that -short skips or shortens. This is for tests of what stands beside
// Junction (a browser, the go command, an SDK's sign-in), whose requests other tests make under the
// race detector.
func WithoutShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it is about programs beside Junction, and long")
	}
}

// Need skips the test where the machine lacks something, or fails it where it must not:
// JUNCTION_REQUIRE_NODE=1 says that Node and all else is there.
func Need(t testing.TB, lacking error) {
	t.Helper()
	switch {
	case lacking == nil:
	case os.Getenv("JUNCTION_REQUIRE_NODE") == "1":
		t.Fatal(lacking)
	default:
		t.Skip(lacking)
	}
}

// Short reports whether -short is set, and marks the test as one that does less then: CI runs it
// again without -short.
func Short(t testing.TB) bool {
	if testing.Short() {
		t.Attr("short", "true")
	}
	return testing.Short()
}
