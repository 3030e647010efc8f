// Package deploy runs the recipes of cmd/junction/deploy with the real reverse proxies, and has
// systemd check the service.
package deploy

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
