// Package safety tests who may do what: policies, approvals, redaction, hidden names, users apart from each
// other, and the sandbox of child processes.
package safety

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, launchRoles()) }
