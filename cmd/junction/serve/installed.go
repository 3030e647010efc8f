package serve

import (
	"os"
	"sync"

	"junction/cmd/build"
)

// installed is the file of this program, which an upgrade replaces while the process runs. Its methods may be
// called concurrently.
type installed struct {
	path    string
	started os.FileInfo // nil if it is not known
	own     string      // the version of this process

	mu      sync.Mutex
	looked  os.FileInfo // the file of other; nil before the first one
	version string
}

// newInstalled notes what the file is at the start of the process.
func newInstalled() *installed {
	i := &installed{own: build.Read().Version}
	if path, err := os.Executable(); err == nil {
		i.path = path
		i.started, _ = os.Stat(path)
	}
	return i
}

// other returns the version of the program that a restart would start; "" if it is this one, or cannot be read.
func (i *installed) other() string {
	now, err := os.Stat(i.path)
	if i.started == nil || err != nil || sameContent(now, i.started) {
		return ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.looked == nil || !sameContent(now, i.looked) {
		i.looked, i.version = now, ""
		if b, err := build.ReadFile(i.path); err == nil {
			if i.version = b.Version; i.version == i.own {
				i.version = "another build of " + i.own
			}
		}
	}
	return i.version
}

// sameContent reports whether a file has not been replaced or written since.
func sameContent(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
