package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"junction/upstream/upstreamtest"
)

// TestMain makes the test binary play every program that the tests start: with JUNCTION_ROLE set,
// or under the name of scriptServer, it is that program and runs no test.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// scriptServerName is the name under which the scripts start scriptServer.
const scriptServerName = "mcp-server"

func testMain(m *testing.M) int {
	upstreamtest.RunIfChild()
	if role := os.Getenv("JUNCTION_ROLE"); role != "" {
		if role == driverRole {
			if err := driver(os.Args[1:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
		if role == sdkSubscriptionsRole {
			if err := sdkSubscriptions(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
		if benchRole(role, os.Args[1:]) {
			return 0
		}
		if err, is := launch(role, os.Args[1:]); is {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprintf(os.Stderr, "JUNCTION_ROLE: there is no role %q\n", role)
		return 2
	}
	if filepath.Base(os.Args[0]) == scriptServerName {
		return scriptServer(os.Args[1:])
	}
	defer os.RemoveAll(buildDir())
	if err := flag.Set("test.parallel", strconv.Itoa(beside)); err != nil { // which what the command line says replaces
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
