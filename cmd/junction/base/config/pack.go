package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"junction/cmd/pack"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/shell"
)

// PackProgram is the program that serves packs.
const PackProgram = "junction-pack"

// ServesPack reports whether the command of an upstream serves a pack.
func ServesPack(u upstream.Config) bool {
	return strings.TrimSuffix(filepath.Base(u.Program()), ".exe") == PackProgram
}

// NoPackProgram is the remedy if that program is missing.
const NoPackProgram = "put junction-pack beside junction or into PATH; it is part of every release of Junction"

// entryKeys are the keys of an upstream in the file. Package upstream knows nothing of packs: an
// upstream with a pack is a command.
type entryKeys struct {
	upstream.Config `yaml:",inline"`
	// A folder with tools, or its manifest, which junction-pack serves in place of a command. The
	// path is relative to this file.
	Pack string `yaml:"pack"`
	// The servers of the pack that run, each as an upstream of its own: dev-search. Default: none.
	Servers []string `yaml:"servers"`
}

// upstream reads the entry of an upstream.
func (d *decoder) upstream(path string, n *yaml.Node, c *upstream.Config) bool {
	e := entryKeys{Config: *c}
	ok := d.value(path, n, reflect.ValueOf(&e).Elem())
	if *c = e.Config; ok && d.has(path+".pack") {
		d.packs[path] = e.Pack
	}
	d.servers[path] = e.Servers
	return ok
}

// usePacks turns the upstreams with a pack into commands.
func (d *decoder) usePacks(c *Config) {
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		at := "upstreams." + name
		path, given := d.packs[at]
		if !given {
			if d.has(at + ".servers") {
				d.bad(at+".servers", "is only for an upstream with a pack; remove it")
			}
			continue
		}
		u := c.Upstreams[name]
		command := []string{findPackProgram(), "serve", "--log-priority"}
		for _, glob := range u.EnabledTools() {
			command = append(command, "--enable", glob)
		}
		if path != "" {
			if c.Packs == nil {
				c.Packs = map[string]string{}
			}
			c.Packs[name] = beside(d.File, path)
		}
		switch {
		case d.broken(at + ".pack"):
		case path == "":
			d.bad(at+".pack", "is empty; name a manifest or a folder with pack.yaml, such as ./packs/dev")
		case u.Addressed():
			d.bad(at+".pack", "stands beside a command or a url; keep one of them")
		case u.Dir != "":
			d.bad(at+".dir", "is only for a command; write dir into the manifest of the pack")
		}
		if !d.broken(at+".pack") && !u.Off() {
			checksum, err := lock.Check(d.File, Named(d.File), c.Packs[name])
			if err != nil {
				d.unresolved[at+".pack"] = true
				d.bad(at+".pack", "%s %v", filepath.Base(c.Packs[name]), err)
			}
			if checksum != "" {
				command = append(command, "--checksum", checksum)
			}
		}
		if !u.Addressed() { // also if the pack is wrong, so that no command is missing
			u.Command, u.Dir = append(command, c.Packs[name]), folderOf(c.Packs[name])
			u.OwnLimits = true // each tool of a pack has a timeout
			u.Confines = true
		}
		c.Upstreams[name] = u
		if d.broken(at + ".pack") {
			continue
		}
		if p, err := pack.Load(c.Packs[name], manifest.Options{Unresolved: true}); err == nil {
			d.manifests[name] = p // packWarnings and packProblems report others
		}
		if !u.Off() {
			d.useServers(c, name)
		}
		for _, w := range d.packWrites(c, name) {
			c.Writable = append(c.Writable, w.path)
		}
	}
}

// beside returns the absolute path of a path that is relative to the folder of a file.
func beside(file, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// folderOf returns the folder of a pack, which is a folder or a manifest.
func folderOf(pack string) string {
	if info, err := os.Stat(pack); err == nil && !info.IsDir() {
		return filepath.Dir(pack)
	}
	return pack
}

// findPackProgram returns the path of junction-pack: beside this program, or in PATH; otherwise its
// name.
func findPackProgram() string {
	name := PackProgram
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path
		}
	}
	if path, err := exec.LookPath(PackProgram); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return path
		}
	}
	return PackProgram
}

// packProblem is a mistake with which a pack does not start.
type packProblem struct {
	upstream string
	Problem
}

// packsOf returns the enabled upstreams with a pack whose entries have no mistake about it.
func (c *Config) packsOf(d *decoder) (names []string) {
	if c == nil || d == nil {
		return nil
	}
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		if u := c.Upstreams[name]; c.Packs[name] != "" && !u.Off() && !d.broken("upstreams."+name+".pack") {
			names = append(names, name)
		}
	}
	return names
}

