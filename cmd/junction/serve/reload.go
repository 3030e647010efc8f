package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
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
			p.audit.Reopen()
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
	warnings = slices.Concat(p.followKeys(c), warnings)
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

// warn logs the likely mistakes of a file, except those that the first screen shows on the same terminal.
func (p *program) warn(warnings config.Problems) {
	for _, w := range warnings {
		level := slog.LevelWarn
		if config.Grave(w) && !config.Revived(w) && p.screen.Holds() {
			level = slog.LevelDebug
		}
		p.log.Log(context.Background(), level, w.Text, "file", w.File, "line", w.Line, "key", w.Path)
	}
}

// reloaded reports in the log, in the audit and on /readyz what a changed file has changed.
func (p *program) reloaded(change *config.Change, which string) {
	attrs := append([]any{"upstreams", len(change.Config.Upstreams)}, change.Attrs()...)
	waiting, rejected := change.Waiting(), change.Rejected()
	p.waiting.Store(&waiting)
	p.partial.Store(change.Partial)
	defer p.changedKeys("key_revoked", "revoked", change.RevokedKeys)
	defer p.changedKeys("key_added", "added", change.AddedKeys)
	if rejected != "" {
		p.reloadError.Store(&rejected)
		attrs = append(append(attrs, change.Partial.Attrs()...), "error", rejected)
		p.log.Error("configuration not reloaded as a whole; the stricter of both files decides", attrs...)
		p.record("configuration_rejected", rejected, proxy.Invalid)
		return
	}
	p.reloadError.Store(nil)
	if waiting == "" { // otherwise nobody knows whether a start can serve this content
		p.storeGood()
	}
	p.log.Info("configuration reloaded", attrs...)
	if waiting != "" {
		p.log.Warn("a part of the configuration waits for a restart", "keys", change.Restart)
		which += "; " + waiting
	}
	p.record("configuration_reloaded", which, proxy.OK)
}

// maxKeyLines limits the lines about the keys that one reload adds or revokes.
const maxKeyLines = 50

// changedKeys writes a line for each key that a reload has added or revoked to the log and to the audit.
func (p *program) changedKeys(event, how string, keys []auth.Key) {
	shown := keys[:min(len(keys), maxKeyLines)]
	for _, k := range shown {
		p.log.Info("key "+how+" by a reload", "principal", "key:"+k.Name, "key_id", k.Hash.ID())
		e := record.Event{Name: event, Principal: "key:" + k.Name, KeyID: k.Hash.ID()}
		if at, was := p.back[k.Hash]; was {
			e.Detail = "the key was revoked at " + at.Format(time.RFC3339)
		}
		p.audit.Event(e)
	}
	if more := len(keys) - len(shown); more > 0 {
		p.log.Info("more keys "+how+" by a reload", "more", more)
		p.record(event, prose.Count(more, "more key"), proxy.OK)
	}
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
			var audit *record.Audit
			if audit, err = p.nextAudit(next.Audit); err == nil {
				p.audit.Use(audit)
			}
		}
	}
	if err != nil {
		change.Refuse(err)
	}
	return change
}

// notReloaded reports in the log and on /readyz why the file is not in force. detail is the text
// for /readyz; "" means err.
func (p *program) notReloaded(err error, detail string) {
	detail = cmp.Or(detail, err.Error())
	p.reloadError.Store(&detail)
	p.log.Error("configuration not reloaded; the last good one stays in force", "error", err)
	p.record("configuration_rejected", detail, proxy.Invalid)
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
	p.record("pins_reloaded", p.config.Pins, proxy.OK)
}

// loadPins reads the pins file of the configuration. It returns nil if the configuration names
// none.
func loadPins(c *config.Config, file string) (*pins.Pins, error) {
	if c.Pins == "" {
		return nil, nil
	}
	return pins.Load(c.Pins, config.Named(file))
}

// deref returns a text that may not be set.
func deref(text *atomic.Pointer[string]) string {
	if s := text.Load(); s != nil {
		return *s
	}
	return ""
}

// mistakesOf returns the number of mistakes, and the first one.
func mistakesOf(problems config.Problems) string {
	first := problems[0]
	return fmt.Sprintf("%s, such as line %d: %s: %s", prose.Count(len(problems), "mistake"), first.Line,
		cmp.Or(first.Path, "YAML"), first.Text)
}
