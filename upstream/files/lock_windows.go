package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// tryLock locks a byte of an open file until the file is closed. A file that cannot be locked is no error.
func tryLock(f *os.File, at uint64) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}
	return nil
}

// Lock waits until no other process of this user has locked the folder, which stays readable and
// writable. The caller must call unlock.
//
// Windows has no lock of a folder. A file in the user's folder for temporary files stands for it.
func Lock(folder string) (unlock func()) {
	if full, err := filepath.EvalSymlinks(folder); err == nil {
		folder = full
	}
	if full, err := filepath.Abs(folder); err == nil {
		folder = full
	}
	sum := sha256.Sum256([]byte(strings.ToLower(folder)))
	name := filepath.Join(os.TempDir(), "junction-"+hex.EncodeToString(sum[:12])+".lock")
	unlock, err := LockFile(context.Background(), name)
	if err != nil {
		return func() {}
	}
	return unlock
}