// packWarnings warns of packs that a proxy cannot start now. It serves such a pack as soon as the
// pack is correct, so that the entry is not blocked.
func (c *Config) packWarnings(d *decoder) (ps Problems) {
	for _, name := range c.packsOf(d) {
		at, path := "upstreams."+name+".pack", c.Packs[name]
		text := ""
		if _, err := os.Stat(path); err != nil {
			text = fmt.Sprintf("cannot read %s: %v", path, files.Reason(err))
		} else {
			text = pack.Mistake(path)
		}
		if text != "" && len(d.servers["upstreams."+name]) > 0 {
			text += "; its servers are not there until the pack is correct and junction reads its file again"
		}
		if text != "" {
			ps = append(ps, Problem{File: d.File, Line: d.line(at), Path: at,
				Text: text + "; that upstream cannot start"})
		}
	}
	return ps
}

// PackMistakes returns the mistakes in the manifests of an upstream with a pack, each with its place.
func PackMistakes(u upstream.Config) (mistakes []string) {
	if !ServesPack(u) {
		return nil
	}
	_, err := pack.Load(u.Command[len(u.Command)-1], manifest.Options{Unresolved: true})
	problems, _ := errors.AsType[Problems](err)
	for _, p := range problems {
		mistakes = append(mistakes, p.String())
	}
	return mistakes
}

// requirement is a capability that a tool or a document of a pack requires.
type requirement struct{ capability, what string }

// requiredBy returns what the manifests of a pack require; nil if they have mistakes.
func requiredBy(path string) (all []requirement) {
	p, err := pack.Load(path, manifest.Options{Unresolved: true})
	if err != nil {
		return nil
	}
	add := func(what string, list []string) {
		for _, capability := range list {
			all = append(all, requirement{capability, what})
		}
	}
	for _, m := range p.Manifests {
		for _, t := range m.Tools {
			add("tool "+t.Name, t.Capabilities)
		}
		for _, a := range m.OpenAPI {
			add("document "+a.Name, a.Capabilities)
			for _, id := range slices.Sorted(maps.Keys(a.Tools)) {
				add("operation "+id, a.Tools[id].Capabilities)
			}
		}
	}
	return all
}

// maxPackTime limits the time in which packProblems reads the documents of all packs.
const maxPackTime = time.Minute

// packProblems reads the packs with the variables that their programs would get, and returns the
// mistakes with which they do not start. It reads documents that are files, and fetches none. The
// warnings are about items that a pack leaves out.
func (c *Config) packProblems(d *decoder) (mistakes []packProblem, warnings Problems) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), maxPackTime, fmt.Errorf(
		"the documents of the packs take more than %v to read; choose smaller ones", maxPackTime))
	defer cancel()
	for _, name := range c.packsOf(d) {
		at := "upstreams." + name + ".pack"
		found, err := c.readPack(ctx, d, name)
		problems, ok := errors.AsType[Problems](err)
		if err != nil && !ok {
			problems = Problems{{File: d.File, Line: d.line(at), Path: at, Text: err.Error()}}
		}
		for _, p := range problems {
			if strings.Contains(p.Text, unresolvedInEntry) { // the entry has the mistake
				continue
			}
			_, p.Text = d.conceal("upstreams."+name, p.Text)
			mistakes = append(mistakes, packProblem{name, p})
		}
		if found != nil {
			warnings = append(warnings, found.Warnings...)
		}
	}
	return mistakes, warnings
}

// unresolvedInEntry stands for the mistake of a variable that the entry would pass to the pack.
const unresolvedInEntry = "the entry has no value for the variable"

// readPack reads the pack of an upstream as junction-pack does, without fetching a document.
func (c *Config) readPack(ctx context.Context, d *decoder, name string) (*pack.Pack, error) {
	path, u := c.Packs[name], c.Upstreams[name]
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w; correct the path, or make an example: %s", path,
			files.Reason(err), shell.Join(PackProgram, "init", path))
	}
	m, err := pack.Load(path, manifest.Options{
		Enable: u.EnabledTools(),
		Getenv: func(name string) (string, bool) { return u.Variable(name, d.refs.getenv) },
		Unset: func(variable string) string {
			if d.unresolved["upstreams."+name+".env."+variable] {
				return unresolvedInEntry
			}
			return fmt.Sprintf("the environment variable %s does not reach the pack; add env: { %s: \"${%s}\" } to "+
				"upstreams.%s in %s, or write ${%s:-default}", variable, variable, variable, name, d.File, variable)
		}})
	if err != nil {
		return nil, err
	}
	return pack.Preview(ctx, m)
}
