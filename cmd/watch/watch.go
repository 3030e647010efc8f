// Package watch tells when files have changed. It watches their folders, since editors and Kubernetes
// replace files. It also looks at the files from time to time: the kernel reports no changes that
// another machine makes in a network folder, or that the host makes in a folder of a container.
package watch

import (
	"os"
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

// look is the time between two looks at the files.
const look = 10 * time.Second

// Files watches files. Create it with New, and Close it.
type Files struct {
	// Changed receives once files have changed and were then unchanged for a moment. It also
	// receives soon after New: a file may have changed before it was watched.
	Changed <-chan struct{}

	watcher *fsnotify.Watcher
	folders map[string]bool
	running sync.WaitGroup

	mu     sync.Mutex
	stamps map[string]stamp // by file; guarded by mu
}

// stamp tells two contents of a file apart. It is zero for a missing file, and for a folder, whose
// stamp changes with files that do not concern us.
type stamp struct {
	changed time.Time
	size    int64
}

func stampOf(file string) stamp {
	i, err := os.Stat(file)
	if err != nil || !i.Mode().IsRegular() {
		return stamp{}
	}
	return stamp{i.ModTime(), i.Size()}
}

// New returns Files without any. concerns decides about each event in their folders; waiting means
// that a change was seen, and that Changed has not received yet. It runs on another goroutine.
func New(concerns func(e fsnotify.Event, waiting bool) bool) (*Files, error) {
	return start(concerns, look)
}

func start(concerns func(e fsnotify.Event, waiting bool) bool, every time.Duration) (*Files, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{}, 1)
	f := &Files{Changed: changed, watcher: w, folders: map[string]bool{}, stamps: map[string]stamp{}}
	f.running.Go(func() {
		quiet, settle, waiting := time.NewTimer(Settle), Settle, true
		looked := false // a look has found the change, and not an event
		defer quiet.Stop()
		looks := time.NewTicker(every)
		defer looks.Stop()
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
			case <-looks.C:
				if f.differ() {
					settle, waiting, looked = InPlace, true, true
					quiet.Reset(settle)
				}
			case <-quiet.C:
				if f.differ() && looked { // its writer goes on, and no event tells it
					quiet.Reset(settle)
					continue
				}
				settle, waiting, looked = Settle, false, false
				pace.Wake(changed)
			}
		}
	})
	return f, nil
}

// differ reports whether a file has changed since the last call.
func (f *Files) differ() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	differ := false
	for file, before := range f.stamps {
		if now := stampOf(file); now != before {
			f.stamps[file], differ = now, true
		}
	}
	return differ
}

// Add watches a file and its folder. It must not be called by two goroutines at once.
func (f *Files) Add(file string) error {
	f.mu.Lock()
	if _, there := f.stamps[file]; !there {
		f.stamps[file] = stampOf(file)
	}
	f.mu.Unlock()
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
