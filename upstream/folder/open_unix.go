//go:build unix

package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFolder opens a folder, one part of its absolute path after another, and follows no link.
func openFolder(path string) (o opened, err error) {
	fd, err := unix.Open("/", search|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return opened{}, err
	}
	defer func() { unix.Close(fd) }()
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return opened{}, err
	}
	o.path = []node{{uint64(info.Dev), info.Ino}}
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		at = filepath.Join(at, name)
		next, err := openat(fd, name, search)
		if err != nil {
			return opened{}, explain(fd, name, at, err)
		}
		unix.Close(fd)
		fd = next
		before := info.Dev
		if err := unix.Fstat(fd, &info); err != nil {
			return opened{}, err
		}
		if info.Dev != before && remote(fd) {
			return opened{}, fmt.Errorf("%s is a file system of another machine", plain(at))
		}
		o.path = append(o.path, node{uint64(info.Dev), info.Ino})
	}
	dir, err := openat(fd, ".", unix.O_RDONLY)
	if err != nil {
		return opened{}, explain(fd, ".", at, err)
	}
	if o.id, err = identityOf(dir); err != nil {
		unix.Close(dir)
		return opened{}, err
	}
	o.dir = os.NewFile(uintptr(dir), path)
	return o, nil
}

func openat(fd int, name string, flags int) (next int, err error) {
	for {
		next, err = unix.Openat(fd, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return next, err
		}
	}
}

// explain returns the reason of an error for a part of a path.
func explain(fd int, name, at string, err error) error {
	at = plain(at)
	var info unix.Stat_t
	if unix.Fstatat(fd, name, &info, unix.AT_SYMLINK_NOFOLLOW) == nil {
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			return fmt.Errorf("%s is a link, which is not followed; name the folder to which it leads", at)
		case unix.S_IFDIR:
		default:
			return fmt.Errorf("%s is a file; name a folder", at)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", at)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the user of Junction may not open %s", at)
	}
	return fmt.Errorf("%s cannot be opened: %w", at, err)
}

func nodeOfInfo(_ string, info fs.FileInfo) (node, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return node{}, false
	}
	return node{uint64(stat.Dev), stat.Ino}, true
}
