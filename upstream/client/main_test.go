package client

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

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

// settle lets time pass in a bubble.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
