package upstream

import (
	"fmt"
	"os"
	"testing"

	"junction/upstream/sandbox"
	"junction/upstream/upstreamtest"
)

// roles are the programs that this test binary is when a test starts it with roleEnv set.
var roles = map[string]func(){}

const roleEnv = "JUNCTION_ROLE"

// role adds a program; test files call it as: var _ = role("name", func() { … }).
func role(name string, program func()) string {
	roles[name] = program
	return name
}

// The child of the stdio tests is package upstreamtest's server.
var scripted = role("scripted", upstreamtest.RunIfChild)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	name, ok := os.LookupEnv(roleEnv)
	if !ok {
		os.Exit(m.Run())
	}
	program, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: there is no role %q\n", roleEnv, name)
		os.Exit(2)
	}
	program()
}

// Start returns an upstream that connects in the background. Close ends it.
func Start(name string, c Config, o Options) *Upstream {
	o = o.withDefaults()
	return start(name, "", c.resolve(o.Defaults), o, &Catalog{})
}
