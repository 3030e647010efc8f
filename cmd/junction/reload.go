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
	"time"

	"github.com/fsnotify/fsnotify"

	"junction/cmd/junction/config"
	"junction/cmd/junction/prose"
	"junction/proxy/pins"
)

// settle is how long the file must have been left alone before it is read: editors write in several
// steps.
const settle = 100 * time.Millisecond

// reloadLoop takes over the file when it has changed, and on SIGHUP. A bad file changes nothing but
// the log. One goroutine, until ctx ends.
func (p *program) reloadLoop(ctx context.Context) error {
	if p.file == "" {
		return nil
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var events chan fsnotify.Event
	var missed chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		// The folder, since editors and Kubernetes replace the file.
		if err = watcher.Add(filepath.Dir(p.file)); err == nil {
			events, missed = watcher.Events, watcher.Errors
		}
		if p.config.Pins != "" {
			if err := watcher.Add(filepath.Dir(p.config.Pins)); err != nil {
				p.log.Warn("changed pins are noticed on SIGHUP only", "error", err)
			}
		}
	}
	if err != nil {
		p.log.Warn("a changed configuration is noticed on SIGHUP only", "error", err)
	}
	// the first time at once: the file may have changed since it was read and before anybody
	// watched
	quiet := time.NewTimer(settle)
	waiting := true // for the timer
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			p.audit.Reopen()
			p.reload(true)
			p.repin()
		case e := <-events:
			// Others in the folder, a log perhaps, never stop writing. They must not put it off;
			// one of them may be what our file is a link to.
			if base := filepath.Base(e.Name); base == filepath.Base(p.file) || base == filepath.Base(p.config.Pins) || !waiting && !e.Has(fsnotify.Write) && !e.Has(fsnotify.Chmod) {
				quiet.Reset(settle)
				waiting = true
			}
		case <-missed: // some events were lost; the watcher waits until somebody has taken this
			quiet.Reset(settle)
			waiting = true
		case <-quiet.C:
			waiting = false
			p.reload(false)
			p.repin()
		}
	}
}

// reload takes over the file. Everything that can fail comes before anything changes.
func (p *program) reload(asked bool) {
	hash, err := config.Checksum(p.file)
	if err != nil {
		if asked {
			p.notReloaded(err, "")
		}
		return // a file that is gone for a moment is being replaced
	}
	if hash == p.hash && !asked {
		return
	}
	p.hash = hash
	detail := "" // of what the log has a line of its own for
	c, warnings, err := config.LoadServing(p.file, p.getenv, true)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, problem := range problems {
			p.log.Error("configuration: "+problem.Text, "file", problem.File, "line", problem.Line, "key", problem.Path)
		}
		first := problems[0]
		err = errors.New(prose.Count(len(problems), "mistake"))
		detail = fmt.Sprintf("%v, such as line %d: %s: %s", err, first.Line, cmp.Or(first.Path, "YAML"), first.Text)
	}
	if err == nil {
		if p.listen != "" {
			c.Listen = p.listen
		}
		if problem := c.ListenProblem(c.Listen, false, false); problem != "" { // of --listen; that of the file was checked
			err = fmt.Errorf("--listen %s: %s", c.Listen, problem)
		}
		err = cmp.Or(err, fixed(p.config, c))
	}
	if err != nil {
		p.notReloaded(err, detail)
		return
	}
	if err := p.openVault(c); err != nil {
		p.notReloaded(err, detail)
		return
	}
	audit, err := p.audit.Next(c.Audit, p.stderr, p.log)
	if err != nil {
		p.notReloaded(err, detail)
		return
	}
	for _, w := range warnings {
		p.log.Warn(w.Text, "file", w.File, "line", w.Line, "key", w.Path)
	}
	p.audit.Use(audit)
	p.apply(c)
	p.unread.Store(nil)
	p.log.Info("configuration reloaded", "upstreams", len(c.Upstreams))
}

// notReloaded has the log and /readyz say why the file is not what is in force; detail is for the
// latter alone, and "" where err says it all.
func (p *program) notReloaded(err error, detail string) {
	detail = cmp.Or(detail, err.Error())
	p.unread.Store(&detail)
	p.log.Error("configuration not reloaded; the last good one stays in force", "error", err)
}

// fixed refuses changes of what a running process cannot change.
func fixed(old, next *config.Config) error {
	var changed []string
	for _, k := range []struct {
		key      string
		old, new any
	}{
		{"listen", old.Listen, next.Listen}, {"admin", old.Admin, next.Admin}, {"limits", old.Limits.WithDefaults(), next.Limits.WithDefaults()},
		{"sessions", old.Sessions, next.Sessions}, {"log", old.Log, next.Log}, {"shutdown_grace", old.ShutdownGrace, next.ShutdownGrace},
		{"pins", old.Pins, next.Pins}, {"auth.oauth", old.Auth.OAuth, next.Auth.OAuth}, {"storage", old.Storage, next.Storage},
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
		return fmt.Errorf("%s and %s have changed, which needs a restart", strings.Join(changed[:n-1], ", "), changed[n-1])
	}
}

// ownScopes are those that who signs in here may be given beyond the usual one: the authorization
// server knows them from its start.
func ownScopes(c *config.Config) []string {
	if c.Auth.OAuth == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.Auth.ScopeCapabilities))
}

// repin takes over the pins when the file has changed; one that is broken changes nothing but the
// log. reloadLoop calls it.
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
}

// loadPins reads the file that the configuration names; nil without one.
func loadPins(c *config.Config) (*pins.Pins, error) {
	if c.Pins == "" {
		return nil, nil
	}
	return pins.Load(c.Pins)
}
