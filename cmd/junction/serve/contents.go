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
	"slices"
	"sync/atomic"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/secrets"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// contents are what the configuration file has, and why a part of it is not in force.
type contents struct {
	*common
	steady
	loaded     // owned by load, then by reloadLoop
	begun      time.Time
	unreadable bool                     // the file is missing, which was reported; owned by reloadLoop
	unfinished [32]byte                 // the hash of the file when look has looked last; owned by reloadLoop
	loadedHash atomic.Pointer[[32]byte] // of the file whose reload has ended last
	verdicts
	recording *recording
	programs  *secrets.Programs // nil before load
}

// verdicts is what people read of the file and its reloads.
type verdicts struct {
	failure  atomic.Pointer[string]           // why the last reload failed; nil after a successful reload
	partial  atomic.Pointer[config.Partial]   // what of the file is not in force; nil unless refused in part
	waiting  atomic.Pointer[string]           // which changes of the file wait for a restart; nil or "" if none
	warnings atomic.Pointer[config.Problems]  // of the file in force; nil before load
	lately   atomic.Pointer[diagnose.Reloads] // the last reloads that have changed something
	revoked  atomic.Pointer[[]string]         // the API keys that are revoked beside a file that is not in force
}

// loaded is what was read last.
type loaded struct {
	hash    [32]byte      // of the configuration file
	at      os.FileInfo   // of that file; nil if it was missing
	inputs  config.Inputs // of its references
	printed int           // the version of what its programs have printed
}

// Open logs the warnings about the file.
func (f *contents) Open(*config.Config) error {
	f.warn(*f.warnings.Load())
	return nil
}

// Close ends the programs that print secrets.
func (f *contents) Close() {
	if f.programs != nil {
		f.programs.Close()
	}
}

// load reads the configuration file at the start. After an error nothing runs.
func (f *contents) load() (*config.Config, error) {
	f.programs = secrets.New()
	c, warnings, err := f.read()
	f.warnings.Store(&warnings)
	if err != nil {
		f.programs.Close()
	}
	return c, err
}

// printedWithin is how long a start, or a reload, waits for programs that have not printed a secret yet. Upstreams
// whose programs take longer are blocked until then, and the others do not wait.
const printedWithin = 3 * time.Second

// withSecrets reads a configuration. If programs that it names have not run yet, they do so, and it is read again.
func (f *contents) withSecrets(read func() (*config.Config, error)) (*config.Config, error) {
	f.printed = f.programs.Version()
	c, err := read()
	if err != nil || !f.programs.Follow(secrets.Of(c)) {
		return c, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), printedWithin)
	defer cancel()
	f.programs.Wait(ctx)
	f.printed = f.programs.Version()
	return read()
}

