package harness

import (
	"runtime"
	"testing"
)

// Which tests run at the same time, and why.
//
// Most run alone. Those that have the proxy in this process look, at their end, whether a goroutine
// or a child process is left, and would take what is another test's for it; those about limits of
// time want the machine for themselves. Package testing lets them go first.
//
// Tests that consist of processes of their own, with ports and folders of their own, run beside
// each other after that. They say so in their first line:
//
//	waits(t)              passes its time waiting: until a token expires, or somebody is asked again
//	defer computes(t)()   keeps a processor busy, mostly with Node: few of those run at once, because more would only wait for each other, and what is to happen within
//	                      seconds would not. A test whose subtests compute gives its place back before they begin, since package testing begins them when it returns.
//
// Neither may have the proxy in this process (MustStand, start), use testing.T.Setenv or
// testing.T.Chdir, or listen on a port that another of them does.

// beside is how many run at once, unless -parallel says otherwise: so many that who waits for a
// place among those that compute keeps nobody from beginning to wait.
const beside = 64

// places are for those that compute: two for each processor, since half of their time they wait for
// what they have started.
var places = make(chan struct{}, 2*runtime.NumCPU())

func Waits(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// Computes waits for a place, and returns what gives it back.
func Computes(t *testing.T) (done func()) {
	t.Helper()
	t.Parallel()
	return Place()
}

func Place() (done func()) {
	places <- struct{}{}
	return func() { <-places }
}

// WithoutShort skips a test with -short. CI runs the tests twice: with -short under the race
// detector, and whole without it. This is for tests of what stands beside Junction (a browser, the
// go command, an SDK's sign-in), whose requests other tests make under the race detector.
func WithoutShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it is about programs beside Junction, and long")
	}
}
