package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/junction/config"
	"junction/cmd/junction/record"
	"junction/cmd/watch"
	"junction/proxy"
	"junction/proxy/pins"
	"junction/upstream"
	"junction/upstream/prose"
)

// reloadLoop reloads the file after a change and on SIGHUP. A file with mistakes is logged and
// otherwise ignored. It runs in one goroutine until ctx ends.
func (p *program) reloadLoop(ctx context.Context) error {
	if p.file == "" {
		return nil
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			p.audit.Reopen()
			p.reload(true)
			p.repin()
		case <-changed:
			p.reload(false)
			p.repin()
		}
	}
}

// reload reads the file and puts it in force. Every step that can fail comes before the first
// change. asked is set for SIGHUP: then an unchanged file is reloaded too, and a missing one is
// reported.
func (p *program) reload(asked bool) {
	hash, err := config.Checksum(p.file)
	if err != nil {
		if asked {
			p.notReloaded(err, "")
		}
		return // a missing file is probably being replaced
	}
	if hash == p.hash && !asked {
		return
	}
	p.hash = hash
	defer p.loadedHash.Store(&hash) // last, when reloadError is up to date
	c, warnings, err := config.LoadServing(p.file, p.getenv, true)
	detail := "" // for /readyz, where the log has one line for each mistake
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, problem := range problems {
			p.log.Error("configuration: "+problem.Text, "file", problem.File, "line", problem.Line, "key", problem.Path)
		}
		err = errors.New(prose.Count(len(problems), "mistake"))
		detail = mistakesOf(problems)
	}
	var audit *record.Audit
	if err == nil {
		audit, err = p.prepare(c)
	}
	if err != nil {
		p.notReloaded(err, detail)
		return
	}
	for _, w := range warnings {
		p.log.Warn(w.Text, "file", w.File, "line", w.Line, "key", w.Path)
	}
	p.audit.Use(audit)
	changes := changesOf(p.config.Upstreams, c.Upstreams)
	p.apply(c)
	if p.members != nil {
		if err := p.members.Reload(c.Shared); err != nil {
			p.log.Error("cannot compare the configuration with that of the other replicas", "error", err)
		}
	}
	p.reloadError.Store(nil)
	p.storeGood()
	p.log.Info("configuration reloaded", append([]any{"upstreams", len(c.Upstreams)}, changes...)...)
	p.record("configuration_reloaded", fingerprint(p.file, hash), proxy.OK)
}

// mistakesOf returns the number of mistakes, and the first one.
func mistakesOf(problems config.Problems) string {
	first := problems[0]
	return fmt.Sprintf("%s, such as line %d: %s: %s", prose.Count(len(problems), "mistake"), first.Line,
		cmp.Or(first.Path, "YAML"), first.Text)
}

// prepare does what can fail before a configuration is put in force.
func (p *program) prepare(c *config.Config) (*record.Audit, error) {
	c.Listen = cmp.Or(p.listen, c.Listen)
	// only --listen can fail here: Load has checked the file
	if problem := c.ListenProblem(c.Listen, false, false); problem != "" {
		return nil, fmt.Errorf("--listen %s: %s", c.Listen, problem)
	}
	if err := fixed(p.config, c); err != nil {
		return nil, err
	}
	if err := p.openVault(c); err != nil {
		return nil, err
	}
	return p.audit.Next(c.Audit, p.stderr, p.log)
}

// changesOf returns the names of the upstreams that were added, changed and removed, for the log. A
// disabled upstream counts as removed.
func changesOf(old, next map[string]upstream.Config) (attrs []any) {
	var added, changed, removed []string
	for name, c := range next {
		before, there := old[name]
		switch on, was := !c.Off(), there && !before.Off(); {
		case on && !was:
			added = append(added, name)
		case was && !on:
			removed = append(removed, name)
		case on && !reflect.DeepEqual(before, c):
			changed = append(changed, name)
		}
	}
	for name, c := range old {
		if _, there := next[name]; !there && !c.Off() {
			removed = append(removed, name)
		}
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"added", added}, {"changed", changed}, {"removed", removed}} {
		if len(list.names) > 0 {
			slices.Sort(list.names)
			attrs = append(attrs, list.key, list.names)
		}
	}
	return attrs
}

// notReloaded reports in the log and on /readyz why the file is not in force. detail is the text
// for /readyz; "" means err.
func (p *program) notReloaded(err error, detail string) {
	detail = cmp.Or(detail, err.Error())
	p.reloadError.Store(&detail)
	p.log.Error("configuration not reloaded; the last good one stays in force", "error", err)
	p.record("configuration_rejected", detail, proxy.Invalid)
}

// fixed rejects changes of settings that need a restart.
func fixed(old, next *config.Config) error {
	var changed []string
	for _, k := range []struct {
		key      string
		old, new any
	}{
		{"listen", old.Listen, next.Listen}, {"admin", old.Admin, next.Admin}, {"metrics", old.Metrics, next.Metrics},
		{"limits", old.Limits.WithDefaults(), next.Limits.WithDefaults()},
		{"sessions", old.Sessions, next.Sessions}, {"log", old.Log, next.Log},
		{"shutdown_grace", old.ShutdownGrace, next.ShutdownGrace},
		{"drain_delay", old.DrainDelay, next.DrainDelay},
		{"pins", old.Pins, next.Pins}, {"auth.oauth", old.Auth.OAuth, next.Auth.OAuth},
		{"storage", old.Storage, next.Storage}, {"replicas", old.Replicas, next.Replicas},
		{"outbound", old.Outbound, next.Outbound}, {"public_url", signInAt(old), signInAt(next)},
		{"auth.scope_capabilities", ownScopes(old), ownScopes(next)},
	} {
		if !reflect.DeepEqual(k.old, k.new) {
			changed = append(changed, k.key)
		}
	}
	switch n := len(changed); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s has changed, which needs a restart", changed[0])
	default:
		return fmt.Errorf("%s and %s have changed, which needs a restart", strings.Join(changed[:n-1], ", "),
			changed[n-1])
	}
}

// ownScopes returns the scopes that the authorization server may grant beyond the default one. The
// server reads them only at its start.
func ownScopes(c *config.Config) []string {
	if c.Auth.OAuth == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.Auth.ScopeCapabilities))
}

// repin reloads the pins if their file has changed. A broken file is logged and otherwise ignored.
// Only reloadLoop calls it.
func (p *program) repin() {
	if p.config.Pins == "" {
		return
	}
	pins, err := pins.Load(p.config.Pins)
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
func loadPins(c *config.Config) (*pins.Pins, error) {
	if c.Pins == "" {
		return nil, nil
	}
	return pins.Load(c.Pins)
}
