package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/cmd/pack/lock"
	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/files"
)

// PackProgram is the program that serves packs.
const PackProgram = "junction-pack"

// ServesPack reports whether the command of an upstream serves a pack.
func ServesPack(u upstream.Config) bool {
	return len(u.Command) > 0 && strings.TrimSuffix(filepath.Base(u.Command[0]), ".exe") == PackProgram
}

// NoPackProgram is the remedy if that program is missing.
const NoPackProgram = "put junction-pack beside junction or into PATH; it is part of every release of Junction"

// entryKeys are the keys of an upstream in the file. Package upstream knows nothing of packs: an
// upstream with a pack is a command.
type entryKeys struct {
	upstream.Config `yaml:",inline"`
	Pack            string `yaml:"pack"`
}

// upstream reads the entry of an upstream.
func (d *decoder) upstream(path string, n *yaml.Node, c *upstream.Config) bool {
	e := entryKeys{Config: *c}
	ok := d.value(path, n, reflect.ValueOf(&e).Elem())
	if *c = e.Config; ok && d.has(path+".pack") {
		d.packs[path] = e.Pack
	}
	return ok
}

// usePacks turns the upstreams with a pack into commands.
func (d *decoder) usePacks(c *Config) {
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		at := "upstreams." + name
		pack, given := d.packs[at]
		if !given {
			continue
		}
		u := c.Upstreams[name]
		command := []string{findPackProgram(), "serve", "--log-priority"}
		if pack != "" {
			if c.Packs == nil {
				c.Packs = map[string]string{}
			}
			c.Packs[name] = beside(d.File, pack)
		}
		switch {
		case d.broken(at + ".pack"):
		case pack == "":
			d.bad(at+".pack", "is empty; name a manifest or a folder with pack.yaml, such as ./packs/dev")
		case len(u.Command) > 0 || u.URL != "":
			d.bad(at+".pack", "stands beside a command or a url; keep one of them")
		case u.Dir != "":
			d.bad(at+".dir", "is only for a command; write dir into the manifest of the pack")
		}
		if !d.broken(at+".pack") && !u.Off() {
			checksum, err := lock.Check(d.File, c.Packs[name])
			if err != nil {
				d.unresolved[at+".pack"] = true
				d.bad(at+".pack", "%s %v", filepath.Base(c.Packs[name]), err)
			}
			if checksum != "" {
				command = append(command, "--checksum", checksum)
			}
		}
		if len(u.Command) == 0 && u.URL == "" { // also if the pack is wrong, so that no command is missing
			u.Command, u.Dir = append(command, c.Packs[name]), folderOf(c.Packs[name])
		}
		c.Upstreams[name] = u
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

// warnPack warns if the pack does not exist or has mistakes, or if the program that serves packs does
// not exist. It reports whether it did.
func (c *Config) warnPack(name string, warn func(path, format string, args ...any)) bool {
	at, pack := "upstreams."+name+".pack", c.Packs[name]
	if _, err := os.Stat(pack); err != nil {
		warn(at, "cannot read %s: %v; that upstream cannot start", pack, files.Reason(err))
		return true
	}
	if c.Upstreams[name].Command[0] == PackProgram {
		warn(at, "there is no program %s, and that upstream cannot start; %s", PackProgram, NoPackProgram)
		return true
	}
	if mistake := manifest.Mistake(pack); mistake != "" {
		warn(at, "%s; that upstream cannot start", mistake)
		return true
	}
	return false
}
