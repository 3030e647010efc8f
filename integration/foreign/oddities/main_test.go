// Package oddities has the table of odd servers: what a few lines of script make of a server, what
// three reference clients do with it directly, and what Junction does.
//
//   - testdata has the rows, one file for each kind. table_test.go reads and checks them.
//   - script_test.go decides what a server answers; http_test.go, stdio_test.go and signin_test.go
//     carry it over the wires. The same code serves Junction and the reference clients.
//   - asks_test.go lets a server ask its client during a request.
//   - clients_test.go has the clients of Junction.
//   - oddities_test.go runs Junction over all rows, and compares.
//   - record_test.go runs the reference clients, and writes what they do into the rows.
package oddities

import (
	"testing"

	"junction/integration/harness"
)

func TestMain(m *testing.M) {
	harness.MainWith(m, harness.Programs, map[string]func([]string) error{relayRole: relay})
}
