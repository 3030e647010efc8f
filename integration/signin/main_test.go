// Package signin tests authentication: API keys, tokens of other issuers, the built-in authorization server,
// sign-in with real clients and a browser, and users' own accounts at upstreams.
package signin

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.MainWith(m, harness.Programs, nil) }
