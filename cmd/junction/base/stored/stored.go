// Package stored keeps across restarts what a process without a database would forget: the last
// catalog of each upstream (a Dir), and which sessions clients have deleted (sessions.go).
//
// A Dir keeps encrypted texts in the files of one folder. A text belongs to an entry of the
// configuration and to a user; the user "" stands for all users. A file that was truncated, edited,
// moved, or sealed with another key is logged and ignored. A goroutine of the Dir writes the files, at
// most every ten seconds for each key.
package stored

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth/seal"
	"junction/upstream/files"
	"junction/upstream/pace"
)

// key identifies a text.
type key struct{ entry, user string }

// Limits of a folder.
const (
	maxText  = 32 << 20 // maximum bytes of one text; larger texts are not stored
	maxFiles = 1000     // if there are more, the oldest ones are removed
	pause    = 10 * time.Second
	suffix   = ".sealed"
)

// everyone is the end of the names of files that belong to all users.
var everyone = "-" + digest("") + suffix

// Dir is a folder of sealed texts. Its methods may be called concurrently.
type Dir struct {
	path string
	box  *seal.Box
	log  *slog.Logger

	mu      sync.Mutex
	pending map[key]func() []byte // not written yet; a nil function deletes the file
	writing map[key]func() []byte // taken from pending, until they are written; never modified
	written map[key]time.Time     // when a key was last written
	wake    chan struct{}         // 1-buffered
	end     sync.Once             // closes stop
	stop    chan struct{}
	done    chan struct{}
}

// Open opens the folder, and creates it, for its owner only, if it does not exist. The caller must
// call Close.
func Open(path string, master *seal.Key, log *slog.Logger) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	d := &Dir{path: path, box: master.Box("catalog"), log: log, pending: map[key]func() []byte{},
		written: map[key]time.Time{}, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{})}
	go d.run()
	return d, nil
}

// Load returns the text that was saved for an entry and a user. It returns nil if there is no
// readable one.
func (d *Dir) Load(entry, user string) []byte {
	k := key{entry, user}
	d.mu.Lock()
	newer, pending := d.pending[k]
	if !pending {
		newer, pending = d.writing[k]
	}
	d.mu.Unlock()
	switch {
	case pending && newer == nil:
		return nil
	case pending:
		return newer()
	}
	text, err := os.ReadFile(d.file(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		text, err = d.open(k, text)
	}
	if err != nil {
		d.log.Warn("a stored catalog is ignored", "file", d.file(k), "error", err)
		return nil
	}
	return text
}

var errForeign = errors.New("the file was written with another key, or was changed")

// open decrypts a text. The text begins with the hash of its key, so that a renamed file is
// rejected.
func (d *Dir) open(k key, text []byte) ([]byte, error) {
	plain, err := d.box.Open(string(text))
	if err != nil {
		return nil, errForeign
	}
	id := k.id()
	rest, ok := bytes.CutPrefix(plain, id[:])
	if !ok {
		return nil, errForeign
	}
	return rest, nil
}

// Save stores a text; text is called later, on another goroutine. Save does not block. The last
// text for the same entry and user wins.
func (d *Dir) Save(entry, user string, text func() []byte) {
	d.mu.Lock()
	d.pending[key{entry, user}] = text
	d.mu.Unlock()
	pace.Wake(d.wake)
}

// Delete removes a text. It does not block.
func (d *Dir) Delete(entry, user string) { d.Save(entry, user, nil) }

// Keep removes the files of all other entries, and the oldest files above the limit.
func (d *Dir) Keep(entries []string) {
	list, err := os.ReadDir(d.path)
	if err != nil {
		d.log.Warn("stored catalogs are not cleaned up", "error", err)
		return
	}
	keep := map[string]bool{}
	for _, entry := range entries {
		keep[digest(entry)] = true
	}
	type file struct {
		name string
		at   time.Time
	}
	var kept []file
	for _, f := range list {
		entry, _, ok := strings.Cut(f.Name(), "-")
		switch info, err := f.Info(); {
		case !strings.HasSuffix(f.Name(), suffix):
			// from a process that was killed
			if strings.HasPrefix(f.Name(), files.Temporary) && err == nil && time.Since(info.ModTime()) > time.Hour {
				d.remove(f.Name())
			}
		case !ok || !keep[entry]:
			d.remove(f.Name())
		// files of users can be created again
		case err == nil && !strings.HasSuffix(f.Name(), everyone):
			kept = append(kept, file{f.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(kept, func(a, b file) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for len(kept) > maxFiles {
		d.remove(kept[0].name)
		kept = kept[1:]
	}
}

func (d *Dir) remove(name string) {
	if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a stored catalog cannot be removed", "error", err)
	}
}

// Close writes the pending texts. It may be called again.
func (d *Dir) Close() {
	d.end.Do(func() { close(d.stop) })
	<-d.done
}

// run writes pending texts until Close.
func (d *Dir) run() {
	defer close(d.done)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-d.wake:
		case <-timer.C:
		case <-d.stop:
			d.write(true)
			return
		}
		timer.Reset(d.write(false))
	}
}

// write writes the pending texts that are due, or all of them. It returns the time until the next
// one is due.
func (d *Dir) write(all bool) time.Duration {
	d.mu.Lock()
	now, next := time.Now(), time.Hour
	due := map[key]func() []byte{}
	for k, text := range d.pending {
		if wait := d.written[k].Add(pause).Sub(now); !all && wait > 0 && text != nil {
			next = min(next, wait)
			continue
		}
		due[k] = text
		d.written[k] = now
		delete(d.pending, k)
	}
	d.writing = due
	for k, at := range d.written {
		if now.Sub(at) > pause {
			delete(d.written, k)
		}
	}
	d.mu.Unlock()
	for k, text := range due {
		if err := d.put(k, text); err != nil {
			d.log.Warn("a catalog cannot be stored", "file", d.file(k), "error", err)
			d.again(k, text)
		}
	}
	d.mu.Lock()
	d.writing = nil
	d.mu.Unlock()
	return next
}

// again queues a text that could not be written, unless there is a newer one.
func (d *Dir) again(k key, text func() []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, newer := d.pending[k]; !newer {
		d.pending[k] = text
	}
}

// put writes one text. The file is created atomically.
func (d *Dir) put(k key, text func() []byte) error {
	id := k.id()
	var plain []byte
	if text != nil {
		plain = append(id[:], text()...)
	}
	if text == nil || len(plain) > maxText {
		if err := os.Remove(d.file(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return files.Write(d.file(k), []byte(d.box.Seal(plain)))
}

func (d *Dir) file(k key) string {
	return filepath.Join(d.path, digest(k.entry)+"-"+digest(k.user)+suffix)
}

// id returns a unique identifier of the key.
func (k key) id() [32]byte {
	return sha256.Sum256([]byte(digest(k.entry) + digest(k.user)))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}
