package folder

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// search is the way to open a folder that is only passed through (O_SEARCH of <sys/fcntl.h>).
const search = 0x40000000

// identityOf returns the identity of an open folder.
func identityOf(fd int) (id identity, err error) {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return id, err
	}
	return identity{device: uint64(info.Dev), file: info.Ino, born: unix.TimespecToNsec(info.Btim),
		use: strconv.FormatUint(uint64(info.Gen), 10)}, nil
}

// sameText reports whether two paths of the same length may be equal: a volume distinguishes case, or it
// does not.
func sameText(a, b string) bool { return strings.EqualFold(a, b) }

// remote reports whether an open file is on a file system of another machine.
func remote(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Flags&unix.MNT_LOCAL == 0
}
