package client

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/sandbox"
	"junction/upstream/upstreamtest"
)

// roleEnv makes this test binary the server of a stdio test.
const roleEnv = "JUNCTION_ROLE"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == sandbox.Word:
		os.Exit(sandbox.Main())
	case os.Getenv(roleEnv) != "":
		upstreamtest.RunIfChild()
	default:
		os.Exit(m.Run())
	}
}

// settle lets time pass in a bubble.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
