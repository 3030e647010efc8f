// Package watch tells when files have changed. It watches their folders, since editors and Kubernetes
// replace files.
package watch

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/upstream/pace"
)

// Time for which files must be unchanged before they are read. A file that was replaced in one step
// is complete; Settle is for the other steps of an editor. A file that is written in place may be a
// half until the writer has closed it, which no event tells on every system: hence InPlace.
const (
	Settle  = 100 * time.Millisecond
	InPlace = time.Second
)

// Files watches files. Create it with New, and Close it.
type Files struct {
	// Changed receives once files have changed and were then unchanged for a moment. It also
	// receives soon after New: a file may have changed before it was watched.
	Changed <-chan struct{}

	watcher *fsnotify.Watcher
	folders map[string]bool
	running sync.WaitGroup
}

// New returns Files without any. concerns decides about each event in their folders; waiting means
// that a change was seen, and that Changed has not received yet. It runs on another goroutine.
func New(concerns func(e fsnotify.Event, waiting bool) bool) (*Files, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	f := &Files{Changed: changed, watcher: w, folders: map[string]bool{}}
	f.running.Go(func() {
		quiet, settle, waiting := time.NewTimer(Settle), Settle, true
		defer quiet.Stop()
		for {
			select {
			case e, open := <-w.Events:
				if !open {
					return
				}
				if concerns(e, waiting) {
					if e.Has(fsnotify.Write) {
						settle = InPlace
					}
					quiet.Reset(settle)
					waiting = true
				}
			case _, open := <-w.Errors: // events were lost; the watcher blocks until this is received
				if !open {
					return
				}
				settle, waiting = InPlace, true
				quiet.Reset(settle)
			case <-quiet.C:
				settle, waiting = Settle, false
				pace.Wake(changed)
			}
		}
	})
	return f, nil
}

// Add watches the folder of a file. It must not be called by two goroutines at once.
func (f *Files) Add(file string) error {
	dir := filepath.Dir(file)
	if f.folders[dir] {
		return nil
	}
	err := f.watcher.Add(dir)
	f.folders[dir] = err == nil
	return err
}

// Close ends the watch and waits for its goroutine.
func (f *Files) Close() {
	_ = f.watcher.Close() // which also ends the goroutine
	f.running.Wait()
}
