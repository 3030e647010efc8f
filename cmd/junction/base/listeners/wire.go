package listeners

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the connection below TLS. It bounds what a client can cost that has no key yet: the processor
// time and the memory of a handshake, the memory of an unfinished record, and writes that nobody reads.

const (
	// maxHandshake is the most bytes that a client may send in a handshake. A usual one has 2 KiB.
	maxHandshake = 32 << 10
	// handshakeMemory is what a handshake holds beside these bytes.
	handshakeMemory = 4 << 10
	// recordHeader is the size of the header of a record (RFC 8446, section 5.1).
	recordHeader = 5
	// smallRecord is the size up to which a record is not counted: it fits in the buffer that TLS always has.
	smallRecord = 512
	// lastWrite is how long Close may take to tell the client that the connection ends.
	lastWrite = 2 * time.Millisecond
)

// wire is a connection below TLS.
type wire struct {
	net.Conn
	counted *countedConn
	turns   *turns
	network netip.Addr
	limit   time.Duration // of writes that TLS makes for a Read, such as the answer to an update of keys

	// owned by the goroutine of the handshake
	shaking bool
	has     bool   // it has a turn
	read    int    // bytes of the handshake
	begin   []byte // the first bytes, if they are not those of TLS

	// owned by the readers, of which there is one at a time
	header     []byte // of the current record, as far as it was read
	size, left int    // of the current record, and what is left of it

	ended   chan struct{}
	end     func()
	writing atomic.Int32 // calls of Write of the connection with TLS

	mu         sync.Mutex
	above, own int // bytes that the server holds, and bytes that TLS holds

	deadlines sync.Mutex
	deadline  time.Time // of writes, as the server has set it; guarded by deadlines
	leaving   bool      // guarded by deadlines
}

func newWire(c *countedConn, t *turns, limit time.Duration) *wire {
	w := &wire{Conn: c, counted: c, turns: t, network: network(c.RemoteAddr()), limit: limit, shaking: true,
		ended: make(chan struct{})}
	w.end = sync.OnceFunc(func() { close(w.ended) })
	return w
}

// errEvicted means that the connection was closed to make room for others.
var errEvicted = errors.New("the connection was closed, because unfinished requests take all memory that they may have")

// Read implements net.Conn. In a handshake, the caller computes between two reads, and has a turn for it.
func (w *wire) Read(p []byte) (int, error) {
	if !w.shaking {
		return w.readRecord(p)
	}
	w.rest()
	if w.read >= maxHandshake {
		return 0, errors.New("the handshake has too many bytes")
	}
	n, err := w.Conn.Read(p[:min(len(p), maxHandshake-w.read)])
	if w.read == 0 && n > 0 && p[0] != recordOfHandshake {
		w.begin = bytes.Clone(p[:min(n, 512)])
	}
	w.read += n
	w.follow(p[:n])
	if n > 0 && !w.holdOwn(handshakeMemory+w.read, true) {
		return n, errEvicted
	}
	if err == nil && !w.turns.take(w.network, w.ended) {
		return n, net.ErrClosed
	}
	w.has = err == nil
	return n, err
}

// recordOfHandshake is the first byte of a handshake.
const recordOfHandshake = 22

// rest gives the turn back.
func (w *wire) rest() {
	if w.has {
		w.has = false
		w.turns.give()
	}
}

// established ends the handshake, also one that failed.
func (w *wire) established() error {
	w.rest()
	w.shaking = false
	if !w.holdOwn(0, false) {
		return errEvicted
	}
	return nil
}

// readRecord reads after the handshake. It reports the memory of a large record while the rest of it is awaited.
func (w *wire) readRecord(p []byte) (int, error) {
	if w.left > 0 && w.size > smallRecord && !w.holdOwn(w.size, false) {
		return 0, errEvicted
	}
	n, err := w.Conn.Read(p)
	w.follow(p[:n])
	if w.left == 0 && !w.holdOwn(0, false) {
		return n, errEvicted
	}
	return n, err
}

// follow finds the records in what was read.
func (w *wire) follow(p []byte) {
	for len(p) > 0 {
		if w.left > 0 {
			n := min(w.left, len(p))
			w.left, p = w.left-n, p[n:]
			continue
		}
		n := min(recordHeader-len(w.header), len(p))
		w.header, p = append(w.header, p[:n]...), p[n:]
		if len(w.header) == recordHeader {
			w.size = int(w.header[3])<<8 | int(w.header[4])
			w.left, w.header = w.size, w.header[:0]
		}
	}
}

// Write implements net.Conn. A write that the server has not asked for gets a limit of its own: the deadline
// of the server is that of its last write. A handshake has no turn while it writes.
func (w *wire) Write(p []byte) (int, error) {
	switch {
	case w.writing.Load() > 0:
		return w.Conn.Write(p)
	case w.shaking:
		w.rest()
		n, err := w.Conn.Write(p)
		if err == nil && !w.turns.take(w.network, w.ended) {
			return n, net.ErrClosed
		}
		w.has = err == nil
		return n, err
	}
	var limit time.Time
	if w.limit > 0 {
		limit = time.Now().Add(w.limit)
	}
	w.allow(func() time.Time { return limit })
	n, err := w.Conn.Write(p)
	w.allow(func() time.Time { return w.deadline })
	return n, err
}

// allow sets the deadline of writes, unless the connection is ending. deadlines is held while until runs.
func (w *wire) allow(until func() time.Time) error {
	w.deadlines.Lock()
	defer w.deadlines.Unlock()
	if w.leaving {
		return nil
	}
	return w.Conn.SetWriteDeadline(until())
}

// SetWriteDeadline implements net.Conn. TLS calls it, too, when it closes the connection: in vain then, because
// Close does not wait for the client.
func (w *wire) SetWriteDeadline(t time.Time) error {
	return w.allow(func() time.Time {
		w.deadline = t
		return t
	})
}

// leave ends what waits for the client, so that Close of TLS does not wait.
func (w *wire) leave() {
	w.end()
	w.allow(func() time.Time {
		w.leaving = true
		return time.Now().Add(lastWrite)
	})
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.end()
	return w.Conn.Close()
}

// hold reports n bytes that the server holds (http1.Holder).
func (w *wire) hold(n int, first bool) bool {
	w.mu.Lock()
	w.above = n
	sum := w.above + w.own
	w.mu.Unlock()
	return w.counted.Hold(sum, first)
}

// holdOwn reports n bytes that TLS holds.
func (w *wire) holdOwn(n int, first bool) bool {
	w.mu.Lock()
	if w.own == n {
		w.mu.Unlock()
		return true
	}
	w.own = n
	sum := w.above + w.own
	w.mu.Unlock()
	return w.counted.Hold(sum, first)
}
