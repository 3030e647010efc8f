//go:build unix

package signins

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file to who has another one.
func keepOwner(f *os.File, other fs.FileInfo) error {
	s, ok := other.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(s.Uid), int(s.Gid))
}

// syncDir returns when the names in a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
