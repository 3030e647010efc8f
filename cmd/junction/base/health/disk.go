package health

import (
	"fmt"
	"path/filepath"
)

// leastFree is the free space below which a disk counts as full. The database needs some for its log.
const leastFree = 16 << 20

// A File is a file that Junction writes, with the key of the configuration that names it.
type File struct{ Key, Path string }

// CheckDisk returns an error if a file is on a full disk. On systems that do not tell, it returns nil.
func CheckDisk(files []File) error {
	return checkDisk(files, freeIn)
}

func checkDisk(files []File, free func(dir string) (int64, error)) error {
	for _, f := range files {
		dir := filepath.Dir(f.Path)
		if n, err := free(dir); err == nil && n < leastFree {
			return fmt.Errorf("the disk of %s (%s) is full: less than %d MiB are free; remove files, or give it more "+
				"space", dir, f.Key, leastFree>>20)
		}
	}
	return nil
}
