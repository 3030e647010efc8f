// Package script runs the stories of testdata/script: the program from outside, as its users start,
// stop and configure it.
package script

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"junction/integration/harness"
)

// scriptServerName is the name under which the scripts start scriptServer.
const scriptServerName = "mcp-server"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == scriptServerName {
		os.Exit(scriptServer(os.Args[1:]))
	}
	if code, ran := apart(); ran {
		os.Exit(code)
	}
	if err := upLoopback(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	harness.MainWith(m, harness.Programs, nil)
}
