//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// own gives f the owner of the file that info describes.
func own(f *os.File, info fs.FileInfo) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := info.Sys().(*syscall.Stat_t)
	is, _ := mine.Sys().(*syscall.Stat_t)
	if !ok || want.Uid == is.Uid && want.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return errors.New("belongs to another user or group, which would change; edit it as its owner")
	}
	return nil
}

// syncDir waits until the entries of a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
