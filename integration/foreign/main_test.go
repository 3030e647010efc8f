// Package foreign tests Junction with clients and servers that others wrote, and with the official
// conformance suite. They are npm packages, see ../npm.
package foreign

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) {
	harness.MainWith(m, harness.Programs, map[string]func([]string) error{driverRole: driver})
}
