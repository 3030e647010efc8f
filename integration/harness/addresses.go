package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// DefaultAddresses locks the addresses at which Junction listens by default, among all test binaries
// of this machine's user. A test that listens there takes them; others expect that no Junction listens
// there, and may run at the same time. Call the result at the end of the use.
func DefaultAddresses(t testing.TB, takes bool) (unlock func()) {
	t.Helper()
	name, mode := filepath.Join(temp(), fmt.Sprintf("junction-test-addresses-%d", os.Getuid())), os.O_RDONLY|os.O_CREATE
	if takes {
		mode = os.O_RDWR | os.O_CREATE
	}
	f, err := lockedfile.OpenFile(name, mode, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}
