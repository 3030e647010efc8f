package transport

import (
	"fmt"
	"sync"
)

// Memory limits the memory of large responses. Its error ends the request and is in the chain of
// the error of Call.
type Memory interface {
	// Reserve accounts for n more bytes. It is called by the goroutine that has called Call.
	Reserve(n int64) error
}

// Account is the memory that a server takes beside the answers to callers: its handshakes and lists,
// and messages that are being read while it is not known whom they are for. Its methods may be called
// by several goroutines at once.
type Account interface {
	// Reserve accounts for n more bytes, before they are allocated. The error is shown to operators.
	Reserve(n int64) error
	// Release returns n bytes.
	Release(n int64)
}

// MemoryError wraps an error of Memory or Account.
type MemoryError struct{ Err error }

func (e *MemoryError) Error() string { return e.Err.Error() }
func (e *MemoryError) Unwrap() error { return e.Err }

// Uncharged is the memory, in bytes, that a response or a Lease may use without Reserve.
const Uncharged = 64 << 10

// Lease holds memory of an account for one purpose, such as a list of several pages. It implements
// Memory for the requests of that purpose. A nil Lease limits nothing.
type Lease struct {
	account Account // nil limits nothing
	most    int64   // bytes; 0 for no limit of its own
	over    string  // the text of the error beyond most; %s is most

	mu     sync.Mutex
	held   int64 // reserved
	size   int64 // of what Keep was called for
	owners int
}

// NewLease returns an empty lease of the account, which may be nil. The caller must call Release.
func NewLease(account Account) *Lease { return &Lease{account: account, owners: 1} }

// Limit limits the bytes of this lease alone. over is the text of the error, with %s for the limit.
func (l *Lease) Limit(most int64, over string) *Lease {
	l.most, l.over = most, over
	return l
}

// Reserve implements Memory.
func (l *Lease) Reserve(n int64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reserve(n)
}

func (l *Lease) reserve(n int64) error {
	switch {
	case l.owners == 0:
		return ErrClosed
	case l.most > 0 && l.held+n > 2*l.most: // a growing buffer may be twice as large as its content
		return l.tooMuch()
	}
	if l.account != nil {
		if err := l.account.Reserve(n); err != nil {
			return err
		}
	}
	l.held += n
	return nil
}

// Keep accounts for an answer of n bytes that stays in memory, as far as Reserve has not done so.
func (l *Lease) Keep(n int64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size += n; l.most > 0 && l.size > l.most {
		return l.tooMuch()
	}
	if more := l.size - l.held; more > Uncharged {
		if err := l.reserve(more); err != nil {
			return &MemoryError{err}
		}
	}
	return nil
}

func (l *Lease) tooMuch() error {
	return fmt.Errorf("%w: "+l.over, ErrInvalid, FormatSize(l.most))
}

// Share adds an owner, who must call Release, too.
func (l *Lease) Share() *Lease {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners == 0 {
		return nil
	}
	l.owners++
	return l
}

// Release removes an owner. The last one returns the memory.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners == 0 {
		return
	}
	if l.owners--; l.owners == 0 && l.account != nil && l.held > 0 {
		l.account.Release(l.held)
		l.held = 0
	}
}
