package manifest_test

import (
	"os"
	"testing"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
)

// TestMain gives the tests the kinds of tools that programs read.
func TestMain(m *testing.M) {
	manifest.SetKinds(pack.ManifestKinds())
	os.Exit(m.Run())
}
