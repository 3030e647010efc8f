package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSandboxHidesOurEnvironment asks the kernel.
func TestSandboxHidesOurEnvironment(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0)
	HideEnvironment()
	if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); got != 0 || err != nil {
		t.Errorf("the process is dumpable: %d, %v", got, err)
	}
}
