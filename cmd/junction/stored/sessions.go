package stored

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"junction/upstream/files"
	"junction/upstream/pace"
)

// This file stores the sessions that clients have deleted, so that they stay deleted after a
// restart. A session id contains the whole sealed session and would otherwise be valid until it
// expires. The file has only hashes.

// Sessions appends deleted sessions to a file, in its own goroutine. A nil *Sessions
// stores nothing.
type Sessions struct {
	file string
	max  int // sessions in the file when it is rewritten
	log  *slog.Logger

	mu      sync.Mutex
	waiting map[[16]byte]time.Time // not yet written; at most max
	lines   int                    // in the file; owned by run

	once sync.Once     // closes stop
	wake chan struct{} // 1-buffered
	stop chan struct{}
	done chan struct{}
}

// OpenSessions opens the file in dir, the folder of the key that seals session ids. It also returns
// the sessions of the file that have not expired. Without dir the result is nil, since sessions end
// with the process. Unreadable parts of the file are logged and ignored.
func OpenSessions(dir string, max int, log *slog.Logger) (*Sessions, map[[16]byte]time.Time) {
	if dir == "" {
		return nil, nil
	}
	e := &Sessions{file: filepath.Join(dir, "ended-sessions"), max: max, log: log,
		waiting: map[[16]byte]time.Time{},
		wake:    make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	known, err := e.read(time.Now())
	if err != nil {
		log.Warn("cannot read all deleted sessions; the others are ignored, and the file is written anew at the next "+
			"deletion", "file", e.file, "error", err)
		e.lines = 2 * max
	}
	go e.run()
	return e, known
}

// Add stores a session until the given time. It does not block, and drops the session if max
// sessions wait to be written.
func (e *Sessions) Add(hash [16]byte, until time.Time) {
	e.mu.Lock()
	if len(e.waiting) < e.max {
		e.waiting[hash] = until
	}
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
		e.waiting = map[[16]byte]time.Time{}
		e.mu.Unlock()
		if len(list) == 0 {
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
func (e *Sessions) write(list map[[16]byte]time.Time) error {
	if e.lines+len(list) <= 2*e.max {
		f, err := os.OpenFile(e.file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(sessionsText(list)) // one write, so that lines of two processes do not mix
		e.lines += len(list)
		return errors.Join(err, f.Close())
	}
	known, _ := e.read(time.Now()) // includes the sessions that another process has written
	if known == nil {
		known = map[[16]byte]time.Time{}
	}
	maps.Copy(known, list)
	for hash := range known {
		if len(known) <= e.max {
			break
		}
		if _, latest := list[hash]; !latest {
			delete(known, hash)
		}
	}
	if err := files.Write(e.file, []byte(sessionsText(known))); err != nil {
		return err
	}
	e.lines = len(known)
	return nil
}

// sessionsText returns a line for each session: its hash and its expiry in Unix seconds.
func sessionsText(list map[[16]byte]time.Time) string {
	var b strings.Builder
	for hash, until := range list {
		fmt.Fprintf(&b, "%x %d\n", hash, until.Unix())
	}
	return b.String()
}

// read returns the sessions of the file that have not expired. An error about invalid lines, or too
// many lines, may come with sessions.
func (e *Sessions) read(now time.Time) (map[[16]byte]time.Time, error) {
	f, err := os.Open(e.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	known, lines := map[[16]byte]time.Time{}, bufio.NewScanner(f)
	var odd error
	for e.lines = 0; lines.Scan(); {
		if e.lines++; e.lines > 16*e.max {
			return known, fmt.Errorf("it has more than %d lines", 16*e.max)
		}
		name, at, _ := strings.Cut(lines.Text(), " ")
		hash, err := hex.DecodeString(name)
		until, bad := strconv.ParseInt(at, 10, 64)
		if err != nil || bad != nil || len(hash) != 16 {
			odd = fmt.Errorf("line %d is not the hash of a session and a time", e.lines)
			continue
		}
		if end := time.Unix(until, 0); now.Before(end) && len(known) < e.max {
			known[[16]byte(hash)] = end
		}
	}
	return known, errors.Join(odd, lines.Err())
}
