package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/auth/store"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/sandbox"
)

// This file keeps confined commands from changing the files that decide what commands may use. Own and
// deciders list these files; confine compares the sandboxes of entries and of packs with them.

// own returns the files of Junction itself, which are secret, or which it writes.
func (c *Config) own(file string, getenv func(string) (string, bool)) (list sandbox.Deciders) {
	database, audit := c.Storage.DSN, c.Audit.File
	if c.Storage.Driver == store.Postgres {
		database = ""
	}
	if audit == AuditStderr {
		audit = ""
	}
	all := []sandbox.Decider{
		{What: "the configuration file", Path: file}, {What: "the key of sessions", Path: c.Sessions.KeyFile},
		{What: "the master keys", Path: c.Storage.KeyFile}, {What: signIns, Path: database},
		{What: "the accepted definitions", Path: c.Pins}, {What: "the audit", Path: audit},
		{What: "the certificate of TLS", Path: c.TLS.CertFile}, {What: "the key of TLS", Path: c.TLS.KeyFile},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		for _, file := range u.Auth.Files() {
			all = append(all, sandbox.Decider{What: "the " + file.What + " of upstreams." + name, Path: *file.Path})
		}
		all = append(all, sandbox.Decider{What: "the key of upstreams." + name + ".tls", Path: u.TLS.KeyFile})
	}
	for _, own := range all {
		if path, err := filepath.Abs(own.Path); own.Path != "" && err == nil {
			own.Path = path
			list = append(list, own)
			if own.What == signIns {
				list = append(list, besideDatabase(path)...)
			}
		}
	}
	list = append(list, stateFiles(KeyDir("", getenv))...)
	if key, err := filepath.Abs(c.Sessions.KeyFile); c.Sessions.KeyFile != "" && err == nil {
		list = append(list, besideKey(filepath.Dir(key))...)
	}
	return list
}

// packDeciders returns the Deciders of a pack. It notes programs whose references cannot be resolved.
func (d *decoder) packDeciders(c *Config, name string) sandbox.Deciders {
	entry := c.Upstreams[name]
	return d.manifests[name].Deciders(c.Packs[name], manifest.Known{
		Getenv: func(variable string) (string, bool) { return entry.Variable(variable, d.refs.getenv) },
		Expand: func(m *manifest.Manifest, where, text string) (string, bool) {
			refs := d.packRefs(&entry, m)
			text, _, problems := refs.expand(text)
			if len(problems) > 0 {
				d.unsure["upstreams."+name+".pack"] = where + ": " + problems[0]
			}
			return text, len(problems) == 0
		},
	})
}

