package integration

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the test binary play every program that the tests start: with JUNCTION_ROLE set it is that program and runs no test.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if role := os.Getenv("JUNCTION_ROLE"); role != "" {
		if benchRole(role, os.Args[1:]) {
			return 0
		}
		fmt.Fprintf(os.Stderr, "JUNCTION_ROLE: there is no role %q\n", role)
		return 2
	}
	return m.Run()
}
