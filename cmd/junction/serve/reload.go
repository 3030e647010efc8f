package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/junction/base/config"
	"junction/cmd/watch"
	"junction/proxy"
	"junction/proxy/pins"
	"junction/upstream/prose"
)

// reloadLoop reloads the file after a change and on SIGHUP, which hup receives. A file with mistakes is
// logged and otherwise ignored. It runs in one goroutine until ctx ends.
func (p *program) reloadLoop(ctx context.Context, hup <-chan os.Signal) error {
	if p.file == "" {
		return nil
	}
	// Writes to other files in the folder, such as a log, must not delay the reload. Other events of
	// theirs may concern the target of our file, if it is a symbolic link.
	file, pins := filepath.Base(p.file), filepath.Base(p.config.Pins)
	var changed <-chan struct{}
	files, err := watch.New(func(e fsnotify.Event, waiting bool) bool {
		base := filepath.Base(e.Name)
		return base == file || base == pins || !waiting && !e.Has(fsnotify.Write) && !e.Has(fsnotify.Chmod)
	})
	if err == nil {
		defer files.Close()
		if err = files.Add(p.file); err == nil {
			changed = files.Changed
		}
		if p.config.Pins != "" {
			if err := files.Add(p.config.Pins); err != nil {
				p.log.Warn("changed pins are noticed on SIGHUP only", "error", err)
			}
		}
	}
	if err != nil {
		p.log.Warn("a changed configuration is noticed on SIGHUP only", "error", err)
		p.reload(false) // the file may have changed since it was loaded
		p.repin()
	}
	// A missing file is probably being replaced, and an unfinished one written. It counts if it stays so.
	again, settled := time.NewTimer(unfinishedFor), time.NewTimer(0)
	defer again.Stop()
	defer settled.Stop()
	settled.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			p.recording.audit.Reopen()
			settled.Reset(settlesIn(p.file))
			continue
		case <-settled.C:
			if left := settlesIn(p.file); left > 0 {
				settled.Reset(left)
				continue
			}
			asked = true
		case <-changed:
		case <-again.C:
			if hash, err := config.Checksum(p.file); err == nil && hash != p.unfinished {
				continue // a change follows
			}
			asked = true
		}
		if p.reload(asked) {
			again.Stop()
		} else {
			again.Reset(unfinishedFor)
		}
		p.repin()
	}
}

// unfinishedFor is how long the configuration file may be missing, or have no end, before it counts.
const unfinishedFor = 2 * time.Second

// settlesIn returns how much longer a file must stay the same before it is read on SIGHUP: it may be
// written in place. A file that was written in the future does not wait.
func settlesIn(file string) time.Duration {
	info, err := os.Stat(file)
	if err != nil || time.Since(info.ModTime()) < 0 {
		return 0
	}
	return max(0, watch.InPlace-time.Since(info.ModTime()))
}

// reload reads the file and puts it in force. Every step that can fail comes before the first
// change. asked is set for SIGHUP: then an unchanged file is reloaded too, a missing one is
// reported, and one without an end counts. It returns false if the file is missing or unfinished,
// and that was not reported: a half of a file can be valid, and lack the deny rules of the other half.
func (p *program) reload(asked bool) (done bool) {
	hash, ends, err := config.Look(p.file)
	p.unfinished = hash
	if err != nil {
		if asked {
			p.notReloaded(err, "")
			p.unreadable = true
		}
		return asked
	}
	if hash == p.hash && !asked && !p.unreadable {
		return true
	}
	if !ends && !asked {
		return false
	}
	p.unreadable = false
	c, warnings, err := config.LoadServing(p.file, p.getenv, true)
	if now, again := config.Checksum(p.file); again != nil || now != hash { // it is being written
		p.unfinished = now
		return false
	}
	p.supervisor.Reloading()
	defer p.tellReady()
	p.hash = hash
	defer p.loadedHash.Store(&hash) // last, when reloadError is up to date
	detail := ""                    // for /readyz, where the log has one line for each mistake
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, problem := range problems {
			p.log.Error("configuration: "+problem.Text, "file", problem.File, "line", problem.Line, "key", problem.Path)
		}
		err = errors.New(prose.Count(len(problems), "mistake"))
		detail = mistakesOf(problems)
	}
	if err != nil {
		p.notReloaded(err, detail)
		return true
	}
	change := p.follow(c)
	if p.warn(warnings); change.Refused == nil {
		p.warnings.Store(&warnings)
	}
	p.apply(change.Config)
	if p.members != nil {
		if err := p.members.Reload(change.Config.Shared); err != nil {
			p.log.Error("cannot compare the configuration with that of the other replicas", "error", err)
		}
	}
	p.reloaded(&change, fingerprint(p.file, hash))
	return true
}

// follow opens what a configuration needs, and returns what takes effect of it. If something cannot
// be opened, the reload is refused in part.
func (p *program) follow(next *config.Config) config.Change {
	next.Listen = cmp.Or(p.listen, next.Listen)
	change := p.config.Follow(next)
	var err error
	if change.Refused == nil {
		// only --listen can fail here: Load has checked the file
		if problem := next.ListenProblem(next.Listen, false, false); problem != "" {
			err = fmt.Errorf("--listen %s: %s", next.Listen, problem)
		}
		if err = cmp.Or(err, p.openVault(next)); err == nil {
			var audit prepared
			if audit, err = p.recording.Prepare(next); err == nil {
				audit.commit()
			}
		}
	}
	if err != nil {
		change.Refuse(err)
	}
	return change
}

// repin reloads the pins if their file has changed. A broken file is logged and otherwise ignored.
// Only reloadLoop calls it.
func (p *program) repin() {
	if p.config.Pins == "" {
		return
	}
	pins, err := pins.Load(p.config.Pins, config.Named(p.file))
	if err != nil {
		p.log.Error("pins not reloaded; the last good ones stay in force", "error", err)
		return
	}
	if p.pins != nil && bytes.Equal(pins.Text(), p.pins.Text()) && pins.Exist() == p.pins.Exist() {
		return
	}
	p.pins = pins
	p.apply(p.config)
	p.log.Info("pins reloaded", "pins", p.config.Pins)
	p.recording.event("pins_reloaded", p.config.Pins, proxy.OK)
}
