// Package bridge tests calls from one side to the other: each pair of eras, each transport, server requests,
// progress, cancellation and broken connections.
package bridge

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
