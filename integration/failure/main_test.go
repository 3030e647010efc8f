// Package failure tests what Junction does when servers fail, clients exceed limits, and the configuration
// is replaced under load.
package failure

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.MainWith(m, harness.Limits, nil) }
