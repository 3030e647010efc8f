//go:build unix

package files

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks an open file until it is closed. A file that cannot be locked is no error.
func tryLock(f *os.File, _ uint64) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return nil
		}
	}
}

// Lock waits until no other process has locked the folder, which stays readable and writable. A file
// system without locks (flock) gives no protection. The caller must call unlock.
func Lock(folder string) (unlock func()) {
	f, err := os.Open(folder)
	if err != nil {
		return func() {}
	}
	for errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX), syscall.EINTR) {
	}
	return func() { f.Close() } // ends the lock
}
