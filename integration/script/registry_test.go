//go:build unix

package script

import (
	"encoding/json"
	"net/http/httptest"

	"github.com/rogpeppe/go-internal/testscript"

	"junction/cmd/junction/desk/registry/registrytest"
)

// cmdRegistry is the command registry NAME FILE of the scripts. It serves the API of an MCP registry
// with the servers in FILE, and sets $NAME to its URL.
func cmdRegistry(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 2, "registry NAME FILE")
	var r registrytest.Registry
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &r))
	h := httptest.NewServer(&r)
	ts.Defer(h.Close)
	setenv(ts, args[0], h.URL)
}
