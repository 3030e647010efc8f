//go:build !unix

package files

import (
	"io/fs"
	"os"
)

// own does nothing: a new file takes its owner from the folder.
func own(*os.File, fs.FileInfo) error { return nil }

// sharedMode returns false: the permissions of files are access lists there.
func sharedMode(fs.FileInfo) bool { return false }

// readableMode reports no file: the mode does not say who can read it.
func readableMode(fs.FileInfo) bool { return false }

func syncDir(string) error { return nil }
