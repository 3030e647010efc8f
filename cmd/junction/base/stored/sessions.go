package stored

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"junction/upstream/bounded"
	"junction/upstream/files"
	"junction/upstream/pace"
)

// This file stores the sessions that clients have deleted, so that they stay deleted after a
// restart. A session id contains the whole sealed session and would otherwise be valid until it
// expires. Each line of the file has a hash of the principal, a hash of the session, and the time until
// which the deletion is remembered, in Unix seconds.

// Sessions appends deleted sessions to a file, in its own goroutine. A nil *Sessions
// stores nothing.
type Sessions struct {
	file string
	max  int // sessions in the file when it is rewritten
	log  *slog.Logger

	mu      sync.Mutex
	waiting *deleted // not yet written
	lines   int      // in the file; owned by run

	once sync.Once     // closes stop
	wake chan struct{} // 1-buffered
	stop chan struct{}
	done chan struct{}
}

// deleted are sessions by the hash of their principal, with the time until which each is remembered.
type deleted = bounded.Shared[[16]byte, [16]byte, time.Time]

// OpenSessions opens the file in dir, the folder of the key that seals session ids. It also returns
// the sessions of the file that have not expired. Without dir the result is nil, since sessions end
// with the process. Unreadable parts of the file are logged and ignored.
func OpenSessions(dir string, max int, log *slog.Logger) (*Sessions, *deleted) {
	if dir == "" {
		return nil, nil
	}
	e := &Sessions{file: filepath.Join(dir, "ended-sessions"), max: max, log: log,
		waiting: &deleted{Max: max}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	known, err := e.read(time.Now())
	if err != nil {
		log.Warn("cannot read all deleted sessions; the others are ignored, and the file is written anew at the next "+
			"deletion", "file", e.file, "error", err)
		e.lines = 2 * max
	}
	go e.run()
	return e, known
}

// Add stores a session of a principal until the given time. It does not block, and drops the oldest
// session of a principal if too many wait to be written.
func (e *Sessions) Add(principal, session [16]byte, until time.Time) {
	e.mu.Lock()
	e.waiting.Put(principal, session, until, nil)
	e.mu.Unlock()
	pace.Wake(e.wake)
}

// Close writes the remaining sessions and waits for that. It may be called more than once.
func (e *Sessions) Close() {
	if e == nil {
		return
	}
	e.once.Do(func() { close(e.stop) })
	<-e.done
}

func (e *Sessions) run() {
	defer close(e.done)
	for stopping := false; !stopping; {
		select {
		case <-e.wake:
		case <-e.stop:
			stopping = true
		}
		e.mu.Lock()
		list := e.waiting
		e.waiting = &deleted{Max: e.max}
		e.mu.Unlock()
		if list.Len() == 0 {
			continue
		}
		if err := e.write(list); err != nil {
			e.log.Warn("cannot keep the deleted sessions; they will work again after a restart", "file", e.file,
				"error", err)
		}
	}
}

// write appends sessions to the file. A file that has grown too long is rewritten without expired
// sessions.
func (e *Sessions) write(list *deleted) error {
	if e.lines+list.Len() <= 2*e.max {
		f, err := os.OpenFile(e.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(sessionsText(list)) // one write, so that lines of two processes do not mix
		e.lines += list.Len()
		return errors.Join(err, f.Close())
	}
	now := time.Now()
	known, _ := e.read(now) // includes the sessions that another process has written
	list.Each(func(principal, session [16]byte, until time.Time) { known.Put(principal, session, until, now.After) })
	if err := files.Write(e.file, []byte(sessionsText(known))); err != nil {
		return err
	}
	e.lines = known.Len()
	return nil
}

// sessionsText returns a line for each session.
func sessionsText(list *deleted) string {
	var b strings.Builder
	list.Each(func(principal, session [16]byte, until time.Time) {
		fmt.Fprintf(&b, "%x %x %d\n", principal, session, until.Unix())
	})
	return b.String()
}

// read returns the sessions of the file that have not expired. An error about invalid lines, or too
// many lines, may come with sessions.
func (e *Sessions) read(now time.Time) (*deleted, error) {
	known := &deleted{Max: e.max}
	f, err := os.Open(e.file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	} else if err != nil {
		return known, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var odd error
	for e.lines = 0; lines.Scan(); {
		if e.lines++; e.lines > 16*e.max {
			return known, fmt.Errorf("it has more than %d lines", 16*e.max)
		}
		var principal, session [16]byte
		fields := strings.Split(lines.Text(), " ")
		if len(fields) != 3 || !unhex(&principal, fields[0]) || !unhex(&session, fields[1]) {
			odd = fmt.Errorf("line %d has no hashes of a principal and a session", e.lines)
			continue
		}
		until, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			odd = fmt.Errorf("line %d has no time", e.lines)
			continue
		}
		if end := time.Unix(until, 0); now.Before(end) {
			known.Put(principal, session, end, nil)
		}
	}
	return known, errors.Join(odd, lines.Err())
}

// unhex decodes a hash, and reports whether the text is one.
func unhex(to *[16]byte, text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && copy(to[:], b) == len(to) && len(b) == len(to)
}
