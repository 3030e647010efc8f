package serve

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/pack/manifest"
	"junction/cmd/watch"
)

// Watch calls changed after a change of a manifest, of a file that one names, or of a skill, until ctx is done.
// files returns the files to watch; it may be called by two goroutines at once.
func Watch(ctx context.Context, path string, files func() []string, changed func(), log *slog.Logger) {
	w, err := watch.New(func(e fsnotify.Event, _ bool) bool {
		return !e.Has(fsnotify.Chmod) && concerns(path, e.Name, files())
	})
	if err != nil {
		log.Warn("changed files are not noticed; restart the pack after a change", "error", err)
		<-ctx.Done()
		return
	}
	defer w.Close()
	for {
		for _, file := range append(files(), filepath.Join(path, "pack.yaml"), path) {
			_ = w.Add(file) // a folder that is missing now may be there after the next change
		}
		select {
		case <-ctx.Done():
			return
		case <-w.Changed:
			changed()
		}
	}
}

// concerns reports whether a change of a file may change the pack. Kubernetes changes links whose
// names begin with two dots.
func concerns(path, name string, files []string) bool {
	base := filepath.Base(name)
	if manifest.IsManifest(base) || strings.HasPrefix(base, "..") || base == manifest.SkillsFolder {
		return true
	}
	if below, ok := manifest.Below(filepath.Join(path, manifest.SkillsFolder), name); ok && below != "." {
		return !strings.HasPrefix(base, ".") // any file of a skill
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
	const what = "pack not reloaded; the last good one stays in force: "
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok {
		log.Error(what + err.Error())
		return
	}
	for _, p := range problems {
		log.Error(what + p.String())
	}
}