// read reads the configuration file, or the last good content of it.
func (f *contents) read() (*config.Config, config.Problems, error) {
	// computed before Load, so that reloadLoop notices a change between the two
	hash, hashErr := config.Checksum(f.file)
	if f.unserved != nil && !f.isGood(hash) {
		if c, ok := f.loadGood(unservedBecause(f.unserved), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, errNoGood
	}
	var warnings config.Problems
	c, err := f.withSecrets(func() (c *config.Config, err error) {
		c, warnings, err = config.LoadServingWith(f.file, f.getenv, f.programs.Value, false)
		return c, err
	})
	if problems, ok := errors.AsType[config.Problems](err); ok {
		config.PrintProblems(f.stderr, problems, warnings)
		if c, ok := f.loadGood(mistakesOf(problems), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, fmt.Errorf("%s has %s; %w", f.file, prose.Count(len(problems), "mistake"), errNoGood)
	} else if err = cmp.Or(err, hashErr); err != nil {
		return nil, nil, err
	}
	f.readFile(hash)
	f.inputs = c.Inputs
	return c, warnings, nil
}

// readFile notes at the start which content the configuration file had.
func (f *contents) readFile(hash [32]byte) {
	f.hash, f.begun = hash, time.Now()
	f.at, _ = os.Stat(f.file) // nil if it is gone again
	f.loadedHash.Store(&hash)
}

// storeGood keeps the content of the file, which is in force, for a later start of the service.
func (f *contents) storeGood() {
	if !f.lastGood || f.failure.Load() != nil {
		return
	}
	name, err := config.LastGood(f.getenv, f.file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o700)
	}
	var text []byte
	if err == nil {
		text, err = files.Read(f.file, service.MaxGood)
	}
	if err == nil && sha256.Sum256(text) == f.hash { // otherwise a reload follows
		err = files.Write(name, text)
	}
	if err != nil {
		f.log.Warn("after a mistake in the configuration, the service will not start again", "error", err)
	}
}

// loadGood returns the last configuration that was in force, if this is a service. detail says why
// the content of the file now, with its hash, is not in force.
func (f *contents) loadGood(detail string, hash [32]byte) (*config.Config, bool) {
	if !f.lastGood {
		return nil, false
	}
	text, err := service.ReadGood(f.getenv, f.file)
	if err != nil {
		return nil, false
	}
	c, err := f.withSecrets(func() (*config.Config, error) {
		return config.ParseServingWith(f.file, text, f.getenv, f.programs.Value)
	})
	if err != nil {
		return nil, false
	}
	f.readFile(hash)
	f.inputs = c.Inputs
	f.failure.Store(&detail)
	now, _, err := config.LoadServing(f.file, f.getenv, true) // the file may have lost keys since
	c, lost := c.WithoutLost(now, err)
	c, known := c.WithoutKeys(revokedOf(c, f.file, f.getenv)) // and nobody can read that in it any more
	f.revokedOnly(slices.Concat(lost, known))
	return c, true
}

// isGood reports whether the content of the file, with its hash, is the last one that was in force.
func (f *contents) isGood(hash [32]byte) bool {
	text, err := service.ReadGood(f.getenv, f.file)
	return err == nil && sha256.Sum256(text) == hash
}

// logGood reports a start with the last good configuration.
func (f *contents) logGood() {
	if detail := f.failure.Load(); detail != nil {
		f.log.Error("the configuration has mistakes; its last good content is in force", "error", *detail)
		if list := f.withheld(); len(list) > 0 {
			f.log.Warn("API keys of the last good content are revoked", "revoked", list)
		}
	}
}

// content is what a reload has read.
type content struct {
	hash     [32]byte
	at       os.FileInfo // nil if it was missing
	ends     bool        // it ends with the end of a line
	inputs   config.Inputs
	config   *config.Config
	warnings config.Problems
	err      error // then config has what could be read; nil for nothing
}

// look reads the file for a reload. Without a content there is nothing to put in force: then done
// is the result of (*program).reload.
func (f *contents) look(asked bool) (read *content, done bool) {
	at, _ := os.Stat(f.file) // before it is read: if it is replaced meanwhile, its hash changes
	hash, ends, err := config.Look(f.file)
	f.unfinished = hash
	if err != nil {
		if asked {
			f.notReloaded(err, "")
			f.unreadable = true
		}
		return nil, asked
	}
	inputs, changed, gone := f.inputs.Again()
	changed = changed || f.programs.Version() != f.printed
	if hash == f.hash && !asked && !f.unreadable && !changed {
		return nil, true
	}
	if (!ends || gone) && !asked {
		return nil, false
	}
	f.unreadable = false
	var warnings config.Problems
	c, err := f.withSecrets(func() (c *config.Config, err error) {
		c, warnings, err = config.LoadServingWith(f.file, f.getenv, f.programs.Value, true)
		return c, err
	})
	if now, again := config.Checksum(f.file); again != nil || now != hash { // it is being written
		f.unfinished = now
		return nil, false
	}
	if c != nil {
		inputs = c.Inputs
	}
	return &content{hash, at, ends, inputs, c, warnings, err}, true
}

// whole reports whether a content with mistakes is what its writer means, so that a key which it lacks is revoked.
// A file that was replaced in one step is whole. One that was written in place may be a half: it is whole if it
// ends with a line, and was asked for or has stayed the same.
func (f *contents) whole(read *content, asked bool) bool {
	return !os.SameFile(f.at, read.at) || read.ends && asked
}

// begin notes that a content is being put in force. The caller calls end when the result has been
// reported.
func (f *contents) begin(read *content) (end func()) {
	f.hash, f.at, f.inputs = read.hash, read.at, read.inputs
	return func() { f.loadedHash.Store(&read.hash) }
}

// mistaken reports whether a content cannot be put in force, and why.
func (f *contents) mistaken(read *content) bool {
	err, detail := read.err, "" // detail is for /readyz, where the log has one line for each mistake
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, problem := range problems {
			f.log.Error("configuration: "+problem.Text, "file", problem.File, "line", problem.Line, "key", problem.Path)
		}
		err = errors.New(prose.Count(len(problems), "mistake"))
		detail = mistakesOf(problems)
	}
	if err != nil {
		f.notReloaded(err, detail)
	}
	return err != nil
}

