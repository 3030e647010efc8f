package folder

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestGuardRefusesAFolderWithoutARight names folders that the user of Junction may not read, or not reach.
func TestGuardRefusesAFolderWithoutARight(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	closed := mustFolder(t, dir, "closed")
	inside := mustFolder(t, closed, "inside")
	must(t, os.Chmod(closed, 0))
	defer func() { must(t, os.Chmod(closed, 0o700)) }()
	if os.Geteuid() == 0 { // root reads everything, so this thread becomes another user for the file system
		runtime.LockOSThread() // until the end of the test, which ends the thread
		must(t, syscall.Setfsuid(65534))
		defer func() { must(t, syscall.Setfsuid(0)) }()
	}
	g := New(Rules{Within: []string{dir}})
	mustRefuse(t, g, closed, "the user of Junction may not open "+closed)
	mustRefuse(t, g, inside, "the user of Junction may not open "+closed)
}