// deciders returns all files that confined commands must not change: those of Junction, manifests,
// the files that references name, and the programs of commands without a sandbox.
func (c *Config) deciders(d *decoder) sandbox.Deciders {
	list := c.decidersOfJunction(d)
	for _, name := range slices.Sorted(maps.Keys(c.Packs)) {
		for _, decider := range d.packDeciders(c, name) {
			decider.What += " of the pack of upstreams." + name
			list = append(list, decider)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		list = append(list, c.printers(d, name)...)
		if c.Upstreams[name].Sandbox == nil {
			list = append(list, c.programs(d, name)...)
		}
	}
	return list
}

// decidersOfJunction returns the files of Junction, and those that references name.
func (c *Config) decidersOfJunction(d *decoder) sandbox.Deciders {
	list := c.own(d.File, d.refs.getenv)
	if file, err := filepath.Abs(lock.Path(d.File)); err == nil {
		list = append(list, sandbox.Decider{What: "the lock file of packs", Path: file})
	}
	if self, err := os.Executable(); err == nil {
		list = append(list, sandbox.Decider{What: "the program of Junction", Path: self})
	}
	for _, file := range slices.Sorted(maps.Keys(d.refs.named)) {
		list = append(list, sandbox.Decider{What: "a file that a reference names", Path: file})
	}
	return list
}

// programs returns the files that decide which program the command of an entry runs.
func (c *Config) programs(d *decoder, name string) (list sandbox.Deciders) {
	u := c.Upstreams[name]
	if u.Program() == "" || u.Program() == Self {
		return nil
	}
	path, own := u.Env["PATH"]
	if !own {
		path, _ = d.refs.getenv("PATH")
	}
	dir, _ := filepath.Abs(u.Dir)
	for _, file := range sandbox.Searched(u.Program(), dir, path) {
		list = append(list, sandbox.Decider{What: "the program of upstreams." + name, Path: file})
	}
	return list
}

// A write is a path that a confined command of a pack may change.
type write struct {
	path, where string // where says in which part of the manifest it is
	require     bool
	server      bool // of a server, which is an upstream of its own
}

// packWrites returns what the tools of a pack, and those of its servers that run as upstreams, may
// change. It notes paths that cannot be resolved.
func (d *decoder) packWrites(c *Config, name string) (list []write) {
	p, entry := d.manifests[name], c.Upstreams[name]
	if p == nil {
		return nil
	}
	add := func(m *manifest.Manifest, where string, box *command.Sandbox, server bool) {
		if box == nil {
			return
		}
		refs := d.packRefs(&entry, m)
		for _, path := range box.Write {
			text, _, problems := refs.expand(path)
			if len(problems) > 0 {
				d.unsure["upstreams."+name+".pack"] = where + ": " + problems[0]
				continue
			}
			list = append(list, write{text, where, box.Require, server})
		}
	}
	for _, m := range p.Manifests {
		for _, t := range m.Tools {
			add(m, "tools."+t.Name+".sandbox.write", t.Sandbox, false)
		}
		for _, s := range m.Servers {
			if entry.Sandbox == nil && slices.Contains(d.servers["upstreams."+name], s.Name) {
				add(m, "servers."+s.Name+".sandbox.write", s.Sandbox, true)
			}
		}
	}
	return list
}

// isWrite reports whether path is in the list write of the sandbox of an entry.
func isWrite(path string) bool { return isIn(path, ".sandbox.write") }

// isEnv reports whether path is in the environment of an entry.
func isEnv(path string) bool { return isIn(path, ".env.") }

// isIn reports whether path is below a key of an entry.
func isIn(path, key string) bool {
	return strings.HasPrefix(path, "upstreams.") && strings.HasPrefix(strings.TrimPrefix(path, entry(path)), key)
}

// writable returns the paths that the confined commands of the file may change.
func (c *Config) writable(file string, getenv func(string) (string, bool)) []string {
	paths := append(upstream.Writable(c.Upstreams, Sandboxes(KeyDir("", getenv), file)), c.Writable...)
	if key := c.Sessions.KeyFile; key != "" {
		paths = append(paths, upstream.Writable(c.Upstreams, Sandboxes(filepath.Dir(key), file))...)
	}
	return paths
}

// A change is a file that a confined command may change and should not, at the key that permits it.
type change struct{ path, text string }

// confine finds the confined commands that may change a file which decides. Those with require do not
// start, and the others get a warning. If it is not known what a command may change, or which program it
// runs, because a reference cannot be resolved, no other command with require starts.
func (c *Config) confine(d *decoder) {
	var list sandbox.Deciders
	if paths := c.writable(d.File, d.refs.getenv); len(paths) > 0 {
		list = c.deciders(d).In(paths)
	}
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		u, at := c.Upstreams[name], "upstreams."+name
		if u.Off() || u.Program() == "" {
			continue
		}
		require := u.Sandbox != nil && u.Sandbox.Require
		if u.Sandbox != nil {
			c.confineEntry(d, name, list)
		}
		for _, w := range d.packWrites(c, name) {
			require = require || w.require
			if changed := list.Changed(w.path); changed != nil && !w.server {
				d.mayChange(at+".pack", w.require, "%s of its manifest lets the command change %s; name a narrower "+
					"path", w.where, changed)
			}
		}
		for _, unsure := range slices.Sorted(maps.Keys(d.unsure)) {
			if require && entry(unsure) != at {
				d.mayChange(at, true, "may not start, because it is not known what another confined command may "+
					"change, or which program another command runs: %s: %s", unsure, d.unsure[unsure])
				break
			}
		}
	}
}

// confineEntry finds the files that the command of an entry may change and should not.
func (c *Config) confineEntry(d *decoder, name string, list sandbox.Deciders) {
	at, box := "upstreams."+name+".sandbox", c.Upstreams[name].Sandbox
	for i, path := range box.Write {
		if changed := list.Changed(path); changed != nil {
			d.mayChange(fmt.Sprintf("%s.write[%d]", at, i), box.Require,
				"lets the command change %s; name a narrower path", changed)
		}
	}
	// the folder of all private folders contains this one
	elsewhere := slices.DeleteFunc(slices.Clone(list), func(d sandbox.Decider) bool { return d.Inside })
	alone := Config{Sessions: c.Sessions, Upstreams: map[string]upstream.Config{name: {Sandbox: &command.Sandbox{}}}}
	for _, private := range alone.writable(d.File, d.refs.getenv) {
		if changed := elsewhere.Changed(private); changed != nil {
			d.mayChange(at, box.Require, "lets the command change %s, which is in its private folder; move that file",
				changed)
		}
	}
}

// mayChange reports a change: as a mistake of an upstream that requires its sandbox, which blocks only
// that upstream, also while Junction runs, and as a warning about others.
func (d *decoder) mayChange(at string, require bool, format string, args ...any) {
	if require {
		d.unresolved[at] = true
		d.invalid(at, format, args...)
		return
	}
	d.confined = append(d.confined, change{at, fmt.Sprintf(format, args...)})
}
