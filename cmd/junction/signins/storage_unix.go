//go:build unix

package signins

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of another file.
func keepOwner(f *os.File, other fs.FileInfo) error {
	s, ok := other.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(s.Uid), int(s.Gid))
}

// syncDir returns once the entries of a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
