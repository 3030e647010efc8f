package main

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"junction/upstream"
)

// TestSafety3OurEnvironmentIsHidden asks the kernel.
func TestSafety3OurEnvironmentIsHidden(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0)
	hideEnvironment()
	if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); got != 0 || err != nil {
		t.Errorf("the process is dumpable: %d, %v", got, err)
	}
}

// TestSafety3VariablesOfTheFileAreReserved: what another entry refers to needs its exact name.
func TestSafety3VariablesOfTheFileAreReserved(t *testing.T) {
	c := mustParse(t, `
upstreams:
  a: { command: [x], inherit_env: all, env: { MINE: "${A_TOKEN}" } }
  b: { command: [x], inherit_env: ["A_*"] }
  c: { url: "https://x.example.com", headers: { X: "${B_TOKEN:-none}" } }
`, map[string]string{"A_TOKEN": "s", "B_TOKEN": "t"})
	for name, want := range map[string][]string{"a": {"B_TOKEN"}, "b": {"A_TOKEN"}, "c": nil} {
		if got := c.Upstreams[name].Reserved; !slices.Equal(got, want) {
			t.Errorf("%s has %q reserved, want %q", name, got, want)
		}
	}
	if got := c.Upstreams["a"].InheritEnv; !slices.Equal(got, upstream.Inherit{"all"}) {
		t.Errorf("all is read as %q", got)
	}
}
