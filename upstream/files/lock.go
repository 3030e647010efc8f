package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// lockPoll is how often a lock of another process is tried again. The systems have no wait for a lock
// that a context can end.
const lockPoll = 50 * time.Millisecond

// farAway is where TryLock locks a byte, because Windows keeps others from reading a byte that is locked.
const farAway = 1 << 62

// errLocked means that another process has the lock.
var errLocked = errors.New("another process has locked it")

// TryLock locks an open file for this process until the file is closed. It does not keep others from
// reading and writing. It returns an error if another open file has the lock. A file system without
// locks gives no protection.
func TryLock(f *os.File) error { return tryLock(f, farAway) }

// LockFile waits until no other process has locked the file name, which it creates if it is missing.
// The file is empty and stays. The lock ends with its process, and has no time limit. A file system
// without locks gives no protection. The caller must call unlock.
func LockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for errors.Is(tryLock(f, 0), errLocked) {
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another process has locked %s: %w", name, context.Cause(ctx))
		}
	}
	return func() { f.Close() }, nil // ends the lock
}
