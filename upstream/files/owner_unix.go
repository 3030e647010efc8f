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
	created, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := info.Sys().(*syscall.Stat_t)
	is, _ := created.Sys().(*syscall.Stat_t)
	if !ok || want.Uid == is.Uid && want.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return errors.New("belongs to another user or group, which would change; edit it as its owner")
	}
	return nil
}

// sharedMode reports whether other users can write a file or a folder. The private group of a user, which
// has the number of the user, and the group of root count as their user. In a folder with the sticky bit,
// other users can replace no file.
func sharedMode(info fs.FileInfo) bool {
	mode := info.Mode()
	if mode.IsDir() && mode&fs.ModeSticky != 0 {
		return false
	}
	group := false
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		group = stat.Gid != 0 && stat.Gid != stat.Uid
	}
	return mode.Perm()&0o002 != 0 || mode.Perm()&0o020 != 0 && group
}

// readableMode reports whether other users can read a file, with the groups of sharedMode.
func readableMode(info fs.FileInfo) bool {
	group := false
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		group = stat.Gid != 0 && stat.Gid != stat.Uid
	}
	return info.Mode().Perm()&0o004 != 0 || info.Mode().Perm()&0o040 != 0 && group
}

// syncDir waits until the entries of a folder are on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
