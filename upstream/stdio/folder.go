package stdio

import (
	"fmt"
	"os"
	"os/exec"

	"junction/upstream/files"
)

// A Folder is the folder of a client for which a process starts.
type Folder struct {
	Path string // absolute, without links
	// Open returns the folder. It fails if the path leads to another folder now. It is called for each
	// start, and the file is closed when the process runs.
	Open func() (*os.File, error)
	// Start makes it the working directory of the process, in place of Options.Dir.
	Start bool
	// ReadOnly keeps a command with a sandbox from changing it.
	ReadOnly bool
}

// open returns the open folder; nil for a nil Folder.
func (f *Folder) open() (*os.File, error) {
	if f == nil {
		return nil, nil
	}
	dir, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("the folder of the client: %w", files.Reason(err))
	}
	return dir, nil
}

// starts reports whether the process starts in the folder.
func (f *Folder) starts() bool { return f != nil && f.Start }

// startIn makes cmd start in the open folder, whatever its path leads to then, if the system can do that.
func startIn(cmd *exec.Cmd, dir *os.File) {
	if byDescriptor == "" {
		return
	}
	// the child changes to it before it executes the program, while it still has the file
	if path := fmt.Sprintf("%s/%d", byDescriptor, dir.Fd()); sameFolder(path, dir) {
		cmd.Dir = path
	}
}

// sameFolder reports whether a path leads to an open folder.
func sameFolder(path string, dir *os.File) bool {
	a, err := os.Stat(path)
	if err != nil { // there is no /proc
		return false
	}
	b, err := dir.Stat()
	return err == nil && os.SameFile(a, b)
}
