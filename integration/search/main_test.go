// Package search tests catalogs that clients search: search_tools, the call tools, and what stays
// of them when policies deny tools or servers come and go.
package search

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
