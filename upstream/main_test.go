package upstream

import (
	"os"
	"testing"

	"junction/upstream/sandbox"
	"junction/upstream/upstreamtest"
)

// TestMain runs the tests, unless the test binary was started as the launcher of the sandbox or as
// a server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	upstreamtest.RunIfChild()
	os.Exit(m.Run())
}

// Start returns an upstream that connects in the background. Close ends it.
func Start(name string, c Config, o Options) *Upstream {
	o = o.withDefaults()
	return start(name, "", c.resolve(o.Defaults), o, &Catalog{})
}
