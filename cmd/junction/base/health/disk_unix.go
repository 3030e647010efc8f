//go:build linux || darwin || freebsd

package health

import "syscall"

// freeIn returns the bytes that users can still write to the disk of a folder.
func freeIn(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
