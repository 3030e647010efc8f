// Package bench measures the program: calls, lists, memory, and fairness between callers. It has no tests
// that pass or fail by a measured time.
package bench

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, roles()) }