// warned logs the warnings about a content, and keeps them if the content is in force as a whole. The log has those
// of the content in force already.
func (f *contents) warned(read *content, whole bool) {
	known := func(w config.Problem) bool {
		return slices.ContainsFunc(*f.warnings.Load(), func(o config.Problem) bool {
			return o.File == w.File && o.Path == w.Path && o.Text == w.Text // its line may be another one now
		})
	}
	if f.warn(slices.DeleteFunc(slices.Clone(read.warnings), known)); whole {
		f.warnings.Store(&read.warnings)
	}
}

// add logs more warnings about the file in force, and puts them before the others.
func (f *contents) add(more config.Problems) {
	f.warn(more)
	all := slices.Concat(more, *f.warnings.Load())
	f.warnings.Store(&all)
}

// warn logs the likely mistakes of a file, except those that the first screen shows on the same
// terminal.
func (f *contents) warn(warnings config.Problems) {
	for _, w := range warnings {
		level := slog.LevelWarn
		if config.Grave(w) && !config.Revived(w) && f.screen.Holds() {
			level = slog.LevelDebug
		}
		f.log.Log(context.Background(), level, w.Text, "file", w.File, "line", w.Line, "key", w.Path)
	}
}

// revokedOnly notes API keys that are revoked, although the file that lacks them is not in force.
func (f *contents) revokedOnly(keys []auth.Key) {
	list := slices.Concat(f.withheld(), config.KeyNames(keys))
	f.revoked.Store(&list)
}

// withheld returns the names of the API keys that are revoked, although the file that lacks them is not in force.
func (f *contents) withheld() []string {
	if list := f.revoked.Load(); list != nil {
		return *list
	}
	return nil
}

// changed notes a reload that has changed something, and returns what; "" if it has changed nothing.
func (f *contents) changed(change *config.Change, rejected string) string {
	r := diagnose.NewReloaded(change, rejected, time.Now())
	if r == nil {
		return ""
	}
	list := f.reloads().With(r)
	f.lately.Store(&list)
	return r.String()
}

// reloads returns the last reloads that have changed something.
func (f *contents) reloads() diagnose.Reloads {
	if list := f.lately.Load(); list != nil {
		return *list
	}
	return nil
}

// reloaded reports in the log, in the audit and on /readyz what a changed file has changed.
func (f *contents) reloaded(change *config.Change) {
	which := fingerprint(f.file, f.hash)
	attrs := append([]any{"upstreams", len(change.Config.Upstreams)}, change.Attrs()...)
	waiting, rejected := change.Waiting(), change.Rejected()
	f.waiting.Store(&waiting)
	f.partial.Store(change.Partial)
	f.revoked.Store(nil)
	if what := f.changed(change, ""); what != "" {
		which = what + "; " + which
	}
	defer f.recording.changedPolicies(change.PolicyChanges)
	defer f.recording.changedKeys("key_revoked", "revoked", change.RevokedKeys)
	defer f.recording.changedKeys("key_added", "added", change.AddedKeys)
	if rejected != "" {
		f.failure.Store(&rejected)
		attrs = append(append(attrs, change.Partial.Attrs()...), "error", rejected)
		f.log.Error("configuration not reloaded as a whole; the stricter of both files decides", attrs...)
		f.recording.event("configuration_rejected", rejected, proxy.Invalid)
		return
	}
	f.failure.Store(nil)
	if waiting == "" { // otherwise nobody knows whether a start can serve this content
		f.storeGood()
	}
	f.log.Info("configuration reloaded", attrs...)
	if change.Opens && change.Config.Auth.Open() {
		f.log.Warn("authentication has ended: the file has no section auth any more, and every program and user of " +
			"this machine can connect")
	}
	if waiting != "" {
		f.log.Warn("a part of the configuration waits for a restart", "keys", change.Restart)
		which += "; " + waiting
	}
	f.recording.event("configuration_reloaded", which, proxy.OK)
}

// notReloaded reports in the log and on /readyz why the file is not in force. detail is the text
// for /readyz; "" means err.
func (f *contents) notReloaded(err error, detail string) {
	detail = cmp.Or(detail, err.Error())
	f.failure.Store(&detail)
	f.log.Error("configuration not reloaded; the last good one stays in force", "error", err)
	f.recording.event("configuration_rejected", detail, proxy.Invalid)
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
	at := ""
	if first.Path != "" {
		at = first.Path + ": "
	}
	which := "such as line"
	if len(problems) == 1 {
		which = "in line"
	}
	return fmt.Sprintf("%s, %s %d: %s%s", prose.Count(len(problems), "mistake"), which, first.Line, at, first.Text)
}
