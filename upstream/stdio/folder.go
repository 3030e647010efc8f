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
	// Others are further folders of the client, which a command with a sandbox may use like this one. Only their
	// Path and Open count.
	Others []*Folder
	// Start makes it the working directory of the process, in place of Options.Dir.
	Start bool
	// ReadOnly keeps a command with a sandbox from changing it.
	ReadOnly bool
}

// open returns the open folder, and with others those of Others; none for a nil Folder.
func (f *Folder) open(others bool) (dirs []*os.File, err error) {
	if f == nil {
		return nil, nil
	}
	all := []*Folder{f}
	if others {
		all = append(all, f.Others...)
	}
	for _, one := range all {
		dir, err := one.Open()
		if err != nil {
			closeFiles(dirs)
			return nil, fmt.Errorf("the folder of the client: %w", files.Reason(err))
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// paths returns the path of the folder, and those of Others; none for a nil Folder.
func (f *Folder) paths() (list []string) {
	if f == nil {
		return nil
	}
	list = append(list, f.Path)
	for _, other := range f.Others {
		list = append(list, other.Path)
	}
	return list
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
