package pack

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/pack/manifest"
)

// settle is how long files must be unchanged before they are read. Editors write in several steps.
const settle = 100 * time.Millisecond

// Watch calls changed after a change of a manifest, or of a file that one names, until ctx is done.
// files returns the files to watch; their folders are watched, because editors replace files.
func Watch(ctx context.Context, path string, files func() []string, changed func(), log *slog.Logger) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changed files are not noticed; restart the pack after a change", "error", err)
		<-ctx.Done()
		return
	}
	defer w.Close()
	watched := map[string]bool{}
	watch := func() {
		for _, file := range append(files(), filepath.Join(path, "pack.yaml"), path) {
			if dir := filepath.Dir(file); !watched[dir] && w.Add(dir) == nil {
				watched[dir] = true
			}
		}
	}
	watch()
	quiet := time.NewTimer(settle) // a file may have changed before it was watched
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.Events:
			if !e.Has(fsnotify.Chmod) && concerns(e.Name, files()) {
				quiet.Reset(settle)
			}
		case <-w.Errors: // events were lost
			quiet.Reset(settle)
		case <-quiet.C:
			changed()
			watch()
		}
	}
}

// concerns reports whether a change of a file may change the pack. Kubernetes changes links whose
// names begin with two dots.
func concerns(name string, files []string) bool {
	base := filepath.Base(name)
	if manifest.IsManifest(base) || strings.HasPrefix(base, "..") {
		return true
	}
	for _, f := range files {
		if filepath.Base(f) == base {
			return true
		}
	}
	return false
}

// LogProblems logs why a pack could not be loaded, one line for each mistake.
func LogProblems(log *slog.Logger, err error) {
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok {
		log.Error("pack not reloaded; the last good one stays in force", "error", err)
		return
	}
	for _, p := range problems {
		log.Error("pack not reloaded; the last good one stays in force", "file", p.File, "line", p.Line,
			"key", p.Path, "error", p.Text)
	}
}
