package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/service"
	"junction/proxy"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// load reads the configuration file.
func (p *program) load() (*config.Config, config.Problems, error) {
	// computed before Load, so that reloadLoop notices a change between the two
	hash, hashErr := config.Checksum(p.file)
	if p.unserved != nil && !p.isGood(hash) {
		if c, ok := p.loadGood(unservedBecause(p.unserved), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, errNoGood
	}
	c, warnings, err := config.LoadServing(p.file, p.getenv, false)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		config.PrintProblems(p.stderr, problems, warnings)
		if c, ok := p.loadGood(mistakesOf(problems), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, fmt.Errorf("%s has %s; %w", p.file, prose.Count(len(problems), "mistake"), errNoGood)
	} else if err = cmp.Or(err, hashErr); err != nil {
		return nil, nil, err
	}
	p.readFile(hash)
	return c, warnings, nil
}

// readFile notes at the start which content the configuration file had.
func (p *program) readFile(hash [32]byte) {
	p.hash, p.begun = hash, time.Now()
	p.loadedHash.Store(&hash)
}

// storeGood keeps the content of the file, which is in force, for a later start of the service.
func (p *program) storeGood() {
	if !p.lastGood || p.reloadError.Load() != nil {
		return
	}
	name, err := service.LastGood(p.getenv, p.file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o700)
	}
	var text []byte
	if err == nil {
		text, err = files.Read(p.file, maxGood)
	}
	if err == nil && sha256.Sum256(text) == p.hash { // otherwise a reload follows
		err = files.Write(name, text)
	}
	if err != nil {
		p.log.Warn("after a mistake in the configuration, the service will not start again", "error", err)
	}
}

// maxGood is the most bytes of a configuration that is kept.
const maxGood = 16 << 20

// loadGood returns the last configuration that was in force, if this is a service. detail says why the
// content of the file now, with its hash, is not in force.
func (p *program) loadGood(detail string, hash [32]byte) (*config.Config, bool) {
	if !p.lastGood {
		return nil, false
	}
	name, err := service.LastGood(p.getenv, p.file)
	if err != nil {
		return nil, false
	}
	text, err := files.Read(name, maxGood)
	if err != nil {
		return nil, false
	}
	c, err := config.ParseServing(p.file, text, p.getenv)
	if err != nil {
		return nil, false
	}
	p.readFile(hash)
	p.reloadError.Store(&detail)
	return c, true
}

// isGood reports whether the content of the file, with its hash, is the last one that was in force.
func (p *program) isGood(hash [32]byte) bool {
	name, err := service.LastGood(p.getenv, p.file)
	if err != nil {
		return false
	}
	text, err := files.Read(name, maxGood)
	return err == nil && sha256.Sum256(text) == hash
}

// logGood reports a start with the last good configuration.
func (p *program) logGood() {
	if detail := p.reloadError.Load(); detail != nil {
		p.log.Error("the configuration has mistakes; its last good content is in force", "error", *detail)
	}
}

// warn logs the likely mistakes of a file, except those that the first screen shows on the same terminal.
func (p *program) warn(warnings config.Problems) {
	for _, w := range warnings {
		level := slog.LevelWarn
		if config.Grave(w) && p.screen.Holds() {
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
	defer p.recording.changedKeys("key_revoked", "revoked", change.RevokedKeys)
	defer p.recording.changedKeys("key_added", "added", change.AddedKeys)
	if rejected != "" {
		p.reloadError.Store(&rejected)
		attrs = append(append(attrs, change.Partial.Attrs()...), "error", rejected)
		p.log.Error("configuration not reloaded as a whole; the stricter of both files decides", attrs...)
		p.recording.event("configuration_rejected", rejected, proxy.Invalid)
		return
	}
	p.reloadError.Store(nil)
	p.storeGood()
	p.log.Info("configuration reloaded", attrs...)
	if waiting != "" {
		p.log.Warn("a part of the configuration waits for a restart", "keys", change.Restart)
		which += "; " + waiting
	}
	p.recording.event("configuration_reloaded", which, proxy.OK)
}

// notReloaded reports in the log and on /readyz why the file is not in force. detail is the text
// for /readyz; "" means err.
func (p *program) notReloaded(err error, detail string) {
	detail = cmp.Or(detail, err.Error())
	p.reloadError.Store(&detail)
	p.log.Error("configuration not reloaded; the last good one stays in force", "error", err)
	p.recording.event("configuration_rejected", detail, proxy.Invalid)
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
