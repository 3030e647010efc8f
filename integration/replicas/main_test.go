// Package replicas runs several members: proxies of one process, whose failures a test can time, and
// processes of the program over Postgres, behind nginx.
package replicas

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
