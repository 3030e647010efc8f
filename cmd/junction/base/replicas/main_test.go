package replicas

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain runs several tests at once: most of their time, they wait for the end of a lease. The command
// line is read later, so that -parallel replaces this value.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
