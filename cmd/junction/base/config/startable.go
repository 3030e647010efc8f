package config

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"junction/upstream"
	"junction/upstream/folder"
)

// This file finds the upstreams that a start leaves out, and the programs and folders that this machine lacks.

// A LeftOut is an enabled upstream that does not run after a start with a file, and why.
type LeftOut struct {
	Name    string `json:"name"`
	Why     string `json:"why"`
	Blocked bool   `json:"blocked"` // the entry has the mistake, and not its pack or this machine
}

// LoadStarting is LoadServing at the start of a proxy, and returns the upstreams that do not run then, in the
// order of their names: because of a mistake in the entry or the pack, or because this machine lacks the
// program or the folder.
func LoadStarting(file string, getenv func(string) (string, bool)) (*Config, []LeftOut, Problems, error) {
	c, d, packs, warnings, err := loadServing(file, getenv, nil, false)
	if err != nil || d == nil {
		return c, nil, warnings, err
	}
	var left []LeftOut
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u.Off() {
			continue
		}
		why := u.Blocked
		for _, p := range packs {
			if why == "" && entry(p.Path) == "upstreams."+name {
				why = p.String()
			}
		}
		if key, text := d.unstartable(c, name); why == "" && text != "" {
			why = d.warning("upstreams."+name+"."+key, text).String()
		}
		if why != "" {
			left = append(left, LeftOut{name, why, u.Blocked != ""})
		}
	}
	return c, left, warnings, nil
}

// packKey is the key of an upstream that names its pack.
const packKey = "pack"

// unstartable returns the key of an enabled upstream because of which its command cannot start on this
// machine, and why. The text is "" if the command can start, and for a missing pack, which packWarnings
// reports.
func (d *decoder) unstartable(c *Config, name string) (key, text string) {
	u := c.Upstreams[name]
	if c.Packs[name] != "" {
		if _, err := os.Stat(c.Packs[name]); err != nil {
			return packKey, ""
		}
		if u.Program() == PackProgram {
			return packKey, fmt.Sprintf("there is no program %s, and that upstream cannot start; %s", PackProgram,
				NoPackProgram)
		}
	}
	program := u.Program()
	if program == "" {
		return "", ""
	}
	inFolder := folder.Named(u.Dir)
	if info, err := os.Stat(u.Dir); u.Dir != "" && !inFolder && (err != nil || !info.IsDir()) {
		return "dir", "is no folder; that upstream cannot start: " + u.ForDir(checking)
	}
	if program != Self && !(inFolder && filepath.Base(program) != program) && !d.runnable(&u) {
		return "command", notRunnable(&u)
	}
	return "", ""
}

// checking is where a relative path begins, for a check of the file.
const checking = "where this command runs; a service runs in the home folder"

// notRunnable returns why the program of the command cannot be started, and the remedy in the words of the
// upstream's state.
func notRunnable(u *upstream.Config) string {
	program := u.Program()
	if filepath.Base(program) != program {
		file := program
		if !filepath.IsAbs(file) {
			file = filepath.Join(u.Dir, file)
		}
		if _, err := os.Stat(file); err == nil {
			return program + " is no program that may be run; that upstream cannot start: " + upstream.ForMode
		}
	}
	return fmt.Sprintf("there is no program %s; that upstream cannot start: %s", program, u.ForProgram(checking))
}

// runnable reports whether the program of the command exists: a plain name in the PATH of the
// child, a path relative to its folder.
func (d *decoder) runnable(u *upstream.Config) bool {
	program := u.Program()
	if filepath.Base(program) != program {
		if !filepath.IsAbs(program) {
			program = filepath.Join(u.Dir, program)
			if filepath.Base(program) == program {
				program = "." + string(filepath.Separator) + program
			}
		}
		_, err := exec.LookPath(program)
		return err == nil
	}
	path, ok := u.Env["PATH"]
	if !ok {
		path, _ = d.refs.getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // package os/exec ignores relative PATH entries, too
		}
		if _, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return true
		}
	}
	return false
}
