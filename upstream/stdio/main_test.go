package stdio

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"junction/upstream/sandbox"
)

// roles are the programs that this test binary is when a test starts it with roleEnv set.
var roles = map[string]func(){}

const roleEnv = "JUNCTION_ROLE"

// role adds a program; test files call it as: var _ = role("name", func() { … }).
func role(name string, program func()) string {
	roles[name] = program
	return name
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	name, ok := os.LookupEnv(roleEnv)
	if !ok {
		// Parallel tests wait for processes. The command line is read later.
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	program, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: there is no role %q\n", roleEnv, name)
		os.Exit(2)
	}
	program()
}
