package serve

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/junction/base/config"
	"junction/cmd/watch"
	"junction/proxy"
)

// reloadLoop reloads the file after a change and on SIGHUP, which hup receives. A file with
// mistakes is logged and otherwise ignored. It runs in one goroutine until ctx ends.
func (p *program) reloadLoop(ctx context.Context, hup <-chan os.Signal) error {
	if p.file == "" {
		return nil
	}
	// Writes to other files in the folder, such as a log, must not delay the reload. Other events
	// of theirs may concern the target of our file, if it is a symbolic link.
	file, pins := filepath.Base(p.file), filepath.Base(p.inForce.config.Pins)
	var changed <-chan struct{}
	var inputs atomic.Pointer[map[string]bool] // the names of other files; the function runs elsewhere
	inputs.Store(&map[string]bool{})
	files, err := watch.New(func(e fsnotify.Event, waiting bool) bool {
		base := filepath.Base(e.Name)
		return base == file || base == pins || (*inputs.Load())[base] ||
			!waiting && !e.Has(fsnotify.Write) && !e.Has(fsnotify.Chmod)
	})
	if err == nil {
		defer files.Close()
		if err = files.Add(p.file); err == nil {
			changed = files.Changed
		}
		if p.inForce.config.Pins != "" {
			if err := files.Add(p.inForce.config.Pins); err != nil {
				p.log.Warn("changed pins are noticed on SIGHUP only", "error", err)
			}
		}
	}
	if err != nil {
		p.log.Warn("a changed configuration is noticed on SIGHUP only", "error", err)
		p.reload(false) // the file may have changed since it was loaded
		p.repin()
	}
	watchInputs := func() {
		names := map[string]bool{}
		for input := range p.contents.inputs {
			if names[filepath.Base(input)] = true; changed == nil {
				continue
			}
			if err := files.Add(input); err != nil {
				p.log.Debug("a changed file of a reference is noticed on SIGHUP only", "file", input, "error", err)
			}
		}
		inputs.Store(&names)
	}
	watchInputs()
	// A missing file is probably being replaced, and an unfinished one written. It counts if it
	// stays so.
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
		case <-p.contents.programs.Changed:
		case <-again.C:
			if hash, err := config.Checksum(p.file); err == nil && hash != p.contents.unfinished {
				continue // a change follows
			}
			asked = true
		}
		done := p.reload(asked)
		watchInputs()
		if done {
			again.Stop()
		} else {
			again.Reset(unfinishedFor)
		}
		p.repin()
	}
}

// unfinishedFor is how long the configuration file may be missing, or have no end, before it
// counts.
const unfinishedFor = 2 * time.Second

// settlesIn returns how much longer a file must stay the same before it is read on SIGHUP: it may
// be written in place. A file that was written in the future does not wait.
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
// and that was not reported: a half of a file can be valid, and lack the deny rules of the other
// half.
func (p *program) reload(asked bool) (done bool) {
	read, done := p.contents.look(asked)
	if read == nil {
		return done
	}
	p.checks.reloading()
	defer p.checks.tellReady()
	defer p.contents.begin(read)() // last, when the failure is up to date
	if p.contents.mistaken(read) {
		p.revoke(read)
		return true
	}
	read.warnings = slices.Concat(p.recording.revoked.follow(read.config), read.warnings)
	change, commit, err := p.follow(read.config)
	if err != nil {
		p.contents.notReloaded(err, "")
		return true
	}
	p.contents.warned(read, change.Refused == nil)
	commit()
	p.upstreams.leave(&change)
	p.contents.reloaded(&change)
	return true
}

// revoke ends the API keys that a file with mistakes does not have any more. Nothing else of the file takes effect.
func (p *program) revoke(read *content) {
	next, lost := p.inForce.config.WithoutLost(read.config, read.err)
	if len(lost) == 0 {
		return
	}
	for _, part := range []part{p.inForce, p.upstreams} { // the only ones with keys; they open nothing
		of, err := part.Prepare(next)
		if err != nil {
			p.log.Error("the file has lost API keys, which are accepted until its mistakes are corrected", "keys",
				config.KeyNames(lost), "error", err)
			return
		}
		of.commit()
	}
	p.recording.revoked.follow(next)
	change := config.Change{Config: next, RevokedKeys: lost}
	p.upstreams.leave(&change)
	p.contents.revokedOnly(lost)
	p.contents.changed(&change, deref(&p.contents.failure))
	p.log.Warn("API keys are revoked, and the rest of the file is not in force", "revoked", config.KeyNames(lost))
	p.recording.changedKeys("key_revoked", "revoked", lost)
}

// follow prepares a configuration, and returns what takes effect of it. If a part cannot open what
// it needs, the reload is refused in part, and commit puts in force what both files let pass.
func (p *program) follow(next *config.Config) (change config.Change, commit func(), err error) {
	next.Listen = cmp.Or(p.listen, next.Listen)
	change = p.inForce.config.Follow(next)
	if change.Refused == nil {
		// only --listen can fail here: look has checked the file
		if problem := next.ListenProblem(next.Listen, false, false); problem != "" {
			err = fmt.Errorf("--listen %s: %s", next.Listen, problem)
		} else if commit, err = p.parts.Prepare(change.Config); err == nil {
			return change, commit, nil
		}
		change.Refuse(err)
	}
	commit, err = p.parts.Prepare(change.Config)
	return change, commit, err
}

// repin reloads the pins if their file has changed. Only reloadLoop calls it.
func (p *program) repin() {
	pinned := p.inForce.pinned
	pins := pinned.changed()
	if pins == nil {
		return
	}
	commit, err := p.parts.Prepare(p.inForce.config)
	if err != nil {
		pinned.failed(err)
		return
	}
	pinned.use(pins)
	commit()
	p.log.Info("pins reloaded", "pins", pinned.name)
	p.recording.event("pins_reloaded", pinned.name, proxy.OK)
}
