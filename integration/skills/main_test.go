// Package skills tests the extension for skills (SEP-2640): the list, the files and their digests, and
// what policies hide.
package skills

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
